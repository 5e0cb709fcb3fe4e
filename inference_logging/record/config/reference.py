"""The reference of all parameters, as Markdown: `docs/parameters.md` is what `inference-logging config docs` prints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from inference_logging.record.config.config import ENV_PREFIX, Config, Parameter

_HEAD = """\
# Parameters

Printed by `inference-logging config docs`; a test fails while this file says something else.

There are {count} parameters. The first table has the {visible} that a server's configuration may need. The second
has the {advanced} others, whose defaults suit nearly every server. A parameter is a keyword
(`Config(queue_bytes="32MiB")`), a variable (`{prefix}QUEUE_BYTES=32MiB`) or a key of the YAML file. Keywords
and the file may have those of the second table in the group `advanced`; each stands inside or outside of the group, not
in both places:

```yaml
version: 1
queue_bytes: 32MiB
advanced:
  flush_records: 1000
```
"""
# An underscore within a word is none. `<` is an entity: not every reader of Markdown takes a backslash before it.
_MARKUP = re.compile(r"[\\|*]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
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
    words = [parameter.type, _default(parameter.default), parameter.unit, parameter.meaning, parameter.allowed]
    return [f"`{parameter.name}`", *(in_table(word) for word in words)]


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
