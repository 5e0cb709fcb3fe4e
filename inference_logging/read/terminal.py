"""Text that is safe on a terminal: a client's text can't move the cursor, set the title or turn the line around.

Records hold text of strangers (paths, ids, model names). Every command writes record text through this module only.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

# C0, DEL, C1; line and paragraph separators; marks, embeddings, overrides and isolates that reorder text (as in
# "Trojan Source"), invisible characters, tags, and half of a surrogate pair, which no encoding can write.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
TOO_DEEP: Final = "<nested too deep>"
MOST_LEVELS: Final = 200
"""What lies deeper is not printed. Lines of this package have 30."""
_PLAIN_WORD = re.compile(r"[^\s\"=\\]+")


def safe(text: str) -> str:
    r"""Return ``text`` on one line without control characters: each is escaped as in JSON, ``\u001b``."""
    return _UNSAFE.sub(_escaped, text)


def word(value: Any) -> str:
    """Return a value as one word of a ``key=value`` line, quoted as JSON if it would not be one word."""
    if not isinstance(value, str):
        return as_json(value)
    return safe(value) if _PLAIN_WORD.fullmatch(value) and safe(value) == value else as_json(value)


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


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
