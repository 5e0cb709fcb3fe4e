"""Conditions of `--where` as SQL over the columns, with the meaning that they have in Python.

For the row of a record that is not odd, the SQL says exactly what ``Condition.holds`` says of the record, and never
NULL. Where that cannot be said, there is none: then the line is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from inference_logging.read.segments.columns import RESOURCE
from inference_logging.read.table.columns import COLUMNS, SEVERITIES, SEVERITY, TIMESTAMP
from inference_logging.read.table.engine import name
from inference_logging.read.times import stamp
from inference_logging.read.where import ALIASES, Condition

_BOUNDS: Final = {"BIGINT": (-(1 << 63), (1 << 63) - 1), "UBIGINT": (0, (1 << 64) - 1)}
_MOST_NS: Final = (1 << 63) - 1

Values = dict[str, Any]
"""The values of a statement's parameters, by their names."""


def with_value(values: Values, value: Any) -> str:
    """Add a value to a statement's, and return how the statement names it."""
    parameter = f"v{len(values)}"
    values[parameter] = value
    return f"${parameter}"


def as_sql(condition: Condition, values: Values) -> str | None:
    """Return a condition as SQL; None where only the line can say whether it holds."""
    names = [condition.field] if condition.field in _FIELDS else list(ALIASES.get(condition.field, ()))
    if not names or not all(one in _FIELDS for one in names):
        return None
    if len(names) > 1:
        return _of_text(condition, f"coalesce({', '.join(map(name, names))})", values)
    field, kind = names[0], _FIELDS[names[0]]
    if field == SEVERITY:
        return _of_few(condition, field, name("severity_text"), dict(SEVERITIES), values)
    if field == TIMESTAMP:
        return _of_time(condition, values)
    if kind == "BOOLEAN":
        return _of_few(condition, field, name(field), {True: True, False: False}, values)
    if kind == "VARCHAR":
        return _of_text(condition, name(field), values)
    return _of_number(condition, field, kind, values)


_FIELDS: Final = {**COLUMNS, **dict.fromkeys(RESOURCE, "VARCHAR"), SEVERITY: "BIGINT", TIMESTAMP: "TIMESTAMP_NS"}


def _of_text(condition: Condition, column: str, values: Values) -> str:
    value = with_value(values, condition.value)
    if condition.operator == "!=":
        return f"{column} IS DISTINCT FROM {value}"
    found = f"contains({column}, {value})" if condition.operator == "~" else f"{column} {condition.operator} {value}"
    return f"coalesce({found}, false)"


def _of_few(condition: Condition, field: str, column: str, known: dict[Any, Any], values: Values) -> str:
    """Let Python say which of few values fulfil a condition; the others count as none."""
    accepted = [stored for stored, value in known.items() if condition.holds({field: value})]
    absent = str(condition.holds({})).lower()
    if not accepted:
        return f"CASE WHEN {column} IN {_tuple(known, values)} THEN false ELSE {absent} END"
    return (
        f"CASE WHEN {column} IN {_tuple(accepted, values)} THEN true "
        f"WHEN {column} IN {_tuple(known, values)} THEN false ELSE {absent} END"
    )


def _tuple(of: Any, values: Values) -> str:
    return f"({', '.join(with_value(values, value) for value in of)})"


def _of_number(condition: Condition, field: str, kind: str, values: Values) -> str | None:
    column, operator, number = name(field), condition.operator, condition.number
    if operator == "~":
        # Python writes floats its own way.
        return None if kind == "DOUBLE" else _of_text(condition, f"CAST({column} AS VARCHAR)", values)
    by = "=" if operator == "!=" else operator
    if number is None or math.isnan(_as_float(number)):
        found = "false"
    elif kind == "DOUBLE":
        # No float of the column is 2^53 or more (the core's rows.rs): the float next to a number compares as it does.
        found = f"{column} {by} CAST({with_value(values, _as_float(number))} AS DOUBLE)"
    else:
        found = _of_whole(column, by, number, _BOUNDS[kind], values)
    return f"coalesce(NOT ({found}), true)" if operator == "!=" else f"coalesce({found}, false)"


def _of_whole(column: str, by: str, number: float, bounds: tuple[int, int], values: Values) -> str:
    """Return the comparison of a whole column with any number."""
    if math.isinf(_as_float(number)):
        number = bounds[1] + 1 if number > 0 else bounds[0] - 1
    if by == "=" and number != math.floor(number):
        return "false"
    limit = math.ceil(number) if by in ("<", ">=") else math.floor(number)
    if limit > bounds[1] or limit < bounds[0]:
        is_above = limit > bounds[1]
        return f"{column} IS NOT NULL" if by in (("<", "<=") if is_above else (">", ">=")) else "false"
    return f"{column} {by} {with_value(values, limit)}"


def _as_float(number: float) -> float:
    """Return the float next to a number; a whole one can be beyond all."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _of_time(condition: Condition, values: Values) -> str | None:
    """Return a condition on times, which have the order of their texts."""
    if condition.operator == "~":
        return None
    value, column = condition.value, f"epoch_ns({TIMESTAMP})"
    first, last = _first(lambda text: text >= value), _first(lambda text: text > value)
    if condition.operator in ("=", "!="):
        is_equal = f"({column} >= {with_value(values, first)} AND {column} < {with_value(values, last)})"
        return is_equal if condition.operator == "=" else f"NOT {is_equal}"
    by, moment = {"<": ("<", first), "<=": ("<", last), ">": (">=", last), ">=": (">=", first)}[condition.operator]
    return f"{column} {by} {with_value(values, moment)}"


def _first(is_past: Callable[[str], bool]) -> int:
    """Return the first moment whose text is past something, or one that no record has."""
    low, high = 0, _MOST_NS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_past(stamp(middle)) else (middle + 1, high)
    return low
