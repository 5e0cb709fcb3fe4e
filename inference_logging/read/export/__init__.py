"""Requests as other programs read them: traces for load generators, batch files, conversations, time lines, tables.

``requests`` says what the export knows about one request, each format is a module that makes rows of requests,
``spool`` puts rows into the order of their arrival, and ``statement`` accounts for what is not in the file. ``run``
joins them.
"""
