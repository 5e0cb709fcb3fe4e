"""What answers the page's questions, as `view` needs it: the table of records.

Questions and answers are JSON, so that an answer goes from the core to the browser without a detour through objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Index(Protocol):
    """Answers questions about the records of some directories. All methods can be called from any thread.

    A wrong question raises ValueError with a sentence that names parameter and value.
    """

    def refresh(self, budget_s: float) -> bytes:
        """Look for new segments and records, for about ``budget_s`` seconds; return the progress."""

    def rows(self, query: bytes) -> bytes:
        """Return the records that fulfil a query, a page of them, each with its key.

        With ``segments``, offsets by name, only lines from there on; ``reached`` is then where the index of each ends.
        """

    def aggregate(self, query: bytes) -> bytes:
        """Return counts over time, distributions and groups of the records that fulfil a query."""

    def values(self, query: bytes) -> bytes:
        """Return the values of a field with their counts, most frequent first."""

    def line(self, key: str) -> bytes:
        """Return a whole record. Raises KeyError where it is gone."""

    def lines(self, keys: bytes) -> bytes:
        """Return the whole records of a list of keys; null where one is gone."""

    def fields(self) -> bytes:
        """Return the fields that are indexed: name and type."""


def open_index(directories: Sequence[Path], prefixes: Sequence[str] | None, cache_directory: Path | None) -> Index:
    """Open the index of some directories; one that does not exist yet has no segments. Raises OSError, ValueError."""
    from inference_logging.read.table.table import Table

    return Table(directories, prefixes, cache_directory)
