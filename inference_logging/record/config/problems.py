"""The faults of a configuration, in sentences: parameter, origin of its value, the value, what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from inference_logging.record.config.fields import GROUP

_LONGEST_VALUE = 120
_PASSWORD = re.compile(r"(://[^@\s/:]*:)\S*@")


class Sentence(str):
    """A finished sentence instead of a value: an unusable file, reported together with all the rest."""

    __slots__ = ()


def sentences(
    error: ValidationError, fields: Mapping[str, FieldInfo], as_written: Callable[[str, Any], tuple[str, Any]]
) -> Iterator[str]:
    """Yield one sentence per problem.

    ``as_written`` takes a parameter and the checked value, and returns the value's origin and its original form.
    """
    for detail in error.errors(include_url=False):
        name, value = str(detail["loc"][0]) if detail["loc"] else "", detail["input"]
        origin, written = as_written(name, value)
        if isinstance(value, Sentence):
            yield str(value)
        elif not name:
            # From the check of several fields together, which words its own sentences.
            yield from str(detail["ctx"]["error"]).splitlines()
        elif name not in fields:
            yield f"{name} ({origin}): {unknown(name, [*fields, GROUP])}"
        else:
            item = f"item {int(detail['loc'][1]) + 1} of {origin}" if detail["loc"][1:] else ""
            value = value if item else written
            hint = _quotes(fields[name], value) if origin == "file" else ""
            yield f"{name}={shown(value)} ({item or origin}): must be {allowed(fields[name])}{hint}"


def _quotes(field: FieldInfo, value: Any) -> str:
    """Return the hint where a file has a truth value for a word that its author may have written."""
    choices = get_args(field.annotation)
    if not isinstance(value, bool) or {int, float} & {field.annotation, *choices}:
        return ""
    words = ("on", "yes", "true") if value else ("off", "no", "false")
    if get_origin(field.annotation) is Literal and not {*words} & {*choices}:
        return ""
    return f"; YAML reads {words[0]}, {words[1]} and {words[2]} as a truth value unless they are in quotes"


def allowed(field: FieldInfo) -> str:
    """Return in words what a field allows."""
    words = extra(field, "allowed")
    if words:
        return words
    if choices := get_args(field.annotation):
        return "one of " + ", ".join(f'"{choice}"' for choice in choices)
    low, high = (limit(field, side) for side in ("ge", "le"))
    unit = extra(field, "unit")
    if unit == "bytes":
        return f"from {low} to {high} bytes, as a whole number or with a unit such as KiB, MiB or GiB"
    kind = "a whole number" if field.annotation is int else "a number"
    return f"{kind} from {low} to {high}" + (f" ({unit})" if unit else "")


def is_number(text: str) -> bool:
    """Return whether a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_size(field: FieldInfo) -> bool:
    """Return whether a field is a number of bytes, which may be written with a unit."""
    return field.annotation is int and extra(field, "unit") == "bytes"


def is_list(field: FieldInfo) -> bool:
    """Return whether a field holds several values, which a file writes as a list or a mapping."""
    return get_origin(field.annotation) is tuple


def is_mapping(field: FieldInfo) -> bool:
    """Return whether a field holds pairs, which a file writes as a mapping."""
    return is_list(field) and get_origin(get_args(field.annotation)[0]) is tuple


def type_name(field: FieldInfo) -> str:
    """Return the type of a field as the documentation shows it."""
    if is_list(field):
        return "mapping" if is_mapping(field) else "list"
    choices = get_args(field.annotation)
    if choices and all(isinstance(choice, str) for choice in choices):
        return " | ".join(choices)
    kinds = [kind for kind in choices if kind is not type(None)] or [field.annotation]
    name = "path" if kinds[0] is Path else getattr(kinds[0], "__name__", str(kinds[0]))
    return f"{name} | empty" if type(None) in choices else name


def extra(field: FieldInfo, key: str) -> str:
    """Return what the schema notes about a field besides its limits: ``unit`` or ``allowed``."""
    notes = field.json_schema_extra
    return str(notes[key]) if isinstance(notes, dict) else ""


def limit(field: FieldInfo, side: str) -> float:
    """Return the inclusive limit of a field at its ``side``: ``ge`` or ``le``; whole where it is a whole number.

    Raises ``StopIteration`` if it has none.
    """
    found = next(float(getattr(entry, side)) for entry in field.metadata if hasattr(entry, side))
    return int(found) if found.is_integer() else found


def shown(value: Any) -> str:
    """Return a value for a sentence: without the password of a URL, and only a part of it, if it is long."""
    text = _PASSWORD.sub(r"\1***@", repr(value))
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


def unknown(name: str, known: Iterable[str], place: Callable[[str], str] = str) -> str:
    """Return what is wrong with a name that is none of the known ones, and which may be meant, by its place."""
    import difflib  # only when something is wrong

    near = difflib.get_close_matches(name, known, n=1)
    return "unknown parameter" + (f", the nearest known is {place(near[0])}" if near else "")
