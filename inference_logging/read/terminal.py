"""Text that is safe on a terminal: a client's text can't move the cursor, set the title or turn the line around.

Records hold text of strangers (paths, ids, model names). Every command writes record text through this module only.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from inference_logging._native import terminal_is_word, terminal_safe

TOO_DEEP: Final = "<nested too deep>"
MOST_LEVELS: Final = 200
"""What lies deeper is not printed. Lines of this package have 30."""


def safe(text: str) -> str:
    r"""Return ``text`` on one line without control characters: each is escaped as in JSON, ``\u001b``."""
    return terminal_safe(text)


def word(value: Any) -> str:
    """Return a value as one word of a ``key=value`` line, quoted as JSON if it would not be one word."""
    return value if isinstance(value, str) and terminal_is_word(value) else as_json(value)


def as_json(value: Any) -> str:
    """Return ``value`` as compact JSON that is the same to a parser and safe on a terminal."""
    try:
        encoded = orjson.dumps(value)
    except TypeError:
        encoded = orjson.dumps(_cut(value, MOST_LEVELS))
    # All unsafe characters stand within strings there, where an escape has the same meaning.
    return safe(encoded.decode())


def _cut(value: Any, levels: int) -> Any:
    """Return a value without what lies deeper."""
    if not isinstance(value, dict | list):
        return value
    if not levels:
        return TOO_DEEP
    if isinstance(value, dict):
        return {name: _cut(inner, levels - 1) for name, inner in value.items()}
    return [_cut(inner, levels - 1) for inner in value]
