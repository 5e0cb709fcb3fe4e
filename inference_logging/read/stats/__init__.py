"""The figures of `inference-logging stats`: asked of the table of records, and shown in tables or on a page."""
