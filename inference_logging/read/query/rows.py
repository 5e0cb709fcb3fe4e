"""The rows of an answer, and what is written of them: a table, CSV, or a JSON object per line."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import click

from inference_logging.read.query.lines import without_zone
from inference_logging.read.terminal import MOST_LEVELS, TOO_DEEP, as_json, safe

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, Statement

_AT_ONCE: Final = 1000

Rows = Iterable[tuple[Any, ...]]


def _write_table(names: list[str], rows: Rows) -> None:
    """Write columns as wide as the first rows need, with numbers to the right."""
    rows = iter(rows)
    first = list(islice(rows, _AT_ONCE))
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


def answered(connection: DuckDBPyConnection, statement: Statement) -> tuple[list[str], Rows]:
    """Run a statement; return the names of its columns, and its rows as they come. Raises ``duckdb.Error``."""
    answer = connection.execute(statement)
    names = [column[0] for column in answer.description or ()]
    types = [str(column[1]) for column in answer.description or ()]
    if any(without_zone(kind) != kind for kind in types):
        answer = connection.execute(_in_utc(statement.query, types))
    nested = [kind == "JSON" for kind in types]
    rows = chain.from_iterable(iter(lambda: answer.fetchmany(_AT_ONCE), []))
    return names, (_parsed(row, nested) for row in rows) if any(nested) else rows


FORMS: Final = {"table": _write_table, "csv": _write_csv, "json": _write_json}


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
