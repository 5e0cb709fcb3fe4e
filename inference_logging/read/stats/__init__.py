"""The figures of `inference-logging stats`: records are read and counted, and the counts shown in tables or on a page.

Internal, with all modules of this folder: users import nothing from here.
"""
