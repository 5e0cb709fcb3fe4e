"""The table of records that `view` asks; what is asked and answered has JSON's types alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from inference_logging.read.table import aggregate as aggregates
from inference_logging.read.table import rows as pages
from inference_logging.read.table.catalog import Catalog, Entry
from inference_logging.read.table.columns import KINDS
from inference_logging.read.table.engine import BOUNDED, connected

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MOST_BUDGET_S: Final = 3600.0

Query = Mapping[str, Any]
_Find = Callable[["DuckDBPyConnection", Query, Sequence[Entry]], Any]


class Table:
    """The records of directories of segments. All methods can be called from any thread.

    A wrong question raises ValueError with a sentence that names parameter and value.
    """

    def __init__(
        self,
        directories: Sequence[Path],
        prefixes: Sequence[str] | None,
        cache_directory: Path | None,
        purpose: str = "view",
    ) -> None:
        """Begin, with nothing read; a directory that does not exist yet has no segments.

        Raises OSError naming a directory that cannot be read, ``MissingExtraError``.
        """
        self._connection = connected(purpose, "view", **BOUNDED)
        self._catalog = Catalog(
            self._connection, directories, lambda one: not prefixes or one.prefix in prefixes, cache_directory
        )

    def refresh(self, budget_s: float) -> dict[str, Any]:
        """Look for new segments and records, for about ``budget_s`` seconds; return the progress."""
        if not 0 <= budget_s <= _MOST_BUDGET_S:
            raise ValueError(f"budget_s={budget_s}: must be from 0 to {_MOST_BUDGET_S:g}")
        return self._catalog.refresh(budget_s)

    def complete(self) -> dict[str, Any]:
        """Refresh until all is read, or no more can be; return the progress."""
        return self._catalog.complete()

    def rows(self, query: Query) -> Any:
        """Return the records that fulfil a query, a page of them, each with its key.

        With ``segments``, offsets by name, only lines from there on; ``reached`` is then where the table of each ends.
        """
        return self._answer(pages.rows, query)

    def aggregate(self, query: Query) -> Any:
        """Return counts over time, distributions and groups of the records that fulfil a query."""
        return self._answer(aggregates.aggregate, query)

    def values(self, query: Query) -> Any:
        """Return the values of a field with their counts, most frequent first."""
        return self._answer(aggregates.values, query)

    def line(self, key: str) -> bytes:
        """Return a whole record. Raises KeyError where it is gone."""
        (found,) = pages.lines(self._catalog.snapshot, [key])
        if found is None:
            raise KeyError(key)
        return found

    def lines(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the whole records of keys; None where one is gone."""
        return pages.lines(self._catalog.snapshot, keys)

    def fields(self) -> list[dict[str, Any]]:
        """Return the fields that have columns: name and type."""
        return [{"name": name, "type": kind, "indexed": True} for name, kind in KINDS.items()]

    def cache_directories(self) -> list[Path]:
        """Return where the files are."""
        return self._catalog.cache_directories()

    def _answer(self, find: _Find, query: Query) -> Any:
        import duckdb

        given = {name: value for name, value in query.items() if value is not None}
        try:
            return self._found(find, given)
        except duckdb.Error:
            # A file was removed or damaged meanwhile, or rows in memory have become a file.
            self._catalog.inspect()
            return self._found(find, given)

    def _found(self, find: _Find, given: Query) -> Any:
        with self._connection.cursor() as cursor:
            return find(cursor, given, self._catalog.snapshot)
