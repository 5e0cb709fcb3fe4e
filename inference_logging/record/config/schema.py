"""The JSON schema of the configuration file, for editors, pipelines and the Helm chart.

It accepts what ``inference-logging config check`` accepts and refuses what that refuses, one parameter at a time; rules
about several parameters (``max_record_bytes`` and ``queue_bytes``) stay with ``check``. It is Draft 7, with the syntax
of patterns that Python, JavaScript and RE2 share, since Helm's validator is written in Go.

A parameter of the group ``advanced`` is described once, beside the group, which refers to that description.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import AfterValidator, BeforeValidator
from pydantic.fields import FieldInfo

from inference_logging.record.config import FILE_VERSION, Config, problems
from inference_logging.record.config.config import is_advanced
from inference_logging.record.config.fields import (
    GROUP,
    MIN_RATIO,
    SIZE_UNITS,
    FewAndDifferent,
    Matches,
    none_if_empty,
    possible_ratio,
    upper,
)
from inference_logging.record.config.parameters.queue import on_or_off

_DIALECT = "http://json-schema.org/draft-07/schema#"
_BLANK = r"[ \t\n\r\f\v]*"
_RATIO = {"anyOf": [{"const": 0}, {"type": "number", "minimum": MIN_RATIO, "maximum": 1}]}
_NOT_OF_A_FILE = "config_file"
# Go's regular expressions repeat at most a thousand times, and Rust's take long to compile for so many.
_LONG_REPETITION = re.compile(r"(\[[^]]+\])\{1,(\d{4,})\}")
_KEYWORDS = ("type", "anyOf", "enum", "items", "additionalProperties", "minimum", "maximum", "format", "pattern")


def file_schema(root: str = "#") -> dict[str, Any]:
    """Return the JSON schema of a configuration file, with meaning, unit, limits and default of each parameter.

    ``root`` is the path of the schema in the document that holds it.
    """
    generated = Config.model_json_schema()
    properties: dict[str, Any] = {
        "version": {"const": FILE_VERSION, "type": "integer", "description": "Version of this file's format."}
    }
    fields = {name: field for name, field in Config.model_fields.items() if name != _NOT_OF_A_FILE}
    grouped = [name for name, field in fields.items() if is_advanced(field)]
    described = {name: _described(field, generated["properties"][name]) for name, field in fields.items()}
    properties |= {name: one for name, one in described.items() if name not in grouped}
    properties[GROUP] = _group(grouped, root)
    properties |= {name: described[name] for name in grouped}
    schema = {
        "$schema": _DIALECT,
        "title": "Configuration of inference_logging",
        "type": "object",
        "properties": properties,
        "required": ["version"],
        "additionalProperties": False,
        # A parameter that is given beside the group must not be given inside as well.
        "dependencies": {name: {"properties": {GROUP: {"properties": {name: False}}}} for name in grouped},
    }
    return schema | ({"$defs": generated["$defs"]} if "$defs" in generated else {})


def _group(names: list[str], root: str) -> dict[str, Any]:
    return {
        "description": "Parameters whose default suits nearly every server. Each may also stand beside the group.",
        "type": "object",
        "properties": {name: {"$ref": f"{root}/properties/{name}"} for name in names},
        "additionalProperties": False,
        "default": {},
    }


def _described(field: FieldInfo, generated: dict[str, Any]) -> dict[str, Any]:
    unit = problems.extra(field, "unit")
    words = f"{field.description} Allowed: {problems.allowed(field)}."
    described: dict[str, Any] = {"description": words} | ({"unit": unit} if unit else {})
    default = dict(field.default) if problems.is_mapping(field) else generated["default"]
    return described | _accepted(field, generated) | {"default": default}


def _accepted(field: FieldInfo, generated: dict[str, Any]) -> dict[str, Any]:
    """Return what a field accepts: by pydantic's schema, and by the validators of `fields`."""
    functions = [entry.func for entry in field.metadata if isinstance(entry, AfterValidator | BeforeValidator)]
    if problems.is_size(field):
        return {"anyOf": _size(int(problems.limit(field, "ge")), int(problems.limit(field, "le")))}
    if possible_ratio in functions:
        return _RATIO
    if problems.is_list(field):
        few = next((function for function in functions if isinstance(function, FewAndDifferent)), None)
        return _several(field) | ({"maxItems": few.most, "uniqueItems": True} if few else {})
    choices = get_args(field.annotation)
    if upper in functions:
        return {"anyOf": [{"enum": list(choices)}, {"type": "string", "pattern": _any_case(choices)}]}
    if on_or_off in functions:
        return {"enum": [*choices, "true", "false", True, False]}
    if "off" in choices:
        # YAML reads an unquoted off as false.
        return {"enum": [*choices, False]}
    accepted = {key: value for key, value in generated.items() if key in _KEYWORDS}
    pattern = next((function.pattern.pattern for function in functions if isinstance(function, Matches)), None)
    if pattern is not None:
        may_be_empty = none_if_empty in functions
        accepted["pattern"] = f"^(?:{_portable(pattern)}){'?' if may_be_empty else ''}$"
    return accepted


def _several(field: FieldInfo) -> dict[str, Any]:
    """Return a list of texts, or a mapping of texts to ratios or texts; host bits and expressions stay with `check`."""
    item = get_args(field.annotation)[0]
    if problems.is_mapping(field):
        name, value = get_args(item)
        values = _text(value) if get_args(value)[0] is str else _RATIO
        return {"type": "object", "propertyNames": _text(name), "additionalProperties": values}
    return {"type": "array", "items": _text(item)}


def _text(annotated: Any) -> dict[str, Any]:
    functions = [entry.func for entry in annotated.__metadata__ if isinstance(entry, AfterValidator)]
    patterns = [function.pattern.pattern for function in functions if isinstance(function, Matches)]
    if not patterns:
        return {"type": "string"}
    if (long := _LONG_REPETITION.fullmatch(patterns[0])) is not None:
        return {"type": "string", "pattern": f"^(?:{long[1]}+)$", "maxLength": int(long[2])}
    return {"type": "string", "pattern": f"^(?:{patterns[0]})$"}


def _portable(pattern: str) -> str:
    r"""Return a pattern written with re.ASCII for engines without that flag: ``\s`` is six characters there."""
    return pattern.replace(r"\s", r" \t\n\r\f\v")


def _any_case(choices: tuple[str, ...]) -> str:
    words = ("".join(f"[{letter.upper()}{letter.lower()}]" for letter in choice) for choice in choices)
    return f"^(?:{'|'.join(words)})$"


def _size(low: int, high: int) -> list[dict[str, Any]]:
    """Return a size between two numbers of bytes: a number, or text with a unit whose digits keep to the limits."""
    written = []
    for unit, factor in SIZE_UNITS.items():
        least, most = -(-low // factor), high // factor
        if least <= most:
            letters = "".join(f"[{letter}{letter.lower()}]" for letter in unit)
            written.append(f"(?:{whole_numbers(least, most)}){_BLANK}{letters}")
    pattern = f"^{_BLANK}0*(?:{'|'.join(written)})[Bb]?{_BLANK}$"
    return [{"type": "integer", "minimum": low, "maximum": high}, {"type": "string", "pattern": pattern}]


def whole_numbers(low: int, high: int) -> str:
    """Return a pattern of the whole numbers from ``low`` to ``high``, without leading zeros."""
    return "|".join(_pieces(low, high))


def _pieces(low: int, high: int) -> Iterator[str]:
    """Cut a range into pieces `prefix, one range of digits, any digits`, the largest that fit, in order."""
    while low <= high:
        free = 0
        while low % 10 ** (free + 1) == 0 and low + 10 ** (free + 1) - 1 <= high and low > 0:
            free += 1
        step = 10**free
        # The last fixed digit may run up to 9, or as far as the range goes.
        last = min(low // step % 10 + (high - low + 1) // step - 1, 9)
        prefix = str(low // step)[:-1]
        yield f"{prefix}{_digits(low // step % 10, last)}{f'[0-9]{{{free}}}' if free else ''}"
        low += (last - low // step % 10 + 1) * step


def _digits(first: int, last: int) -> str:
    return str(first) if first == last else f"[{first}-{last}]"
