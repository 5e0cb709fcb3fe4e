"""`inference-logging query`: SQL over the segments of a directory, by DuckDB, in this process and read-only.

Statements are limited twice: only SELECT runs, and the engine may open the segments and nothing else.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import click

from inference_logging.cli.main import USAGE
from inference_logging.cli.options import SEGMENTS, Place, examples, of_segments
from inference_logging.errors import MissingExtraError
from inference_logging.read.query import lines, names, table
from inference_logging.read.query.questions import QUESTIONS
from inference_logging.read.segments import segments
from inference_logging.read.terminal import MOST_LEVELS, TOO_DEEP, as_json, safe

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, Statement

    from inference_logging.read.query.lines import Rows

_WIDTHS_BY: Final = 1000
"""Rows by which a table's columns get their widths."""


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
    chosen = place.segments() if not tables else []
    if tables and segments(place.path):
        raise click.UsageError(f"{place.path}: both segments and Parquet files: ask for one, by ?format=")
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
            _answer(lines.over_parquet(tables, place.prefixes), statements[0], form)
            return
        of_lines = no_index or not place.path.is_dir()
        quick = None if of_lines else table.connect(statements[0].query, chosen)
        _answer(quick or lines.connect(chosen), statements[0], form)
    except duckdb.Error as error:
        # The engine marks the place on a line of its own.
        words = "\n".join(map(safe, [*str(error).splitlines(), *names.hints(text, str(error))]))
        # An error before the engine reads anything is a wrong command line: unknown names, wrong syntax.
        is_wrong = isinstance(error, duckdb.ParserException | duckdb.BinderException | duckdb.CatalogException)
        raise (WrongStatementError if is_wrong else click.ClickException)(words) from None


def _answer(connection: DuckDBPyConnection, statement: Statement, form: str) -> None:
    """Run the statement and write its rows."""
    columns, rows = lines.answered(connection, statement)
    first = list(islice(rows, 1))
    _FORMS[form](columns, chain(first, rows))
    if not first:
        why = names.why_no_rows(connection, statement.query)
        click.echo(f"inference-logging query: no rows: {why}", err=True)


def _write_table(names: list[str], rows: Rows) -> None:
    """Write columns as wide as the first rows need, with numbers to the right."""
    rows = iter(rows)
    first = list(islice(rows, _WIDTHS_BY))
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
    """Return what stands in a table: a float without the noise of its last digits."""
    if isinstance(value, float):
        return f"{value:.12g}"
    return safe("" if value is None else _word(value))


def _word(value: Any) -> str:
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any, levels: int = MOST_LEVELS) -> Any:
    """Return a value as JSON types, without what lies deeper; a time is UTC, as in records."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return f"{value.isoformat()}Z"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict | list | tuple) and not levels:
        return TOO_DEEP
    if isinstance(value, dict):
        return {str(key): _plain(inner, levels - 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, levels - 1) for inner in value]
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        # As in lines.
        return str(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)
