"""What runs in a server. It imports none of `read`, `ship`, `prove` and `cli`."""
