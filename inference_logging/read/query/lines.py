"""The tables of `query` as views over the lines of segments, or over Parquet files of `ship --to 's3://…?format=parquet'`.

`records` has a column for every field that occurs anywhere. `requests` and `logs` have the fields of their event, also
those that no record has yet. Each row has the resource (service, pod, node, host) of its segment's header. Over Parquet
files the columns are the same, and fields without a column of their own are in ``other``, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from inference_logging.read.segments import Segment, read_segment
from inference_logging.read.segments.columns import EVENTS, OTHER, RESOURCE, TABLES
from inference_logging.read.segments.reading import header_of
from inference_logging.read.table.engine import connected, restrict
from inference_logging.read.table.engine import name as quoted
from inference_logging.read.table.engine import text as literal
from inference_logging.read.table.engine import texts as literals

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, Statement
    from duckdb.sqltypes import DuckDBPyType

_IS_RECORD: Final = "(event_name NOT IN ('segment.header', 'segment.footer') OR pid IS NOT NULL)"
"""Headers and footers name no process."""

_HEADERS: Final = "http.request.header."
"""The beginning of the names of recorded headers, which the configuration chooses."""

_LARGEST_LINE_BYTES: Final = 64 << 20
_BUFFER_BYTES: Final = 2 * _LARGEST_LINE_BYTES
"""What the engine keeps for each file whose fields it finds, until it has them of all files that it was given."""
_MOST_AT_ONCE: Final = 32
_UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_NUMBERS: Final = ("BIGINT", "UBIGINT", "HUGEINT", "DOUBLE")
"""Each takes those before it."""
_TEXTS: Final = ("VARCHAR", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "UUID")
"""What the engine makes of texts, where all values have such a form."""
_ROWS_AT_ONCE: Final = 1000
_NOTHING: Final = '"NULL"'

Rows = Iterable[tuple[Any, ...]]


def connect(segments: Sequence[Segment]) -> DuckDBPyConnection:
    """Open a database in memory that has the views, and can open these files and nothing else."""
    paths = [str(segment.path) for segment in segments]
    connection = connected()
    within = _buffers_within(connection)
    # Each thread has a buffer of its own.
    threads = connection.execute("SELECT current_setting('threads')").fetchall()[0][0]
    connection.execute(f"SET threads = {min(threads, within)}")
    known = TABLES["records"]
    found = _found(connection, paths, {**known, **RESOURCE}, min(within, _MOST_AT_ONCE))
    headers = {name: kind for name, kind in found.items() if name.startswith(_HEADERS)}
    _add_resources(connection, segments)
    _view(connection, "records", paths, {**known, **found})
    _view(connection, "requests", paths, {**TABLES["requests"], **headers}, "request")
    _view(connection, "logs", paths, TABLES["logs"], "log")
    restrict(connection, paths)
    return connection


def _add_resources(connection: DuckDBPyConnection, segments: Sequence[Segment]) -> None:
    """Make the table of the resources that the headers of segments name: one row for each that names one."""
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in RESOURCE.items())
    connection.execute(f"CREATE TABLE segment_resources (filename VARCHAR, {columns})")
    rows = [
        (str(segment.path), *map(resource.get, RESOURCE)) for segment in segments if (resource := _resource(segment))
    ]
    if rows:
        places = ", ".join("?" * (len(RESOURCE) + 1))
        connection.executemany(f"INSERT INTO segment_resources VALUES ({places})", rows)


def _resource(segment: Segment) -> Mapping[str, Any]:
    """Return what the first line of a segment says of its process; nothing where that is no header."""
    resource = header_of(segment).get("resource")
    return resource if isinstance(resource, dict) else {}


def _found(connection: DuckDBPyConnection, paths: list[str], known: Mapping[str, str], at_once: int) -> dict[str, str]:
    """Return the fields that occur in the files besides the known ones, with the types that fit all their values."""
    if not paths:
        return {}
    import duckdb

    # Column names must differ by more than case.
    names = {name.lower() for name in known}
    found: dict[str, tuple[str, str]] = {}
    for at in range(0, len(paths), at_once):
        for name, kind in _described(connection, paths[at : at + at_once]):
            spelled, before = found.get(name.lower(), (name, kind))
            of_both = before if before == kind else common(duckdb.sqltype(before), duckdb.sqltype(kind))
            found[name.lower()] = spelled, of_both
    return {name: without_zone(kind) for key, (name, kind) in found.items() if key not in names}


def _described(connection: DuckDBPyConnection, paths: list[str]) -> list[tuple[str, str]]:
    """Return the fields that occur in some files, with their types."""
    import duckdb

    source = _source(paths, "sample_size = -1, union_by_name = true")
    try:
        found = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    except duckdb.InvalidInputException as error:
        if "maximum_object_size" in str(error):
            raise
        # A line nests deeper than DuckDB looks, which no line of this package does.
        if len(paths) > 1:
            return [field for path in paths for field in _described(connection, [path])]
        segment = Segment.parse(Path(paths[0]))
        records = read_segment(segment, framing=True, on_corrupt=lambda _: None) if segment else ()
        return [(name, "JSON") for name in dict.fromkeys(name for record in records for name in record)]
    return [(name, kind) for name, kind, *_ in found]


def _buffers_within(connection: DuckDBPyConnection) -> int:
    """Return how many buffers half of the engine's memory holds; one at least."""
    amount, unit = connection.execute("SELECT current_setting('memory_limit')").fetchall()[0][0].split()
    return max(1, int(float(amount) * _UNITS.get(unit, 0) / 2 / _BUFFER_BYTES))


def _view(
    connection: DuckDBPyConnection, name: str, paths: list[str], columns: Mapping[str, str], event: str | None = None
) -> None:
    if not paths:
        empty = {**columns, **RESOURCE}
        nothing = ", ".join(f"NULL::{kind} AS {quoted(column)}" for column, kind in empty.items())
        connection.execute(f"CREATE VIEW {name} AS SELECT {nothing} WHERE false")
        return
    types = ", ".join(f"{quoted(column)}: {literal(kind)}" for column, kind in columns.items())
    condition = f"event_name = {literal(event)}" if event else _IS_RECORD
    source = _source(paths, f"filename = true, columns = {{{types}}}")
    connection.execute(
        f"CREATE VIEW {name} AS SELECT * EXCLUDE (filename) FROM {source} "
        f"LEFT JOIN segment_resources USING (filename) WHERE {condition}"
    )


def _source(paths: list[str], options: str) -> str:
    # A live segment can end within a line; a line that is no JSON is left out.
    return (
        f"read_json({literals(paths)}, format = 'newline_delimited', ignore_errors = true, "
        f"maximum_object_size = {_LARGEST_LINE_BYTES}, {options})"
    )


def without_zone(kind: str) -> str:
    """Return a type whose times have no zone."""
    return kind.replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMP")


def common(one: DuckDBPyType, other: DuckDBPyType) -> str:
    """Return the name of the type for the values of both, as DuckDB has it within one file.

    No value is lost by it: types that have nothing in common become JSON.
    """
    first, second = str(one), str(other)
    if first == second or second == _NOTHING:
        return first
    if first == _NOTHING:
        return second
    if first in _NUMBERS and second in _NUMBERS:
        return max(first, second, key=_NUMBERS.index)
    if first in _TEXTS and second in _TEXTS:
        return "VARCHAR"
    if one.id == other.id == "list":
        return f"{common(_children(one)['child'], _children(other)['child'])}[]"
    if one.id == other.id == "struct":
        return _struct(_children(one), _children(other))
    return "JSON"


def _children(kind: DuckDBPyType) -> dict[str, Any]:
    return dict(kind.children)


def _struct(one: Mapping[str, DuckDBPyType], other: Mapping[str, DuckDBPyType]) -> str:
    fields = {name: common(one.get(name, kind), other.get(name, kind)) for name, kind in {**one, **other}.items()}
    return f"STRUCT({', '.join(f'{quoted(name)} {kind}' for name, kind in fields.items())})"


def over_parquet(tables: Sequence[Path], services: Collection[str] | None) -> DuckDBPyConnection:
    """Open a database in memory that has the views, and can open these files and nothing else."""
    paths = [str(path) for path in tables]
    connection = connected()
    source = f"read_parquet({literals(paths)}, union_by_name = true)"
    chosen = f'"service.name" IN ({", ".join(map(literal, services))})' if services else "true"
    for table, columns in TABLES.items():
        events = f"event_name = '{EVENTS[table]}'" if EVENTS[table] is not None else "true"
        names = ", ".join(map(quoted, [*columns, *RESOURCE, OTHER]))
        connection.execute(f"CREATE VIEW {table} AS SELECT {names} FROM {source} WHERE {events} AND {chosen}")
    restrict(connection, paths)
    return connection


def answered(connection: DuckDBPyConnection, statement: Statement) -> tuple[list[str], Rows]:
    """Run a statement; return the names of its columns, and its rows as they come. Raises ``duckdb.Error``."""
    answer = connection.execute(statement)
    names = [column[0] for column in answer.description or ()]
    types = [str(column[1]) for column in answer.description or ()]
    if any(without_zone(kind) != kind for kind in types):
        answer = connection.execute(_in_utc(statement.query, types))
    nested = [kind == "JSON" for kind in types]
    rows = chain.from_iterable(iter(lambda: answer.fetchmany(_ROWS_AT_ONCE), []))
    return names, (_parsed(row, nested) for row in rows) if any(nested) else rows


def _in_utc(sql: str, types: Sequence[str]) -> str:
    """Return the statement with its times of a zone as times of UTC: for the others DuckDB needs pytz."""
    columns = [f"c{number}" for number in range(len(types))]
    casts = (f"CAST({name} AS {without_zone(kind)})" for name, kind in zip(columns, types, strict=True))
    # A statement that ends with a comment needs a new line, and a subquery takes no semicolon.
    return f"SELECT {', '.join(casts)} FROM ({sql.strip().rstrip(';')}\n) AS answer({', '.join(columns)})"


def _parsed(row: tuple[Any, ...], nested: list[bool]) -> tuple[Any, ...]:
    """Return a row in which the values of JSON columns, which come as text, replace that text."""
    pairs = zip(row, nested, strict=True)
    return tuple(_tree(value) if is_json and value is not None else value for value, is_json in pairs)


def _tree(text: str) -> Any:
    """Return the value of JSON, or the text of one that is too deep or has too many digits for Python."""
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return text
