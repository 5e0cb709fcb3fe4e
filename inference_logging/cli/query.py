"""`inference-logging query`: SQL over the segments of a directory, by DuckDB, in this process and read-only.

The tables are views over the files. `records` has a column for every field that occurs anywhere. `requests` and `logs`
have the fields of their event, also those that no record has yet. Each row has the resource (service, pod, node, host)
that the header of its segment names. Statements are limited twice: only SELECT runs, and the engine may open the
segments and nothing else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from inference_logging.cli import query_names, query_parquet, query_table, query_types
from inference_logging.cli.examples import examples
from inference_logging.cli.main import USAGE
from inference_logging.cli.options import SEGMENTS, Place, of_segments
from inference_logging.cli.query_rows import FORMS, ROWS_AT_ONCE
from inference_logging.cli.questions import QUESTIONS
from inference_logging.errors import MissingExtraError
from inference_logging.read.segments import Segment, read_segment
from inference_logging.read.segments.columns import RESOURCE, TABLES
from inference_logging.read.table.engine import connected
from inference_logging.read.table.engine import name as quoted
from inference_logging.read.table.engine import text as literal
from inference_logging.read.table.engine import texts as literals
from inference_logging.read.terminal import safe

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, Statement

_IS_RECORD: Final = "(event_name NOT IN ('segment.header', 'segment.footer') OR pid IS NOT NULL)"
"""Headers and footers name no process."""

_HEADERS: Final = "http.request.header."
"""The beginning of the names of recorded headers, which the configuration chooses."""

_LARGEST_LINE_BYTES: Final = 64 << 20
_BUFFER_BYTES: Final = 2 * _LARGEST_LINE_BYTES
"""What the engine keeps for each file whose fields it finds, until it has them of all files that it was given."""
_MOST_AT_ONCE: Final = 32
_UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_WITH_ZONE: Final = "TIMESTAMP WITH TIME ZONE"


class WrongStatementError(click.ClickException):
    """A statement that is wrong, or names an unknown column or table."""

    exit_code = USAGE


class _Command(click.Command):
    """With `--example` no SQL is given, so the one argument is the directory."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line."""
        rest = super().parse_args(ctx, args)
        given = ctx.params
        if given["example"] is None:
            if given["sql"] is None and not ctx.resilient_parsing:
                raise click.UsageError("SQL, or --example with one of its names, must be given", ctx)
        elif given["directory"] is not None:
            raise click.UsageError("--example has its own SQL: only DIRECTORY can be given with it", ctx)
        elif given["sql"] is not None:
            given["directory"], given["sql"] = SEGMENTS.convert(given["sql"], None, ctx), None
        return rest


@click.command(
    "query",
    cls=_Command,
    epilog=examples(
        """inference-logging query 'SELECT outcome, count(*), median(duration_s) FROM requests GROUP BY outcome'""",
        """inference-logging query --format csv 'SELECT "http.route", duration_s FROM requests' logs > durations.csv""",
        """inference-logging query "SELECT timestamp, message, attributes->>'n' AS n FROM logs" --format json""",
        """echo 'SELECT event_name, count(*) AS records FROM records GROUP BY ALL' | inference-logging query -""",
        """inference-logging query 'DESCRIBE requests'""",
        """inference-logging query --example list""",
        """inference-logging query --example slow-tenants logs""",
        """inference-logging query --example slowest-pods --show-sql""",
        """inference-logging query --example slowest-pods --dialect clickhouse""",
    ),
)
@click.argument("sql", required=False)
@of_segments
@click.option(
    "--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True,
    help="json: one object per line.",
)  # fmt: skip
@click.option(
    "--example", type=click.Choice(["list", *QUESTIONS]), metavar="NAME",
    help=f"Ask a ready-made question instead: {', '.join(QUESTIONS)}; list describes them.",
)  # fmt: skip
@click.option("--show-sql", is_flag=True, help="Print the SQL of --example instead of running it.")
@click.option(
    "--dialect", type=click.Choice(["duckdb", "clickhouse"]), default="duckdb", show_default=True,
    help="clickhouse: print --example for a database that `ship --to clickhouse+http://…` fills.",
)  # fmt: skip
@click.option("--no-index", is_flag=True, help="Read the lines of all segments, even if the table would do.")
def command(
    sql: str | None, place: Place, form: str, example: str | None, show_sql: bool, dialect: str, no_index: bool
) -> None:
    """Run one SELECT over the segments of DIRECTORY (default: the configured one).

    SQL of - is read from standard input. Tables: `requests`, `logs` (application records) and `records` (all, with
    every field that occurs). Put names with dots in double quotes: "http.route", "k8s.pod.name". Plain and compressed
    segments are read, also while they are written. Needs DuckDB (extra `query`).

    DIRECTORY can be s3://bucket/prefix (extra `s3`), with ?service=, date=, hour= and pod= for some of its objects:
    they are brought into a cache and compared with their manifests. Parquet files have the same tables.

    A statement that names only columns of the table that `view` reads is answered from the table, which is kept for
    64 MB of segments or more (see `index`).
    """
    if example == "list":
        click.echo("\n".join(f"{name:<20} {question.summary}" for name, question in QUESTIONS.items()))
        return
    is_foreign = dialect == "clickhouse"
    if is_foreign and example is None:
        raise click.UsageError("--dialect is for --example: this command asks DuckDB")
    if example is not None:
        sql = QUESTIONS[example].clickhouse if is_foreign else QUESTIONS[example].sql
    if show_sql or is_foreign:
        click.echo(sql)
        return
    tables = place.tables()
    segments = place.segments() if not tables else []
    try:
        import duckdb
    except ImportError:
        raise MissingExtraError("query", "duckdb", "query") from None

    text = sys.stdin.read() if sql == "-" else sql or ""
    try:
        statements = duckdb.extract_statements(text)
        if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
            raise click.UsageError("SQL must be one SELECT: segments are only read")
        if tables:
            _answer(query_parquet.connect(tables, place), statements[0], form)
            return
        of_lines = no_index or not place.path.is_dir()
        table = None if of_lines else query_table.connect(statements[0].query, segments)
        _answer(table or _connect(segments), statements[0], form)
    except duckdb.Error as error:
        # The engine marks the place on a line of its own.
        words = "\n".join(map(safe, [*str(error).splitlines(), *query_names.hints(text, str(error))]))
        # An error before the engine reads anything is a wrong command line: unknown names, wrong syntax.
        is_wrong = isinstance(error, duckdb.ParserException | duckdb.BinderException | duckdb.CatalogException)
        raise (WrongStatementError if is_wrong else click.ClickException)(words) from None


def _answer(connection: DuckDBPyConnection, statement: Statement, form: str) -> None:
    """Run the statement and write its rows."""
    answer = connection.execute(statement)
    names = [column[0] for column in answer.description or ()]
    types = [str(column[1]) for column in answer.description or ()]
    if any(_WITH_ZONE in kind for kind in types):
        answer = connection.execute(_in_utc(statement.query, types))
    nested = [kind == "JSON" for kind in types]
    rows = chain.from_iterable(iter(lambda: answer.fetchmany(ROWS_AT_ONCE), []))
    first = list(islice(rows, 1))
    rows = chain(first, rows)
    FORMS[form](names, (_parsed(row, nested) for row in rows) if any(nested) else rows)
    if not first:
        click.echo(f"inference-logging query: no rows: {_why_nothing(connection, statement.query)}", err=True)


def _why_nothing(connection: DuckDBPyConnection, sql: str) -> str:
    read = query_table.named_tables(sql)
    counts = {
        table: connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
        for table in query_names.TABLES
        if table in read
    }
    return query_names.why_no_rows(sql, counts)


def _in_utc(sql: str, types: Sequence[str]) -> str:
    """Return the statement with its times of a zone as times of UTC: for the others DuckDB needs pytz."""
    columns = [f"c{number}" for number in range(len(types))]
    casts = (f"CAST({name} AS {_without_zone(kind)})" for name, kind in zip(columns, types, strict=True))
    # A statement that ends with a comment needs a new line, and a subquery takes no semicolon.
    return f"SELECT {', '.join(casts)} FROM ({sql.strip().rstrip(';')}\n) AS answer({', '.join(columns)})"


def _without_zone(kind: str) -> str:
    return kind.replace(_WITH_ZONE, "TIMESTAMP")


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


def _connect(segments: Sequence[Segment]) -> DuckDBPyConnection:
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
    connection.execute(f"SET allowed_paths = {literals(paths)}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
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
    header = next(read_segment(segment, framing=True, on_corrupt=_ignore), {})
    resource = header.get("resource") if header.get("event_name") == "segment.header" else None
    return resource if isinstance(resource, dict) else {}


def _ignore(_error: object) -> None:
    pass


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
            of_both = before if before == kind else query_types.common(duckdb.sqltype(before), duckdb.sqltype(kind))
            found[name.lower()] = spelled, of_both
    return {name: _without_zone(kind) for key, (name, kind) in found.items() if key not in names}


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
        records = read_segment(segment, framing=True, on_corrupt=_ignore) if segment else ()
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
