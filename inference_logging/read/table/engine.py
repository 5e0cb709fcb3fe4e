"""DuckDB as this package uses it: in memory, without downloads and settings from outside, with little memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from inference_logging.errors import MissingExtraError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def connected(extra: str = "view") -> DuckDBPyConnection:
    """Open a database in memory that downloads nothing, has times in UTC, and writes no progress among the rows.

    Raises ``MissingExtraError``.
    """
    try:
        import duckdb
    except ImportError:
        raise MissingExtraError(extra, "duckdb", extra) from None
    connection = duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"})
    connection.execute("SET TimeZone = 'UTC'")
    # In an interactive Python it goes to the standard output after two seconds.
    connection.execute("SET enable_progress_bar = false")
    return connection


def name(text: str) -> str:
    """Return a name as SQL has it."""
    return '"' + text.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return a text as SQL has it; it must not have NUL."""
    return "'" + value.replace("'", "''") + "'"


def texts(values: Iterable[str]) -> str:
    """Return a list of texts as SQL has it."""
    return f"[{', '.join(map(text, values))}]"
