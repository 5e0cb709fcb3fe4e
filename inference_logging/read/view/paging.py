"""More records than one answer of the index has: page by page, rows or whole records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from inference_logging.read.segments import Record
from inference_logging.read.view import queries
from inference_logging.read.view.index import Index
from inference_logging.read.view.queries import Query, QueryError
from inference_logging.read.view.workers import GoneError

Row = dict[str, Any]


def asked(ask: Callable[[bytes], bytes], query: Query) -> bytes:
    """Return the index's answer; what it finds wrong with a query is a ``QueryError``."""
    try:
        return ask(queries.encoded(query))
    except ValueError as error:
        raise QueryError(f"q: {error}") from None


def pages(
    index: Index, query: Query, most: int, given_up: threading.Event | None = None
) -> Iterator[tuple[list[Row], Mapping[str, Any]]]:
    """Iterate over pages of rows, ``most`` rows in all, each with the whole answer.

    Raises ``GoneError`` once ``given_up`` is set.
    """
    page: Query = {"budget_s": queries.BUDGET_S, **query}
    while most > 0:
        if given_up is not None and given_up.is_set():
            raise GoneError
        page["limit"] = min(queries.MOST_ROWS, most)
        answer = orjson.loads(asked(index.rows, page))
        most -= len(answer["rows"])
        yield answer["rows"], answer
        if answer.get("next") is None:
            return
        page["after"] = answer["next"]


def rows_of(index: Index, query: Query, most: int) -> list[Row]:
    """Return up to ``most`` rows."""
    return [row for rows, _ in pages(index, query, most) for row in rows]


def records_of(index: Index, rows: Sequence[Row]) -> list[Record]:
    """Return the whole records of rows, each with its ``key``; those that are gone are left out."""
    keys = [row["key"] for row in rows]
    records = orjson.loads(index.lines(orjson.dumps(keys))) if keys else []
    return [{"key": key, **record} for key, record in zip(keys, records, strict=True) if isinstance(record, dict)]
