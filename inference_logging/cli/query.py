"""`inference-logging query`: SQL over the segments of a directory, by DuckDB, in this process and read-only.

The tables are views over the files. `records` has a column for every field that occurs anywhere. `requests` and `logs`
have the fields of their event, also those that no record has yet. Statements are limited twice: only SELECT runs, and
the engine may open the segments and nothing else.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import click

from inference_logging._native import request_fields
from inference_logging.cli.examples import examples
from inference_logging.cli.main import USAGE
from inference_logging.cli.options import Place, of_segments
from inference_logging.cli.terminal import as_json, safe
from inference_logging.errors import MissingExtraError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_IS_RECORD: Final = "(event_name NOT IN ('segment.header', 'segment.footer') OR pid IS NOT NULL)"
"""Headers and footers name no process."""

HEAD: Final = {
    "timestamp": "TIMESTAMP", "severity_text": "VARCHAR", "event_name": "VARCHAR", "boot_id": "VARCHAR",
    "pid": "BIGINT", "seq": "UBIGINT", "trace_id": "VARCHAR", "span_id": "VARCHAR", "parent_span_id": "VARCHAR",
    "trace_flags": "VARCHAR",
}  # fmt: skip
"""The columns at the beginning of every record: name and type."""

LOGS: Final = {"logger": "VARCHAR", "message": "VARCHAR", "request_id": "VARCHAR", "attributes": "JSON"}
"""The columns that application records add."""

REQUESTS: Final = {
    **{name: column for name, column, _ in request_fields() if column},
    "gen_ai.request.model": "VARCHAR", "gen_ai.request.stream": "BOOLEAN", "gen_ai.request.max_tokens": "BIGINT",
    "gen_ai.request.temperature": "DOUBLE", "gen_ai.request.top_p": "DOUBLE", "gen_ai.request.top_k": "DOUBLE",
    "gen_ai.request.seed": "BIGINT", "gen_ai.request.choice.count": "BIGINT", "gen_ai.response.id": "VARCHAR",
    "gen_ai.response.model": "VARCHAR", "gen_ai.response.finish_reasons": "VARCHAR[]",
    "gen_ai.usage.reasoning.output_tokens": "BIGINT", "gen_ai.response.time_per_output_token": "DOUBLE",
    "gen_ai.response.output_tokens_per_second": "DOUBLE",
    **dict.fromkeys(
        ("tenant.id", "enduser.id", "gen_ai.conversation.id", "api_key.hash", "user_agent.original", "server.address",
         "gen_ai.provider.name", "gen_ai.output.type", "openai.request.user", "openai.request.metadata",
         "openai.request.prompt_cache_key", "openai.request.safety_identifier", "http.request.body"), "VARCHAR"),
    "http.request.body.truncated": "BOOLEAN", "gen_ai.request.frequency_penalty": "DOUBLE",
    "gen_ai.request.presence_penalty": "DOUBLE", "gen_ai.request.stop_sequences": "VARCHAR[]",
    "gen_ai.tool.definitions": "JSON", "gen_ai.usage.cache_creation.input_tokens": "BIGINT",
    "gen_ai.usage.audio.input_tokens": "BIGINT", "gen_ai.usage.image.input_tokens": "BIGINT",
    "gen_ai.usage.audio.output_tokens": "BIGINT",
}  # fmt: skip
"""The columns that request records add: from the server or the listener, which reads bodies and derives values."""

_LARGEST_LINE_BYTES: Final = 64 << 20
_ROWS_AT_ONCE: Final = 1000
_WITH_ZONE: Final = "TIMESTAMP WITH TIME ZONE"

Rows = Iterable[tuple[Any, ...]]


class WrongStatementError(click.ClickException):
    """A statement that is wrong, or names an unknown column or table."""

    exit_code = USAGE


@click.command(
    "query",
    epilog=examples(
        """inference-logging query 'SELECT outcome, count(*), median(duration_s) FROM requests GROUP BY outcome'""",
        """inference-logging query --format csv 'SELECT "http.route", duration_s FROM requests' logs > durations.csv""",
        """inference-logging query "SELECT timestamp, message, attributes->>'n' AS n FROM logs" --format json""",
        """echo 'SELECT event_name, count(*) AS records FROM records GROUP BY ALL' | inference-logging query -""",
        """inference-logging query 'DESCRIBE requests'""",
    ),
)
@click.argument("sql")
@of_segments
@click.option(
    "--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True,
    help="json: one object per line.",
)  # fmt: skip
def command(sql: str, place: Place, form: str) -> None:
    """Run one SELECT over the segments of DIRECTORY (default: the configured one).

    SQL of - is read from standard input. Tables: `requests`, `logs` (application records) and `records` (all, with
    every field that occurs). Names with dots stand in double quotes: "http.route". Plain and compressed segments are
    read, also while they are written. Needs DuckDB (extra `query`).
    """
    connection = _connect([str(segment.path) for segment in place.segments()])
    import duckdb

    try:
        statements = duckdb.extract_statements(sys.stdin.read() if sql == "-" else sql)
        if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
            raise click.UsageError("SQL must be one SELECT: segments are only read")
        answer = connection.execute(statements[0])
        names = [column[0] for column in answer.description or ()]
        types = [str(column[1]) for column in answer.description or ()]
        if any(_WITH_ZONE in kind for kind in types):
            answer = connection.execute(_in_utc(statements[0].query, types))
        nested = [kind == "JSON" for kind in types]
        rows = chain.from_iterable(iter(lambda: answer.fetchmany(_ROWS_AT_ONCE), []))
        _FORMS[form](names, (_parsed(row, nested) for row in rows) if any(nested) else rows)
    except duckdb.Error as error:
        # The engine marks the place on a line of its own.
        words = "\n".join(map(safe, str(error).splitlines()))
        # An error before the engine reads anything is a wrong command line: unknown names, wrong syntax.
        is_wrong = isinstance(error, duckdb.ParserException | duckdb.BinderException | duckdb.CatalogException)
        raise (WrongStatementError if is_wrong else click.ClickException)(words) from None


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
    return tuple(json.loads(value) if is_json and value is not None else value for value, is_json in pairs)


def _connect(paths: list[str]) -> DuckDBPyConnection:
    """Open a database in memory that has the views, and can open these files and nothing else."""
    try:
        import duckdb
    except ImportError:
        raise MissingExtraError("query", "duckdb", "query") from None
    connection = duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"})
    connection.execute("SET TimeZone = 'UTC'")
    known = {**HEAD, **LOGS, **REQUESTS}
    _view(connection, "records", paths, {**known, **_found(connection, paths, known)})
    _view(connection, "requests", paths, {**HEAD, **REQUESTS}, "request")
    _view(connection, "logs", paths, {**HEAD, **LOGS}, "log")
    connection.execute(f"SET allowed_paths = {_list(paths)}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _found(connection: DuckDBPyConnection, paths: list[str], known: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that occur in the files besides the known ones, with the types that fit all their values."""
    if not paths:
        return {}
    connection.execute(f"DESCRIBE SELECT * FROM {_source(paths, 'sample_size = -1, union_by_name = true')}")
    # Column names must differ by more than case.
    names = {name.lower() for name in known}
    return {row[0]: _without_zone(row[1]) for row in connection.fetchall() if row[0].lower() not in names}


def _view(
    connection: DuckDBPyConnection, name: str, paths: list[str], columns: Mapping[str, str], event: str | None = None
) -> None:
    if not paths:
        nothing = ", ".join(f"NULL::{kind} AS {_name(column)}" for column, kind in columns.items())
        connection.execute(f"CREATE VIEW {name} AS SELECT {nothing} WHERE false")
        return
    types = ", ".join(f"{_name(column)}: {_text(kind)}" for column, kind in columns.items())
    condition = f"event_name = {_text(event)}" if event else _IS_RECORD
    source = _source(paths, f"columns = {{{types}}}")
    connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {source} WHERE {condition}")


def _source(paths: list[str], options: str) -> str:
    # A live segment can end within a line; a line that is no JSON is left out.
    return (
        f"read_json({_list(paths)}, format = 'newline_delimited', ignore_errors = true, "
        f"maximum_object_size = {_LARGEST_LINE_BYTES}, {options})"
    )


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, texts))}]"


def _write_table(names: list[str], rows: Rows) -> None:
    """Write columns as wide as the first rows need, with numbers to the right."""
    rows = iter(rows)
    first = list(islice(rows, _ROWS_AT_ONCE))
    cells = [[_cell(value) for value in row] for row in first]
    heads = [safe(name) for name in names]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    numeric = [any(_is_number(value) for value in column) for column in zip(*first, strict=True)] or [False] * len(
        names
    )
    for line in chain([heads, ["─" * width for width in widths]], cells, ([_cell(v) for v in row] for row in rows)):
        padded = zip(line, widths, numeric, strict=True)
        click.echo("  ".join(f"{cell:>{w}}" if right else f"{cell:<{w}}" for cell, w, right in padded).rstrip())


def _write_csv(names: list[str], rows: Rows) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    shown: Callable[[Any], Any] = safe if sys.stdout.isatty() else str
    writer.writerow(map(shown, names))
    for row in rows:
        writer.writerow("" if value is None else shown(_word(value)) for value in row)


def _write_json(names: list[str], rows: Rows) -> None:
    for row in rows:
        click.echo(as_json({name: _plain(value) for name, value in zip(names, row, strict=True)}))


_FORMS: Final = {"table": _write_table, "csv": _write_csv, "json": _write_json}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    return safe("" if value is None else _word(value))


def _word(value: Any) -> str:
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """Return a value as JSON types; a time is UTC, as in records."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return f"{value.isoformat()}Z"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, int) and abs(value) >= 1 << 63:
        return float(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)
