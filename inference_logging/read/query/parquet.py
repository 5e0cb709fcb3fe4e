"""The tables of `query` over Parquet files that `ship --to 's3://…?format=parquet'` has written.

They have the same columns as over segments. Fields without a column of their own are in ``other``, as JSON.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from inference_logging.read.segments.columns import EVENTS, RESOURCE, TABLES
from inference_logging.read.segments.rows import OTHER
from inference_logging.read.table.engine import connected, name, restrict, text, texts

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def connect(tables: Sequence[Path], services: Collection[str] | None) -> DuckDBPyConnection:
    """Open a database in memory that has the views, and can open these files and nothing else."""
    paths = [str(path) for path in tables]
    connection = connected()
    source = f"read_parquet({texts(paths)}, union_by_name = true)"
    chosen = f'"service.name" IN ({", ".join(map(text, services))})' if services else "true"
    for table, columns in TABLES.items():
        events = f"event_name = '{EVENTS[table]}'" if EVENTS[table] is not None else "true"
        names = ", ".join(map(name, [*columns, *RESOURCE, OTHER]))
        connection.execute(f"CREATE VIEW {table} AS SELECT {names} FROM {source} WHERE {events} AND {chosen}")
    restrict(connection, paths)
    return connection
