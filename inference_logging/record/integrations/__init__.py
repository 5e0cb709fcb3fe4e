"""One module or folder per foreign library."""
