"""The prompt of a request as bytes, so that equal beginnings of prompts are equal bytes; and the answer's text.

Both are taken from what the servers have captured: messages as text, messages as hashes, or the body itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

_MAX_HASHED_BYTES: Final = 64 << 20
"""More than the text of any body; a larger length in a record is damaged."""


class Prompt(NamedTuple):
    """The known beginning of a prompt; ``is_whole``: all of it is known."""

    content: bytes
    is_whole: bool


def prompt_of(record: Mapping[str, Any]) -> Prompt | None:
    """Return the prompt of a request record; None if nothing of it is on record."""
    messages = record.get("gen_ai.input.messages")
    if isinstance(messages, list):
        instructions = record.get("gen_ai.system_instructions")
        system = [{"role": "system", "parts": instructions}] if isinstance(instructions, list) else []
        return _joined([*system, *messages], is_cut=bool(record.get("input_truncated")))
    return _of_body(record)


def output_of(record: Mapping[str, Any]) -> Prompt | None:
    """Return the answer of a request record, None if nothing of it is on record."""
    messages = record.get("gen_ai.output.messages")
    return _joined(messages, is_cut=bool(record.get("output_truncated"))) if isinstance(messages, list) else None


def _joined(messages: list[Any], *, is_cut: bool) -> Prompt | None:
    found: list[bytes] = []
    for message in messages:
        if not isinstance(message, dict):
            return None
        found.append(f"\0{message.get('role')}".encode())
        for part in _parts(message):
            content = _content(part)
            if part.get("truncated") or content is None:
                return Prompt(b"".join(found), is_whole=False)
            found.append(f"\0{part.get('type')}\0".encode() + content)
    return Prompt(b"".join(found), is_whole=not is_cut)


def _parts(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    parts = message.get("parts")
    yield from (part for part in (parts if isinstance(parts, list) else ()) if isinstance(part, dict))


def _content(part: Mapping[str, Any]) -> bytes | None:
    """Return the text of a part; of a hashed one as many bytes as it had, which repeat its hash."""
    for member in ("content", "response", "arguments", "uri", "file_id"):
        if isinstance(part.get(member), str):
            return f"{part.get('name', '')}\0{part[member]}".encode("utf-8", "replace")
    digest, length = part.get("hash"), part.get("length")
    if isinstance(digest, str) and digest and isinstance(length, int) and 0 <= length <= _MAX_HASHED_BYTES:
        return (digest.encode() * (length // len(digest) + 1))[: max(length, len(digest))]
    return None


def _of_body(record: Mapping[str, Any]) -> Prompt | None:
    text = record.get("http.request.body")
    if not isinstance(text, str):
        return None
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(body, dict):
        return None
    # As JSON without the closing bracket: a longer conversation begins with the shorter one's bytes.
    asked = [body[name] for name in ("system", "instructions", "messages", "prompt", "input") if name in body]
    return Prompt(orjson.dumps(asked).rstrip(b"]"), is_whole=True) if asked else None
