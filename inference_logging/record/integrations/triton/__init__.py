"""Triton's Python backend: a model's requests, and an instance's own counts."""
