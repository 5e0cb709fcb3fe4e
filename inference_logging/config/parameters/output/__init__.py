"""Where records go, and what becomes of the segments."""
