"""What recording costs on servers that serve: slices with it and without it, compared."""
