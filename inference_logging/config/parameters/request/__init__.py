"""What is recorded of a request, which ones are kept, and whose ids they carry."""
