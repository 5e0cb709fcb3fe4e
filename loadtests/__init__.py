"""Measurements of this project; README.md says which folder answers which question."""
