"""The table under `query`: where a statement names only columns that it has, the engine reads these and not the lines.

The views have the same columns, types and rows as those over the lines. It is all or nothing: a statement that could
see another column (a star, a whole row, a join by all common names) leaves everything to the lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from inference_logging.read.segments import Segment
from inference_logging.read.segments.columns import EVENTS, RESOURCE, TABLES
from inference_logging.read.table.catalog import Catalog, Entry, IncompleteError
from inference_logging.read.table.columns import KINDS, TIMESTAMP
from inference_logging.read.table.engine import connected, name, restrict, text
from inference_logging.read.table.search import source

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_OF_TABLES: Final = {table: {**columns, **RESOURCE} for table, columns in TABLES.items()}
_TYPES: Final = _OF_TABLES["records"]
_COLUMNS: Final = KINDS.keys() & _TYPES.keys()
_SOURCES: Final = frozenset({"BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY"})
"""Sources of rows that do not look into the catalogue, as DESCRIBE and table functions do."""
_FURTHER: Final = "a column that no statement names"


class _TooMuchError(Exception):
    """The statement may need more than the table has."""


def connect(sql: str, segments: Sequence[Segment]) -> DuckDBPyConnection | None:
    """Open a database whose views have the columns that a statement names; None if the lines are needed."""
    import duckdb

    connection = connected("query")
    try:
        tables = _tables(sql)
        columns = {table: _named(table, sql) for table in tables}
        # A statement that sees more than these columns has another plan where there are more.
        more = {table: [_FURTHER, *reversed(names)] for table, names in columns.items()}
        if _plan(sql, columns) != _plan(sql, more):
            return None
        entries = Catalog.of(connection, segments).snapshot
        if len(entries) != len(segments):
            raise _TooMuchError
        needed = sorted({column for names in columns.values() for column in names} | {"event_name"})
        _add_odd(connection, entries, needed)
        for table, names in columns.items():
            _view(connection, table, names, entries)
    except (_TooMuchError, IncompleteError, duckdb.Error, ValueError, OSError):
        return None  # the lines have it all, and say what is wrong
    restrict(connection, [str(entry.file) for entry in entries if entry.file is not None])
    return connection


def _add_odd(connection: DuckDBPyConnection, entries: Sequence[Entry], columns: Sequence[str]) -> None:
    """Make the table of records whose values the columns do not have exactly: as far as their lines have them."""
    declared = {column: _TYPES[column] for column in columns}
    types = ", ".join(f"{name(column)} {kind}" for column, kind in declared.items())
    connection.execute(f"CREATE TABLE odd_records ({types})")
    structure = text(json.dumps({column: kind for column, kind in declared.items() if column not in RESOURCE}))
    for entry in entries:
        lines = _odd_lines(connection, entry)
        if not lines or entry.facts is None:
            continue
        given = {column: entry.facts.resource.get(column) for column in columns if column in RESOURCE}
        members = ", ".join(
            (text(given[column] or "") if given[column] is not None else "NULL")
            if column in given
            else f"found.{name(column)}"
            for column in columns
        )
        connection.execute(
            f"INSERT INTO odd_records SELECT {members} FROM "
            f"(SELECT from_json(unnest($lines::VARCHAR[]), {structure}) AS found)",
            {"lines": lines},
        )


def _odd_lines(connection: DuckDBPyConnection, entry: Entry) -> list[str]:
    if entry.facts is None or not entry.facts.odd:
        return []
    places = connection.execute(
        f'SELECT "offset", length FROM {source([entry], "offset length")} WHERE odd ORDER BY "offset"'
    ).fetchall()
    opened = entry.open()
    if opened is None:
        raise _TooMuchError
    with opened:
        return [line.decode() for line in opened.at(places) if line is not None]


def _named(table: str, sql: str) -> list[str]:
    """Return the columns of a table whose names stand in the statement, wherever."""
    lower = sql.lower()
    # A table without a column would have no rows.
    return sorted(column for column in _COLUMNS & _OF_TABLES[table].keys() if column in lower) or ["event_name"]


def _plan(sql: str, columns: Mapping[str, Sequence[str]]) -> object:
    """Return plan and columns of the statement over tables with these columns.

    Raises ``duckdb.Error`` if it needs others.
    """
    import duckdb

    with duckdb.connect(":memory:") as connection:
        # Else a condition on tables without rows leaves no plan that could differ.
        connection.execute("SET disabled_optimizers = 'statistics_propagation,empty_result_pullup'")
        for table, names in columns.items():
            declared = ", ".join(f"{name(column)} {_OF_TABLES[table].get(column, 'VARCHAR')}" for column in names)
            connection.execute(f"CREATE TABLE {table} ({declared})")
        return connection.execute(f"EXPLAIN {sql}").fetchall(), connection.execute(sql).description


def _view(connection: DuckDBPyConnection, table: str, columns: Sequence[str], entries: Sequence[Entry]) -> None:
    event = EVENTS[table]
    condition = "true" if event is None else f"event_name = {text(event)}"
    exact = ", ".join(
        f"CAST({name(column)} AS {_TYPES[column]}) AS {name(column)}" if column == TIMESTAMP else name(column)
        for column in columns
    )
    connection.execute(
        f"CREATE VIEW {table} AS SELECT {exact} FROM {source(entries, exact + condition)} "
        f"WHERE NOT odd AND {condition} "
        f"UNION ALL SELECT {', '.join(map(name, columns))} FROM odd_records WHERE {condition}"
    )


def named_tables(sql: str) -> set[str]:
    """Return the tables that a statement names, in lower case; none if DuckDB has no tree of it."""
    return _named_tables(_parsed(sql))


def _parsed(sql: str) -> list[Mapping[str, Any]]:
    """Return all nodes of a statement's tree."""
    import duckdb

    with duckdb.connect(":memory:") as connection:
        answer = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    return list(_nodes(json.loads(answer[0]).get("statements"))) if answer else []


def _named_tables(nodes: Sequence[Mapping[str, Any]]) -> set[str]:
    named = {node["table_name"].lower() for node in nodes if "table_name" in node}
    return named - {str(node["key"]).lower() for node in nodes if node.keys() == {"key", "value"}}  # of WITH


def _tables(sql: str) -> list[str]:
    """Return the tables that a statement reads; raise if it reads anything else."""
    nodes = _parsed(sql)
    named = _named_tables(nodes)
    sources = {node["type"] for node in nodes if "sample" in node and "alias" in node and "class" not in node}
    # COLUMNS('…') and * LIKE '…' choose among all columns by their names, and may choose none that is not named here.
    stars = sum(node.get("class") == "STAR" for node in nodes)
    plain = sum(one["class"] == "STAR" and not one["columns"] for node in nodes for one in node.get("select_list", ()))
    plain += sum(one["expression"]["class"] == "STAR" for node in nodes for one in node.get("orders", ()))  # BY ALL
    if stars > plain or not named or not named <= EVENTS.keys() or not sources <= _SOURCES:
        raise _TooMuchError
    return sorted(named)


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for inner in tree:
            yield from _nodes(inner)
