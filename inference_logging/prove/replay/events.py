"""What an answer says in its bytes: whether a message of a stream has content or an error, and the token counts.

The rules are those of the recording: an event without text (a role, a beginning, an end, usage, `[DONE]`, a ping) is
not a chunk, and an event `error` is the end of a failed answer.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import orjson

_USAGE: Final = re.compile(rb'"usage"\s*:\s*\{')
_ERROR_NAME: Final = re.compile(rb"event:\s*(error|response\.failed)\s*[\r\n]")
_ERROR_OBJECT: Final = re.compile(rb'data:\s*\{\s*"error"')
_DONE: Final = b"[DONE]"
_BETWEEN: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
"""What ends an event."""
_NAME: Final = re.compile(rb"^event: ?(\S+)", re.MULTILINE)
_KEEP_ALIVE: Final = frozenset({"ping", "keepalive", "keep-alive", "keep_alive", "heartbeat"})
_APIS: Final = ("message_", "content_block_", "response.", "transcript.", "speech.", "error")
"""Types of events by which their API is known: what adds no text is then only a frame. So is an event with these:"""
_FRAMES: Final = frozenset({"choices", "candidates", "token", "content_block", "text_output", "done", "stop", "error"})
_ROOTS: Final = frozenset(
    {"choices", "delta", "message", "content_block", "candidates", "token", "content", "text_output", "thinking",
     "response", "audio", "partial_image_b64"}
)  # fmt: skip
"""Where an event has texts, and what they are called there."""
_TEXTS: Final = frozenset(
    {"content", "refusal", "reasoning_content", "reasoning", "thinking", "text", "data", "transcript", "partial_json",
     "delta", "text_output", "response", "audio", "partial_image_b64"}
)  # fmt: skip
_CALLS: Final = frozenset({"function", "custom", "function_call", "functionCall"})


class Usage(NamedTuple):
    """Tokens that the server counted; None: it did not say."""

    input: int | None = None
    output: int | None = None

    def __or__(self, later: Usage) -> Usage:
        """Return both together; a later count replaces an earlier one."""
        return Usage(*(new if new is not None else old for old, new in zip(self, later, strict=True)))


def chunks(message: bytes) -> int:
    """Return how many events of a message of an event stream add to the answer."""
    return sum(map(_is_chunk, _BETWEEN.split(message)))


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


def _is_chunk(event: bytes) -> bool:
    """Return whether an event adds content, reasoning or a tool call; one of an unknown form does."""
    data = b"\n".join(_data(event))
    if not data.strip() or data == _DONE:
        return False
    found = _object(data)
    named = _NAME.search(event)
    kind = str(found.get("type") or (named[1].decode(errors="replace") if named else ""))
    if kind in _KEEP_ALIVE:
        return False
    frames = kind.startswith(_APIS) or _FRAMES & found.keys() or found.keys() == {"usage"}
    return any(_adds(key, found[key]) for key in _ROOTS & found.keys()) or not frames


def _adds(key: str, value: Any, parent: str = "") -> bool:
    if isinstance(value, dict):
        return key != "response" and any(_adds(name, one, key) for name, one in value.items() if name != "logprobs")
    if isinstance(value, list):
        return any(_adds(key, one, parent) for one in value)
    if isinstance(value, str):
        return value != "" and (key in _TEXTS or parent in _CALLS)
    return key == "token_ids" and isinstance(value, int)


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _count(usage: dict[str, Any], *names: str) -> int | None:
    return next((usage[name] for name in names if isinstance(usage.get(name), int)), None)
