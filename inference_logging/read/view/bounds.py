"""Answers that stay small: long texts of rows are cut, and say so."""

from __future__ import annotations

from typing import Any, Final

import orjson

MOST_BYTES: Final = 8 << 20
"""The largest answer. A browser shows one line of a row; the panel of a record asks for all of it."""
_TEXT_CHARACTERS: Final = (10_000, 1_000, 100, 10)
"""What is left of each text, the first that is enough."""


def bounded(content: bytes) -> bytes:
    """Return an answer with rows in at most about ``MOST_BYTES``: its long texts are cut, each with its length."""
    if len(content) <= MOST_BYTES:
        return content
    answer = orjson.loads(content)
    for characters in _TEXT_CHARACTERS:
        content = orjson.dumps({**answer, "rows": [_cut(row, characters) for row in answer.get("rows", [])]})
        if len(content) <= MOST_BYTES:
            break
    return content


def _cut(value: Any, characters: int) -> Any:
    if isinstance(value, str) and len(value) > characters:
        return f"{value[:characters]} … ({len(value):,} characters)"
    if isinstance(value, dict):
        return {name: _cut(one, characters) if name != "key" else one for name, one in value.items()}
    if isinstance(value, list):
        kept = [_cut(one, characters) for one in value[:characters]]
        return [*kept, f"… ({len(value):,} values)"] if len(value) > characters else kept
    return value
