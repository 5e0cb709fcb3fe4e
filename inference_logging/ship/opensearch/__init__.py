"""Indexes of OpenSearch or Elasticsearch as a destination.

`template` has their mapping, `documents` makes a record's document, `destination` sends them.
"""
