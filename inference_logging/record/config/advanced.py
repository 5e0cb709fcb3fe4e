"""The group ``advanced``: parameters that few users set, apart from those that a reader of a configuration looks for.

A keyword or a key of the file of this name holds them; each may stand outside of the group as well. A variable of the
environment always names one parameter, so there the group does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.fields import FieldInfo

from inference_logging.record.config import problems
from inference_logging.record.config.fields import GROUP


def is_advanced(field: FieldInfo) -> bool:
    """Return whether a field belongs to the group."""
    notes = field.json_schema_extra
    return isinstance(notes, dict) and bool(notes["advanced"])


def without_group(values: Mapping[str, Any], fields: Mapping[str, FieldInfo], origin: str) -> dict[str, Any]:
    """Return the parameters of one source with those of its group beside the others.

    A fault of the group becomes a sentence under a key that no field has, so that it is reported with the rest.
    """
    flat = {name: value for name, value in values.items() if name != GROUP}
    if GROUP not in values:
        return flat
    group = values[GROUP]
    if not isinstance(group, Mapping):
        problem = f"{GROUP}={problems.shown(group)} ({origin}): must be a mapping of advanced parameters to values"
        return flat | {f"<{GROUP} {origin}>": problems.Sentence(problem)}
    inside = {str(name): value for name, value in group.items()}
    wrong = dict(_wrong(inside, flat, fields, origin))
    found = {f"<{GROUP}.{name} {origin}>": problems.Sentence(problem) for name, problem in wrong.items()}
    return flat | {name: value for name, value in inside.items() if name not in wrong} | found


def _wrong(
    inside: Mapping[str, Any], outside: Mapping[str, Any], fields: Mapping[str, FieldInfo], origin: str
) -> Iterator[tuple[str, str]]:
    """Yield the names in a group that do not belong there, each with a sentence."""
    for name, value in inside.items():
        given = f"{GROUP}.{name}={problems.shown(value)}"
        if name not in fields:
            nearest = problems.nearest(name, fields)
            yield name, f"{given} ({origin}): unknown parameter, the nearest known is {_place(nearest, fields)}"
        elif not is_advanced(fields[name]):
            yield name, f"{given} ({origin}): must stand outside of the group, as {name}"
        elif name in outside:
            yield (
                name,
                f"{given} ({origin}): must be given once, but {name}={problems.shown(outside[name])} is there too",
            )


def _place(name: str, fields: Mapping[str, FieldInfo]) -> str:
    return f"{GROUP}.{name}" if is_advanced(fields[name]) else f"{name}, outside of the group"
