"""A record as a row of a table: what each column of `query` takes, and what is left for ``other``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from inference_logging.read.segments.columns import RESOURCE, TABLES

OTHER: Final = "other"
COLUMNS: Final[Mapping[str, str]] = {**TABLES["records"], **RESOURCE, OTHER: "JSON"}
"""Name and DuckDB's type."""
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z", re.ASCII)


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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


_IS_BIGINT: Final = _is_whole(-(1 << 63), 1 << 63)
_FITS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "BIGINT": _IS_BIGINT,
    "BIGINT[]": _are(_IS_BIGINT),
    "UBIGINT": _is_whole(0, 1 << 64),
    "DOUBLE": _is_number,
    "BOOLEAN": lambda value: isinstance(value, bool),
    "VARCHAR": _is_text,
    "VARCHAR[]": _are(_is_text),
    "TIMESTAMP": lambda value: isinstance(value, str) and _TIMESTAMP.fullmatch(value) is not None,
    "JSON": lambda _: True,
}
