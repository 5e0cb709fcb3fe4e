"""Requests: what is recorded of them, which ones are kept, and their ids."""
