"""What writes pages and pictures of this repository from its code; tests compare them."""
