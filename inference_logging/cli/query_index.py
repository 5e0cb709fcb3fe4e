"""The index under `query`: where a statement names only indexed columns, the engine reads these and not the lines.

The columns are written as CSV into a temporary folder. The engine has them as views of the same names and types, and
reads nothing else. It is all or nothing: a statement that could see another column (a star, a whole row, a join by
all common names), a record of an unusual form or a column with too many values leaves everything to the lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from inference_logging._native import SegmentIndex
from inference_logging.cli.query_engine import connected
from inference_logging.read.segments import Segment
from inference_logging.read.segments.columns import HEAD, LOGS, REQUESTS, RESOURCE

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LEAST_BYTES: Final = 64 << 20
"""Fewer bytes of segments are read as lines: that takes less time than a look at the index."""

_ROUND_S: Final = 10.0
_EVENTS: Final[dict[str, str | None]] = {"requests": "request", "logs": "log", "records": None}
_TYPES: Final = {**HEAD, **LOGS, **REQUESTS, **RESOURCE}
_OF_TABLES: Final = {
    "requests": {**HEAD, **REQUESTS, **RESOURCE},
    "logs": {**HEAD, **LOGS, **RESOURCE},
    "records": _TYPES,
}
_INDEXED: Final = frozenset(field["name"] for field in json.loads(SegmentIndex.fields())) & frozenset(_TYPES)
_SOURCES: Final = frozenset({"BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY"})
"""Sources of rows that do not look into the catalogue, as DESCRIBE and table functions do."""
_FURTHER: Final = "a column that no statement names"


class _TooMuchError(Exception):
    """The statement may need more than the index has."""


def connect(sql: str, segments: Sequence[Segment], folder: Path) -> DuckDBPyConnection | None:
    """Open a database whose views have the columns that a statement names; None if the lines are needed.

    ``folder`` takes the files, and must stay as long as the connection.
    """
    import duckdb

    if sum(segment.size_bytes() for segment in segments) < LEAST_BYTES:
        return None
    try:
        tables = _tables(sql)
        columns = {table: _columns(table, sql) for table in tables}
        # A statement that sees more than these columns has another plan where there are more.
        more = {table: [_FURTHER, *reversed(names)] for table, names in columns.items()}
        if _plan(sql, columns) != _plan(sql, more):
            return None
        index = _index(segments)
        files = {table: folder / f"{table}.csv" for table in tables}
        for table, file in files.items():
            index.export(columns[table], _EVENTS[table], file)
    except (_TooMuchError, duckdb.Error, ValueError, OSError):
        return None  # the lines have it all, and say what is wrong
    connection = connected()
    for table, file in files.items():
        _view(connection, table, columns[table], file)
    paths = ", ".join(_text(str(file)) for file in files.values())
    connection.execute(f"SET allowed_paths = [{paths}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _index(segments: Sequence[Segment]) -> SegmentIndex:
    """Return an index of these segments that is complete."""
    directories = sorted({segment.path.parent for segment in segments})
    index = SegmentIndex(directories, sorted({segment.prefix for segment in segments}), None)
    indexed = -1
    while True:
        progress = json.loads(index.refresh(_ROUND_S))
        if progress["done"] and progress["segments"] == len(segments):
            return index
        if progress["done"] or progress["indexed_bytes"] == indexed:
            raise _TooMuchError
        indexed = progress["indexed_bytes"]


def _columns(table: str, sql: str) -> list[str]:
    """Return the indexed columns of a table whose names stand in the statement, wherever."""
    lower = sql.lower()
    # A table without a column would have no rows.
    return sorted(name for name in _INDEXED & _OF_TABLES[table].keys() if name in lower) or ["event_name"]


def _plan(sql: str, columns: Mapping[str, Sequence[str]]) -> object:
    """Return the plan of the statement over tables with these columns. Raises ``duckdb.Error`` if it needs others."""
    import duckdb

    with duckdb.connect(":memory:") as connection:
        for table, names in columns.items():
            declared = ", ".join(f"{_name(name)} {_OF_TABLES[table].get(name, 'VARCHAR')}" for name in names)
            connection.execute(f"CREATE TABLE {table} ({declared})")
        return connection.execute(f"EXPLAIN {sql}").fetchall()


def _view(connection: DuckDBPyConnection, table: str, columns: Sequence[str], file: Path) -> None:
    declared = ", ".join(f"{_text(name)}: {_text(_OF_TABLES[table][name])}" for name in columns)
    connection.execute(
        f"CREATE VIEW {table} AS SELECT * FROM read_csv({_text(str(file))}, auto_detect = false, header = false, "
        f"""delim = ',', quote = '"', escape = '"', nullstr = '', allow_quoted_nulls = false, """
        f"columns = {{{declared}}})"
    )


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _tables(sql: str) -> list[str]:
    """Return the tables that a statement reads; raise if it reads anything else."""
    import duckdb

    with duckdb.connect(":memory:") as connection:
        answer = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    tree = json.loads(answer[0]) if answer else {"error": True}
    if tree["error"]:
        raise _TooMuchError
    nodes = list(_nodes(tree["statements"]))
    named = {node["table_name"].lower() for node in nodes if "table_name" in node}
    named -= {str(node["key"]).lower() for node in nodes if node.keys() == {"key", "value"}}  # of WITH
    sources = {node["type"] for node in nodes if "sample" in node and "alias" in node and "class" not in node}
    if not named or not named <= _EVENTS.keys() or not sources <= _SOURCES:
        raise _TooMuchError
    return sorted(named)


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for inner in tree:
            yield from _nodes(inner)
