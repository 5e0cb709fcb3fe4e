"""Names of columns that a statement gets wrong: SQL needs double quotes around a name with dots, and knows no alias."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from inference_logging.read.query.table import named_tables
from inference_logging.read.segments import columns
from inference_logging.read.where import ALIASES, nearest

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TABLES: Final = {
    "requests": ("request", "requests"),
    "logs": ("application record", "application records"),
    "records": ("record", "records"),
}
"""What each table has, in words: one, many."""
_COLUMNS: Final = {**columns.TABLES["records"], **columns.RESOURCE}
_DOTTED: Final = sorted(name for name in _COLUMNS if "." in name)
# DuckDB takes user in user.tier for a table.
_UNKNOWN: Final = re.compile(r'(?:Referenced (?:column|table)|column named|Column) "([^"]+)"')


def hints(sql: str, error: str) -> Iterator[str]:
    """Iterate over what to write for the names that the engine's error is about."""
    # It takes http in http.route for a table.
    dotted = [name for name in _DOTTED if f'"{name.partition(".")[0]}' in error]
    names = list(_named(sql, dotted, r"""(?<![\w."'])""", r"""(?![\w."'])"""))
    for name in names:
        yield f"""Put a name with dots in double quotes, "{name}", and the whole statement in single quotes."""
    unknown = _UNKNOWN.search(error)
    if unknown is not None and not names:
        yield _instead(_in_full(sql, unknown[1]))


def why_no_rows(connection: DuckDBPyConnection, sql: str) -> str:
    """Return why a statement had no rows."""
    for name in _named(sql, _DOTTED, "'", "'"):
        return f"""'{name}' is a text: put the name of a column in double quotes, "{name}\""""
    named = named_tables(sql)
    records = {
        table: connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
        for table in TABLES
        if table in named
    }
    if not records:
        return "the statement reads no table"
    read = [f"{number:,} {TABLES[table][0 if number == 1 else 1]}" for table, number in records.items() if number]
    if not read:
        return f"there are no {' or '.join(TABLES[table][1] for table in records)}"
    return f"{' and '.join(read)} read, none matches"


def _in_full(sql: str, name: str) -> str:
    """Return the whole of a name with dots that a statement has without quotes."""
    found = re.search(rf"(?<![\w\"]){re.escape(name)}(?:\.\w+)*", sql, re.IGNORECASE)
    return found[0] if found is not None else name


def _instead(name: str) -> str:
    """Return what to write in place of a name that is no column."""
    if name in ALIASES:
        return f"For {name} write {_written(name)}."
    if near := nearest(name.lower(), {*_COLUMNS, *ALIASES}):
        return f"{name} is no column; the nearest: {', '.join(dict.fromkeys(map(_written, near)))}."
    path = f"$.{name}" if "." in name else name
    return f"{name} is no column. If the application added this field, write attributes->>'{path}'."


def _written(name: str) -> str:
    """Return a column, or what a short name means, as SQL has it."""
    fields = [f'"{field}"' if "." in field else field for field in ALIASES.get(name, (name,))]
    return fields[0] if len(fields) == 1 else f"coalesce({', '.join(fields)})"


def _named(sql: str, names: Iterable[str], before: str, after: str) -> Iterator[str]:
    return (name for name in names if re.search(before + re.escape(name) + after, sql, re.IGNORECASE))
