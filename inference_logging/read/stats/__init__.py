"""The figures of `inference-logging stats`: records are counted, and the counts shown in tables or on a page."""
