"""Questions of the page: read, checked and bounded before the index sees them; its answers page by page, and bounded.

The forms are those of the index. What is wrong is a sentence that names parameter and value. An answer is small where
long texts would make it large.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from inference_logging.read.segments import Record
from inference_logging.read.segments.columns import is_number
from inference_logging.read.table.table import Table
from inference_logging.read.view.workers import GoneError
from inference_logging.read.where import meant

Query = dict[str, Any]

LONGEST_QUERY_BYTES: Final = 32 << 10
MOST_ROWS: Final = 1000
BUDGET_S: Final = 2.0
"""How long one question may search without an index, unless it says less."""
_MOST_BUDGET_S: Final = 10.0
_LONGEST_TEXT: Final = 4096
_MOST_IN_LIST: Final = 100
SIGNS: Final = ("=", "!=", "<", "<=", ">", ">=", "~")
"""The operators of a condition."""
_SHOWN: Final = 80
"""Characters of a wrong value in a sentence."""

Check = Callable[[str, Any], Any]
"""Returns the value of a parameter in its final form; raises ``QueryError``."""


class QueryError(ValueError):
    """A question that can't be answered; the message names parameter and value."""


def _refuse(name: str, value: Any, allowed: str) -> QueryError:
    shown = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    cut = repr(shown) if isinstance(value, str) else shown
    return QueryError(f"{name}={cut if len(cut) <= _SHOWN else cut[:_SHOWN] + '…'}: {allowed}")


def whole(name: str, value: Any, least: int, most: int) -> int:
    """Return a whole number between two others, which may be given as text: 64 bits are too many for a browser."""
    text = str(value) if not isinstance(value, bool) else ""
    digits = text.removeprefix("-")
    is_whole = isinstance(value, int | str) and digits.isascii() and digits.isdecimal() and len(digits) <= 20
    if is_whole and least <= (number := int(text)) <= most:
        return number
    raise _refuse(name, value, f"must be a whole number from {least} to {most}")


def _whole(least: int, most: int) -> Check:
    return lambda name, value: whole(name, value, least, most)


def _seconds(name: str, value: Any) -> float:
    if not is_number(value) or not 0 < value <= _MOST_BUDGET_S:
        raise _refuse(name, value, f"must be a number of seconds above 0, at most {_MOST_BUDGET_S:g}")
    return float(value)


def text(name: str, value: Any) -> str:
    """Return a text that is not too long."""
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise _refuse(name, value, f"must be a text of at most {_LONGEST_TEXT:,} characters")
    return value


def _name(name: str, value: Any) -> str | None:
    return None if value is None else text(name, value)


def _texts(name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) > _MOST_IN_LIST:
        raise _refuse(name, value, f"must be a list of at most {_MOST_IN_LIST} texts")
    return [text(f"{name}[{at}]", one) for at, one in enumerate(value)]


def _conditions(name: str, value: Any) -> list[str]:
    return [_condition(f"{name}[{at}]", one) for at, one in enumerate(_texts(name, value))]


def _condition(name: str, text: str) -> str:
    try:
        return meant(text).in_full()
    except ValueError as error:
        raise QueryError(f"{name}={error}") from None


def _operator(name: str, value: Any) -> str:
    if value not in SIGNS:
        raise _refuse(name, value, f"must be one of {' '.join(SIGNS)}")
    return str(value)


def _trace(name: str, value: Any) -> str:
    digits = text(name, value).strip().lower()
    if not 1 <= len(digits) <= 32 or not set(digits) <= set("0123456789abcdef"):
        raise _refuse(name, value, "must be the first of a trace id's 32 hexadecimal digits")
    return digits


_TIME: Final = _whole(0, (1 << 63) - 1)
FILTER: Final[dict[str, Check]] = {
    "where": _conditions, "events": _texts, "from_ns": _TIME, "to_ns": _TIME, "trace": _trace, "text": text,
    "directories": _texts, "budget_s": _seconds,
}  # fmt: skip

ROWS: Final[dict[str, Check]] = {
    **FILTER, "order": text, "limit": _whole(1, MOST_ROWS), "after": text, "fields": _texts,
}  # fmt: skip
AGGREGATE: Final[dict[str, Check]] = {
    **FILTER, "buckets": _whole(1, 1000), "group_by": _name, "groups_limit": _whole(1, 200), "fields": _texts,
    "heatmap": _name, "heatmap_rows": _whole(2, 200),
}  # fmt: skip
VALUES: Final[dict[str, Check]] = {**FILTER, "field": text, "limit": _whole(1, MOST_ROWS), "operator": _operator}
"""The parameters of each kind of question, with their checks."""


def refuse_unknown(given: Mapping[str, str], known: Collection[str]) -> None:
    """Raise ``QueryError`` for a parameter of a URL that is not one of the known ones."""
    for name, value in given.items():
        if name not in known:
            there_are = f"the parameters are {', '.join(known)}" if known else "there are no parameters"
            raise _refuse(name[:_SHOWN], value, f"unknown, {there_are}")


def read(given: str | None, checks: Mapping[str, Check], name: str = "q", required: Collection[str] = ()) -> Query:
    """Return the question that the parameter ``name`` of a URL has, which is JSON. Raises ``QueryError``."""
    found = _json(given or "{}", name)
    query: Query = {}
    for key, value in found.items():
        if key not in checks:
            near = difflib.get_close_matches(key, list(checks), 1)
            raise _refuse(f"{name}.{key[:_SHOWN]}", value, f"unknown{f', the nearest is {near[0]!r}' if near else ''}")
        if value is not None:
            query[key] = checks[key](f"{name}.{key}", value)
    for key in required:
        if key not in query:
            raise QueryError(f"{name}.{key}: is required")
    if query.get("from_ns", 0) > query.get("to_ns", 1 << 63):
        raise _refuse(f"{name}.from_ns", query["from_ns"], f"must not be after to_ns={query['to_ns']}")
    query.setdefault("budget_s", BUDGET_S)
    return query


def _json(given: str, name: str) -> dict[str, Any]:
    if len(given.encode("utf-8", "surrogatepass")) > LONGEST_QUERY_BYTES:
        raise QueryError(f"{name}: {len(given):,} characters are too many, at most {LONGEST_QUERY_BYTES:,} bytes")
    try:
        found = orjson.loads(given)
    except orjson.JSONDecodeError as error:
        raise _refuse(name, given, f"must be JSON ({error})") from None
    if not isinstance(found, dict):
        raise _refuse(name, given, "must be a JSON object")
    return found


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
    page: Query = {"budget_s": BUDGET_S, **query}
    while most > 0:
        if given_up is not None and given_up.is_set():
            raise GoneError
        page["limit"] = min(MOST_ROWS, most)
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
