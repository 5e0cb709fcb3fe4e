"""The tables of `query` over Parquet files that `ship --to 's3://…?format=parquet'` has written.

They have the same columns as over segments. Fields without a column of their own are in ``other``, as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from inference_logging.cli.options import Place
from inference_logging.read.segments import segments
from inference_logging.read.segments.columns import EVENTS, RESOURCE, TABLES
from inference_logging.read.segments.rows import OTHER
from inference_logging.read.table.engine import connected, name, text, texts

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def connect(tables: Sequence[Path], place: Place) -> DuckDBPyConnection:
    """Open a database in memory that has the views, and can open these files and nothing else.

    Raises ``UsageError`` where segments lie beside them: one statement reads one form.
    """
    if segments(place.path):
        raise click.UsageError(f"{place.path}: both segments and Parquet files: ask for one, by ?format=")
    paths = [str(path) for path in tables]
    connection = connected()
    source = f"read_parquet({texts(paths)}, union_by_name = true)"
    services = f'"service.name" IN {_tuple(place.prefixes)}' if place.prefixes else "true"
    for table, columns in TABLES.items():
        events = f"event_name = '{EVENTS[table]}'" if EVENTS[table] is not None else "true"
        names = ", ".join(map(name, [*columns, *RESOURCE, OTHER]))
        connection.execute(f"CREATE VIEW {table} AS SELECT {names} FROM {source} WHERE {events} AND {services}")
    connection.execute(f"SET allowed_paths = {texts(paths)}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _tuple(values: Iterable[str]) -> str:
    return f"({', '.join(map(text, values))})"
