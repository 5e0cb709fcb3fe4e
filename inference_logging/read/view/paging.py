"""Answers of the table: page by page where one is not enough, and small where long texts make it large."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from inference_logging.read.segments import Record
from inference_logging.read.table.table import Table
from inference_logging.read.view import queries
from inference_logging.read.view.queries import Query, QueryError
from inference_logging.read.view.workers import GoneError

Row = dict[str, Any]

MOST_BYTES: Final = 8 << 20
"""The largest answer. A browser shows one line of a row; the panel of a record asks for all of it."""
_TEXT_CHARACTERS: Final = (10_000, 1_000, 100, 10)
"""What is left of each text, the first that is enough."""


def asked(ask: Callable[[Query], Any], query: Query) -> Any:
    """Return the index's answer; what it finds wrong with a query is a ``QueryError``."""
    try:
        return ask(query)
    except ValueError as error:
        raise QueryError(f"q: {error}") from None


def pages(
    index: Table, query: Query, most: int, given_up: threading.Event | None = None
) -> Iterator[tuple[list[Row], Mapping[str, Any]]]:
    """Iterate over pages of rows, ``most`` rows in all, each with the whole answer.

    Raises ``GoneError`` once ``given_up`` is set.
    """
    page: Query = {"budget_s": queries.BUDGET_S, **query}
    while most > 0:
        if given_up is not None and given_up.is_set():
            raise GoneError
        page["limit"] = min(queries.MOST_ROWS, most)
        answer = asked(index.rows, page)
        most -= len(answer["rows"])
        yield answer["rows"], answer
        if answer.get("next") is None:
            return
        page["after"] = answer["next"]


def rows_of(index: Table, query: Query, most: int) -> list[Row]:
    """Return up to ``most`` rows."""
    return [row for rows, _ in pages(index, query, most) for row in rows]


def records_of(index: Table, rows: Sequence[Row]) -> list[Record]:
    """Return the whole records of rows, each with its ``key``; those that are gone are left out."""
    keys = [row["key"] for row in rows]
    lines = zip(keys, index.lines(keys), strict=True)
    records = ((key, orjson.loads(line)) for key, line in lines if line is not None)
    return [{"key": key, **record} for key, record in records if isinstance(record, dict)]


def bounded(answer: Any) -> bytes:
    """Return an answer as JSON, with rows in at most about ``MOST_BYTES``: long texts are cut, each with its length."""
    content = orjson.dumps(answer)
    if len(content) <= MOST_BYTES or "rows" not in answer:
        return content
    for characters in _TEXT_CHARACTERS:
        content = orjson.dumps({**answer, "rows": [_cut(row, characters) for row in answer["rows"]]})
        if len(content) <= MOST_BYTES:
            break
    return content


def _cut(value: Any, characters: int) -> Any:
    if isinstance(value, str) and len(value) > characters:
        return f"{value[:characters]} … ({len(value):,} characters)"
    if isinstance(value, dict):
        return {name: _cut(one, characters) if name != "key" else one for name, one in value.items()}
    if isinstance(value, list):
        kept = [_cut(one, characters) for one in value[:characters]]
        return [*kept, f"… ({len(value):,} values)"] if len(value) > characters else kept
    return value
