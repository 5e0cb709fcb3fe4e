"""DuckDB as `query` uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def connected() -> DuckDBPyConnection:
    """Open a database in memory that downloads nothing, has times in UTC, and writes no progress among the rows."""
    import duckdb

    connection = duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"})
    connection.execute("SET TimeZone = 'UTC'")
    # In an interactive Python it goes to the standard output after two seconds.
    connection.execute("SET enable_progress_bar = false")
    return connection
