"""What inference engines add to the records."""
