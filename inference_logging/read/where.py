"""Conditions on records in `--where`: `outcome=error`, `duration_s>1`, `url.path~/v1/`.

The type of a condition follows the record's value, not the look of the condition: `client_request_id=1` finds the text
"1", `http.response.status_code>=500` compares numbers. A record without the field fulfils `!=` and nothing else.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from inference_logging.read.segments.columns import MODEL, TABLES

OPERATORS: Final = (
    "FIELD, operator and VALUE: = equal, != not equal or absent, < <= > >= (numbers by size, text by order), "
    "~ contains. A list matches if one element does. attributes.NAME reaches into nested values. status, route, method "
    "and model are short for their fields."
)

_FORM = re.compile(r"(?P<field>[^=!<>~]+)(?P<operator>!=|<=|>=|=|<|>|~)(?P<value>.*)", re.DOTALL)
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ABSENT: Final = object()
_MOST_NEAREST: Final = 3
_SIMILAR: Final = 0.64
"""How alike two names are at least, as difflib counts."""
ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "status": ("http.response.status_code",),
    "route": ("http.route",),
    "method": ("http.request.method",),
    "model": MODEL,
}
"""Short names, and the fields that each means: the first that a record has."""
_WITH_ALIAS: Final = {field for fields in ALIASES.values() for field in fields}

_MEANT: Final = {"==": "=", "=>": ">=", "=~": "~", "<>": "!="}
"""What is no operator here, and the one that is meant."""
_NUMBERS: Final = {name for name, kind in TABLES["records"].items() if kind.endswith(("INT", "DOUBLE"))}
_SECONDS: Final = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_TIME: Final = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(_SECONDS)})")


class Condition(NamedTuple):
    """One condition on a field of a record."""

    field: str
    operator: str
    value: str
    number: float | None

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read ``FIELD OPERATOR VALUE``. Raises ``ValueError`` naming the text if it has another form."""
        match = _FORM.fullmatch(text)
        if match is None or not match["field"].strip():
            raise ValueError(f"{text!r}: must be FIELD, one of = != < <= > >= ~, and VALUE")
        value = match["value"].strip()
        return cls(match["field"].strip(), match["operator"], value, _number(value))

    def in_full(self) -> str:
        """Return the condition with the full name of its field, where that is one."""
        return written(full_name(self.field), self.operator, self.value)

    def holds(self, record: Mapping[str, Any]) -> bool:
        """Return whether ``record`` fulfils the condition."""
        found = look_up(record, self.field)
        if self.operator == "!=":
            return found is _ABSENT or not self._is_any(found, "=")
        return found is not _ABSENT and self._is_any(found, self.operator)

    def _is_any(self, found: Any, by: str) -> bool:
        if isinstance(found, list):
            return any(self._is_any(element, by) for element in found)
        if by == "~":
            return self.value in as_text(found)
        if isinstance(found, int | float) and not isinstance(found, bool):
            return self.number is not None and _COMPARE[by](found, self.number)
        # Only numbers and text have an order.
        return (by == "=" or isinstance(found, str)) and _COMPARE[by](as_text(found), self.value)


def written(field: str, by: str, value: str) -> str:
    """Return a condition as text. A value that begins with =, > or ~ has a space before it, since == is a mistake."""
    return f"{field}{by}{' ' if value.startswith(('=', '>', '~')) else ''}{value}"


def meant(text: str) -> Condition:
    """Read a condition that a person has typed.

    Raises ``ValueError`` naming the text, and what to write, if it has another form or can hardly be meant so.
    """
    condition = Condition.parse(text)
    field, by, value, number = condition
    if (signs := by + text.partition(by)[2][:1]) in _MEANT:
        raise ValueError(f"{text!r}: {signs} is no operator: write {field}{_MEANT[signs]}{value[1:].strip()}")
    if by == "~" or number is not None or _NUMBERS.isdisjoint({field, *ALIASES.get(field, ())}):
        return condition
    sentence = f"{text!r}: {field} is a number, but {value!r} is not"
    if (time := _TIME.fullmatch(value)) is None:
        raise ValueError(sentence)
    unit, name = (1e-6, "microseconds") if field.endswith("_us") else (1.0, "seconds")
    raise ValueError(f"{sentence}; in {name}, {field}{by}{float(time[1]) * _SECONDS[time[2]] / unit:g}")


def full_name(field: str) -> str:
    """Return the field that a short name means; one that means several keeps its name."""
    names = ALIASES.get(field, (field,))
    return names[0] if len(names) == 1 else field


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return at most three known fields that may be meant: those whose last parts are the name, else similar ones.

    A field that has a short name comes first, then the shortest one.
    """
    known = sorted(known, key=lambda one: (one not in _WITH_ALIAS, len(one), one))
    ends = [one for one in known if one.endswith(f".{name}")]
    return ends[:_MOST_NEAREST] or difflib.get_close_matches(name, known, _MOST_NEAREST, _SIMILAR)


def no_record_has(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence about a name, a field's or an event's, that no record has."""
    near = ", ".join(nearest(name, known))
    return f"no record has the {kind} {name!r}" + (f"; the nearest: {near}" if near else "")


def look_up(record: Mapping[str, Any], field: str) -> Any:
    """Return the value of a field: by its name, which may hold dots, by a short one, or by a path of nested values."""
    if field in record:
        return record[field]
    for name in ALIASES.get(field, ()):
        if name in record:
            return record[name]
    at = field.find(".")
    while at > 0:
        inner = record.get(field[:at])
        if isinstance(inner, Mapping):
            return look_up(inner, field[at + 1 :])
        at = field.find(".", at + 1)
    return _ABSENT


def is_absent(found: Any) -> bool:
    """Return whether ``look_up`` found nothing."""
    return found is _ABSENT


def as_text(value: Any) -> str:
    """Return a value in its JSON form, strings without quotes."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)


def _number(text: str) -> float | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None
