"""The reference of all parameters, as Markdown: `docs/parameters.md` is what `inference-logging config docs` prints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from pydantic.fields import FieldInfo

from inference_logging.record.config.config import ENV_PREFIX, Config, Parameter
from inference_logging.record.config.fields import GIB, KIB, MIB
from inference_logging.record.config.problems import extra, is_size, limit

_HEAD = """\
# Parameters

Printed by `inference-logging config docs`; a test fails while this file says something else.

There are {count} parameters. A server may need the {visible} in the first table; the {advanced} in the second have
defaults that suit nearly every server. Set a parameter by keyword (`Config(queue_bytes="32MiB")`), by variable
(`{prefix}QUEUE_BYTES=32MiB`), or in the YAML file. Sizes are numbers of bytes or have a unit: KiB, MiB, GiB.
Limits are inclusive. Keywords and the file may put parameters of the second table in the group `advanced`:

```yaml
version: 1
queue_bytes: 32MiB
advanced:
  flush_records: 1000
```
"""
# An underscore within a word is none. `<` is an entity: not every reader of Markdown takes a backslash before it.
_MARKUP = re.compile(r"[\\|*]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_PATHS = ("a path, or empty", "the path of a readable file")
_UNITS = {"GiB": GIB, "MiB": MIB, "KiB": KIB}
_COLUMNS = "| parameter | type | default | unit | meaning | allowed |\n|---|---|---|---|---|---|\n"


def markdown() -> str:
    """Return the reference: a table of the parameters outside of the group `advanced`, and one of those in it."""
    described = Config.describe()
    visible = [parameter for parameter in described if not parameter.advanced]
    advanced = [parameter for parameter in described if parameter.advanced]
    head = _HEAD.format(count=len(described), visible=len(visible), advanced=len(advanced), prefix=ENV_PREFIX)
    return f"{head}\n{_table(visible)}\n## Group advanced\n\n{_table(advanced)}"


def _table(parameters: Iterable[Parameter]) -> str:
    return _COLUMNS + "".join(f"| {' | '.join(_cells(parameter))} |\n" for parameter in parameters)


def _cells(parameter: Parameter) -> list[str]:
    field = Config.model_fields[parameter.name]
    default = size(parameter.default) if is_size(field) else parameter.default
    words = [parameter.type, _default(default), parameter.unit, parameter.meaning, _allowed(parameter.type, field)]
    return [f"`{parameter.name}`", *(in_table(word) for word in words)]


def _allowed(kind: str, field: FieldInfo) -> str:
    """Return what a parameter allows beyond its type; an error says all of it."""
    if words := extra(field, "allowed"):
        return "" if words.startswith(_PATHS) else words.removesuffix("; or empty").removesuffix(", or empty")
    if "|" in kind:
        return ""
    low, high = (limit(field, side) for side in ("ge", "le"))
    return f"{size(low)} to {size(high)}" if is_size(field) else f"{low:,} to {high:,}"


def size(count: float) -> str:
    """Return a number of bytes with the largest unit that leaves it whole."""
    fits = (f"{int(count / of)}{unit}" for unit, of in _UNITS.items() if count and count % of == 0)
    return next(fits, f"{count}")


def _default(value: Any) -> str:
    """Return a default in the form of the YAML file; nothing if the parameter is empty."""
    if isinstance(value, tuple):
        return f"`{json.dumps(list(value))}`" if value else ""
    return "" if value is None else f"`{value}`"


def in_table(text: str) -> str:
    """Return a text that neither ends a cell nor is markup, except its code."""
    pieces = text.split("`")
    pieces[::2] = [_MARKUP.sub(r"\\\g<0>", piece).replace("<", "&lt;") for piece in pieces[::2]]
    return "`".join(pieces)
