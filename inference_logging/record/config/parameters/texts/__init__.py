"""The texts of requests and responses: what is kept of them, and what is replaced."""
