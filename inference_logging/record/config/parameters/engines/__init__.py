"""Additions of inference engines to the records."""
