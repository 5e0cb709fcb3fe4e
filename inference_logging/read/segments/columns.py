"""The fields of records: the catalogue of the core, and the columns and rows that SQL and Parquet files make of it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeGuard

from inference_logging._native import fields


class Field(NamedTuple):
    """One field of a record. ``source``: ``head``, ``server``, ``listener``, ``log``, ``resource`` or ``event``."""

    name: str
    source: str
    kind: str
    """DuckDB's type; empty: it is no column."""
    unit: str
    """As UCUM writes it; empty: none."""
    meaning: str
    has_few_values: bool


FIELDS: Final[Mapping[str, Field]] = {field[0]: Field(*field) for field in fields()}
"""Every field that this package writes, by name."""


def _of(*sources: str) -> dict[str, str]:
    return {field.name: field.kind for field in FIELDS.values() if field.kind and field.source in sources}


MODEL: Final = ("gen_ai.response.model", "gen_ai.request.model", "triton.model_name")
"""The fields that name the model of a request: the first that it has counts."""
HEAD: Final = _of("head")
"""The columns at the beginning of every record: name and DuckDB's type."""
_ATTRIBUTES: Final = {"attributes": FIELDS["attributes"].kind}
LOGS: Final = {**_of("log"), "request_id": FIELDS["request_id"].kind, **_ATTRIBUTES}
"""The columns that application records add."""
RESOURCE: Final = _of("resource")
"""The columns that a segment's header gives to each of its records."""
REQUESTS: Final = _of("server", "listener")
"""The columns that request records add: from the server or the listener, which reads bodies and derives values."""
EVENTS: Final[Mapping[str, str | None]] = {"requests": "request", "logs": "log", "records": None}
"""The tables of SQL, and the event that each has; None: every event."""
TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "requests": {**HEAD, **REQUESTS}, "logs": {**HEAD, **LOGS}, "records": {**HEAD, **LOGS, **REQUESTS},
}  # fmt: skip
"""The columns of each, but for those of the resource."""


OTHER: Final = "other"
COLUMNS: Final[Mapping[str, str]] = {**TABLES["records"], **RESOURCE, OTHER: "JSON"}
"""Name and DuckDB's type."""
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z", re.ASCII)


def of_resource(resource: object) -> dict[str, str]:
    """Return the columns that the resource of a segment's header gives to each of its records."""
    given = resource if isinstance(resource, dict) else {}
    return {name: value for name in RESOURCE if isinstance(value := given.get(name), str)}


def row(record: Mapping[str, Any], columns: Mapping[str, str] = TABLES["records"]) -> dict[str, Any]:
    """Return a record as a row: values that fit their column, and the others below ``other``."""
    fitting: dict[str, Any] = {}
    other: dict[str, Any] = {}
    for name, value in record.items():
        kind = columns.get(name)
        (fitting if kind is not None and _FITS[kind](value) else other)[name] = value
    return {**fitting, **({OTHER: other} if other else {})}


def _is_whole(first: int, end: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and first <= value < end


def _are(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a finite number; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


_IS_BIGINT: Final = _is_whole(-(1 << 63), 1 << 63)
_FITS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "BIGINT": _IS_BIGINT,
    "BIGINT[]": _are(_IS_BIGINT),
    "UBIGINT": _is_whole(0, 1 << 64),
    "DOUBLE": is_number,
    "BOOLEAN": lambda value: isinstance(value, bool),
    "VARCHAR": _is_text,
    "VARCHAR[]": _are(_is_text),
    "TIMESTAMP": lambda value: isinstance(value, str) and _TIMESTAMP.fullmatch(value) is not None,
    "JSON": lambda _: True,
}


NOT_FAILED: Final = ("ok", "client_disconnect")
FAILED: Final = f"outcome NOT IN {NOT_FAILED}"
"""As a condition of SQL: NULL without an outcome."""
NONE: Final = "(none)"
"""How answers, pages and dashboards name the requests that have no value: no route, no model, no outcome."""
