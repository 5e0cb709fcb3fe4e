"""Answers `rows`: the first records in an order, a page at a time, and whole records by their keys."""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from inference_logging.read.segments.columns import is_number
from inference_logging.read.table.catalog import Entry
from inference_logging.read.table.columns import COLUMNS, KINDS
from inference_logging.read.table.conditions import Values, with_value
from inference_logging.read.table.engine import name
from inference_logging.read.table.search import MOMENT, Question, Record, Search, read
from inference_logging.read.where import is_absent, look_up

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_USUAL: Final = 100
_COUNTED: Final = 1_000_000
"""So many rows are looked at to count how many are meant."""
_NUMBERS: Final = ("BIGINT", "UBIGINT", "DOUBLE")

Row = tuple[int, str, int, float | None]
"""Time, segment, offset, and the value that orders them."""


class Order(NamedTuple):
    """The order of rows: by time or, with a column, by its number."""

    column: str | None
    descending: bool

    @classmethod
    def parse(cls, given: str) -> Order:
        """Read it. Raises ValueError."""
        if given in ("newest", "oldest"):
            return cls(None, given == "newest")
        column = given.removeprefix("-")
        if COLUMNS.get(column) not in _NUMBERS:
            must = "newest, oldest, or an indexed number, with - for the largest first"
            raise ValueError(f"order={given!r}: must be {must}")
        return cls(column, given.startswith("-"))

    @property
    def is_forward(self) -> bool:
        """Whether the oldest come first."""
        return self.column is None and not self.descending

    def sql(self) -> str:
        """Return it as SQL: of equal ones the newest first, but for the oldest."""
        if self.is_forward:
            return "t, segment, place"
        value = "" if self.column is None else f"v {'DESC' if self.descending else 'ASC'}, "
        return f"{value}t DESC, segment DESC, place DESC"

    def behind(self, row: Row, values: Values) -> str:
        """Return the SQL for what comes after a row."""
        moment, segment, offset, value = row
        by = ">" if self.is_forward else "<"
        members = [("t", by, moment), ("segment", by, segment), ("place", by, offset)]
        if self.column is not None:
            members.insert(0, ("v", "<" if self.descending else ">", value))
        sql = "false"
        for member, sign, one in reversed(members):
            given = with_value(values, one)
            given = f"CAST({given} AS DOUBLE)" if member == "v" else given
            sql = f"({member} {sign} {given} OR ({member} = {given} AND {sql}))"
        return sql

    def bound(self, row: Row, values: Values) -> str:
        """Return a condition on columns that leaves out much of what comes before a row."""
        if self.column is not None:
            return "true"
        return f"{MOMENT} {'>=' if self.is_forward else '<='} {with_value(values, row[0])}"


def rows(cursor: DuckDBPyConnection, query: Mapping[str, Any], entries: Sequence[Entry]) -> Mapping[str, Any]:
    """Answer a query. Raises ValueError."""
    question, order = Question(query), Order.parse(query.get("order", "newest"))
    limit: int = query.get("limit", _USUAL)
    after = _cursor(query["after"]) if "after" in query else None
    search = Search(cursor, question, entries)
    column = order.column
    value = f"CAST({name(column)} AS DOUBLE)" if column is not None else "NULL::DOUBLE"
    shape = {
        "t": (MOMENT, "BIGINT"),
        "segment": ("segment", "VARCHAR"),
        "place": ('"offset"', "BIGINT"),
        "v": (value, "DOUBLE"),
    }

    def found(record: Record, moment: int, segment: str, offset: int) -> Row:
        return moment, segment, offset, None if column is None else number(look_up(record, column))

    counts_all = question.segments is not None
    search.run(
        shape,
        found,
        forward=order.is_forward,
        enough=limit + 1 if column is None and not counts_all else None,
        more=(lambda values: order.bound(after, values)) if after is not None else None,
    )
    page = _page(search, order, limit, after)
    following = _written(page[limit - 1]) if len(page) > limit else None
    page = page[:limit]
    stopped_ns = search.reached.stopped_ns
    if stopped_ns is not None and column is None and order.descending:
        # What is older has not been searched everywhere: the next page begins there.
        page = [row for row in page if row[0] > stopped_ns]
        if following is None or len(page) < limit:
            following = _written((stopped_ns, "\x7f", (1 << 63) - 1, None))
    reached = search.reached
    return {
        "rows": _shown(page, entries, query.get("fields")),
        "reached": _ends(question, entries),
        "next": following,
        "matched": _matched(search, after, counts_all, column),
        "complete": reached.is_complete,
        "searched_to_ns": None if stopped_ns is None else str(stopped_ns),
        "scanned_rows": reached.rows,
        "unindexed_bytes": reached.unread_bytes,
    }


def _page(search: Search, order: Order, limit: int, after: Row | None) -> list[Row]:
    values = dict(search.values)
    conditions = ["v IS NOT NULL"] if order.column is not None else []
    conditions += [order.behind(after, values)] if after is not None else []
    sql = f"SELECT t, segment, place, v FROM ({search.relation}) WHERE {' AND '.join(conditions) or 'true'}"
    return search.cursor.execute(f"{sql} ORDER BY {order.sql()} LIMIT {limit + 1}", values).fetchall()


def _matched(search: Search, after: Row | None, counts_all: bool, column: str | None) -> int | None:
    """Return how many records there are, unless it is not known."""
    reached = search.reached
    is_known = reached.is_complete and not reached.skipped and after is None
    if not is_known or not (counts_all or reached.rows <= _COUNTED):
        return None
    condition = "v IS NOT NULL" if column is not None else "true"
    sql = f"SELECT count(*) FROM ({search.relation}) WHERE {condition}"
    return int(search.cursor.execute(sql, search.values).fetchall()[0][0])


def _ends(question: Question, entries: Sequence[Entry]) -> dict[str, int]:
    """Return where the rows of each segment that was asked for by name end."""
    asked = question.segments or {}
    return {entry.name: entry.facts.content_bytes for entry in entries if entry.facts and entry.name in asked}


def number(value: Any) -> float | None:
    """Return a value as a number; a truth value is none."""
    return float(value) if is_number(value) else None


def _written(row: Row) -> str:
    return orjson.dumps(row).hex()


def _cursor(given: str) -> Row:
    wrong = ValueError(f'after={given!r}: must be what "next" was')
    try:
        moment, segment, offset, value = orjson.loads(binascii.unhexlify(given))
    except (ValueError, TypeError):
        raise wrong from None
    if not (isinstance(moment, int) and isinstance(segment, str) and isinstance(offset, int)):
        raise wrong
    return moment, segment, offset, number(value)


def _shown(page: Sequence[Row], entries: Sequence[Entry], fields: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return the rows of places, as their lines have them; what is gone by now is left out."""
    of_segments: dict[str, list[tuple[int, int]]] = {}
    for at, (_, segment, offset, _) in enumerate(page):
        of_segments.setdefault(segment, []).append((offset, at))
    shown: list[dict[str, Any] | None] = [None] * len(page)
    for entry, places in _places(entries, of_segments):
        for at, line in places:
            record = read(line, entry.facts.resource if entry.facts is not None else {})
            if record is not None:
                shown[at] = _row(page[at], record, fields if fields is not None else list(KINDS))
    return [row for row in shown if row is not None]


def _row(place: Row, record: Record, fields: Sequence[str]) -> dict[str, Any]:
    row = {"key": f"{place[1]}:{place[2]}", "timestamp_ns": str(place[0])}
    for field in ("event_name", *fields):
        value = record[field] if field in record else look_up(record, field)
        if not is_absent(value) and field != "timestamp":
            row[field] = value
    return row


def lines(entries: Sequence[Entry], keys: Sequence[str]) -> list[bytes | None]:
    """Return the lines of records by their keys, None for each that is gone. Each segment is opened once."""
    found: list[bytes | None] = [None] * len(keys)
    of_segments: dict[str, list[tuple[int, int]]] = {}
    for at, key in enumerate(keys):
        segment, _, offset = key.rpartition(":")
        if offset.isascii() and offset.isdecimal() and len(offset) <= 19:
            of_segments.setdefault(segment, []).append((int(offset), at))
    for _, places in _places(entries, of_segments):
        for at, line in places:
            if line is not None and read(line, {}) is not None:
                found[at] = line
    return found


def _places(entries: Sequence[Entry], of_segments: Mapping[str, list[tuple[int, int]]]) -> Any:
    """Iterate over segments with the lines of places in them."""
    for entry in entries:
        places = sorted(of_segments.get(entry.name, ()))
        opened = entry.open() if places and entry.facts is not None else None
        if opened is None:
            continue
        with opened:
            if opened.identity.compressed:
                once = sorted({offset for offset, _ in places})
                of = dict(zip(once, opened.at([(offset, -1) for offset in once]), strict=True))
                yield entry, [(at, of[offset]) for offset, at in places]
            else:
                yield entry, [(at, opened.line(offset)) for offset, at in places]
