"""What an answer says in its bytes: whether a message of a stream has content or an error, and the token counts.

The rules are those of the recording: a message that is only `data: [DONE]`, or only usage, is no chunk, and an event
`error` is the end of a failed answer.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import orjson

_USAGE: Final = re.compile(rb'"usage"\s*:\s*\{')
_ERROR_NAME: Final = re.compile(rb"event:\s*(error|response\.failed)\s*[\r\n]")
_ERROR_OBJECT: Final = re.compile(rb'data:\s*\{\s*"error"')
_DONE: Final = b"[DONE]"


class Usage(NamedTuple):
    """Tokens that the server counted; None: it did not say."""

    input: int | None = None
    output: int | None = None

    def __or__(self, later: Usage) -> Usage:
        """Return both together; a later count replaces an earlier one."""
        return Usage(*(new if new is not None else old for old, new in zip(self, later, strict=True)))


def has_content(message: bytes) -> bool:
    """Return whether a message of an event stream carries a part of the answer."""
    if not message.startswith(b"data:") or not (_DONE in message or _USAGE.search(message)):
        return True
    return not all(data == _DONE or _is_only_usage(data) for data in _data(message))


def is_error(message: bytes) -> bool:
    """Return whether a message is the event with which servers end a failed stream, whose status is already sent."""
    if _ERROR_NAME.match(message):
        return True
    if not _ERROR_OBJECT.match(message):
        return False
    event = _object(_data(message)[0])
    return bool(event) and next(iter(event)) == "error" and event["error"] is not None


def usage_of_events(message: bytes) -> Usage:
    """Return what a message of an event stream says."""
    found = Usage()
    if _USAGE.search(message):
        for data in _data(message):
            found |= usage_of(data)
    return found


def usage_of(content: bytes) -> Usage:
    """Return what an answer or an event says, as OpenAI's two APIs and Anthropic's name and place it."""
    found, answer = Usage(), _object(content) if _USAGE.search(content) else {}
    for holder in (answer, answer.get("message"), answer.get("response")):
        usage = holder.get("usage") if isinstance(holder, dict) else None
        if isinstance(usage, dict):
            counts = (
                _count(usage, "prompt_tokens", "input_tokens"),
                _count(usage, "completion_tokens", "output_tokens"),
            )
            found |= Usage(*counts)
    return found


def _data(message: bytes) -> list[bytes]:
    return [line[5:].strip() for line in message.splitlines() if line.startswith(b"data:")]


def _is_only_usage(data: bytes) -> bool:
    event = _object(data)
    return isinstance(event.get("usage"), dict) and (event.get("choices") == [] or list(event) == ["usage"])


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _count(usage: dict[str, Any], *names: str) -> int | None:
    return next((usage[name] for name in names if isinstance(usage.get(name), int)), None)
