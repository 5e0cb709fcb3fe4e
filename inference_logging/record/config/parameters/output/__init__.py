"""Where records go, and what happens to the segments."""
