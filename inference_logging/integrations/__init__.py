"""One module per foreign library."""
