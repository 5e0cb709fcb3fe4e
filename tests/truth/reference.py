"""The slow reader that judges: whole bytes, one line after the other, every event parsed as JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.truth.events import CHUNKS, FRAMES, SSE

_DELTAS = {
    "response.output_text.delta": "content",
    "response.refusal.delta": "content",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.function_call_arguments.delta": "tool",
    "transcript.text.delta": "content",
}
_MEMBERS = (
    ("content", "content"),
    ("refusal", "content"),
    ("reasoning_content", "reasoning"),
    ("reasoning", "reasoning"),
    ("thinking", "reasoning"),
    ("tool_calls", "tool"),
    ("function_call", "tool"),
    ("images", "content"),
)
_BLOCK_DELTAS = {"text_delta": ("content", "text"), "thinking_delta": ("reasoning", "thinking")}
_BLOCK_DELTAS["input_json_delta"] = ("tool", "partial_json")


@dataclass
class Read:
    """What a reader knows when a stream has ended."""

    kinds: Counter[str] = field(default_factory=Counter)
    order: list[str] = field(default_factory=list)
    error: tuple[str, str | None] | None = None

    def note(self, kind: str) -> None:
        self.kinds[kind] += 1
        self.order.append(kind)

    def facts(self) -> dict[str, Any]:
        """Return the fields of the record that follow."""
        facts: dict[str, Any] = {"outcome": "error" if self.error else "ok"}
        if self.error:
            facts["error.type"], facts["error.code"] = self.error
        facts["chunks"] = sum(self.kinds[kind] for kind in CHUNKS)
        facts["stream.frames"] = sum(self.kinds[kind] for kind in FRAMES)
        facts["stream.keep_alives"] = self.kinds["keep-alive"]
        return {key: value for key, value in facts.items() if value}


def read(body: bytes, content_type: str) -> Read:
    """Read a whole body."""
    found = Read()
    for name, data in _events(body) if content_type == SSE else _lines(body):
        kind, error = _kind(name, data)
        found.note(kind)
        if error and not found.error:
            found.error = error
    return found


def _events(body: bytes) -> Iterator[tuple[str, str | None]]:
    """Give each event's name and data by the rules of the WHATWG; a block of comments alone has no data."""
    text = body.decode("utf-8", "replace").removeprefix("\ufeff")
    name, data, has_comment = "", None, False
    for line in re.split("\r\n|\n|\r", text)[:-1]:
        if not line:
            if data is not None or has_comment or name:
                yield name, data
            name, data, has_comment = "", None, False
            continue
        if line.startswith(":"):
            has_comment = True
            continue
        key, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if key == "event":
            name = value
        elif key == "data":
            data = value if data is None else f"{data}\n{value}"


def _lines(body: bytes) -> Iterator[tuple[str, str | None]]:
    for line in body.split(b"\n"):
        if line.strip():
            yield "", line.decode()


def _kind(name: str, data: str | None) -> tuple[str, tuple[str, str | None] | None]:
    if not data or name == "ping":
        return "keep-alive", None
    if data == "[DONE]":
        return "end", None
    try:
        event = json.loads(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        return ("error", ("stream_error", None)) if name == "error" else ("content", None)
    if error := _error(name, event):
        return "error", error
    if event.get("type") == "ping":
        return "keep-alive", None
    return _content(event), None


def _error(name: str, event: dict[str, Any]) -> tuple[str, str | None] | None:
    response = event.get("response")
    inner = response.get("error") if event.get("type") == "response.failed" and isinstance(response, dict) else None
    choices = event.get("choices") or []
    inner = inner or next(filter(_says_something, (one.get("error") for one in (event, *choices))), None)
    failed = name == "error" or event.get("type") in ("error", "response.failed")
    failed = failed or any(str(choice.get("finish_reason")).lower().startswith("error") for choice in choices)
    if not (inner or failed):
        return None
    body = inner if isinstance(inner, dict) else event
    kind = body.get("status") or body.get("type") if body is inner else event.get("error_type")
    code = body.get("code")
    return kind or "stream_error", None if code is None else str(code)


def _says_something(error: Any) -> bool:
    return any(error.values()) if isinstance(error, dict) else bool(error)


def _content(event: dict[str, Any]) -> str:
    kind = str(event.get("type", ""))
    if kind in _DELTAS:
        return _DELTAS[kind] if event["delta"] else "frame"
    if kind == "content_block_delta":
        kind, key = _BLOCK_DELTAS.get(event["delta"]["type"], ("frame", ""))
        return kind if event["delta"].get(key) else "frame"
    if kind:
        return "frame"
    if "choices" in event:
        return next(filter(None, map(_choice, event["choices"])), "frame")
    if "candidates" in event:
        return _parts(event["candidates"][0]["content"]["parts"])
    if "token" in event:
        return "content" if event["token"]["text"] else "frame"
    if "message" in event and "done" in event:
        return _message(event["message"]) or "frame"
    for key in ("response", "text_output", "content"):
        if key in event and ({"done", "model_name", "stop"} & event.keys()):
            return "content" if event[key] else "reasoning" if event.get("thinking") else "frame"
    return "content"


def _choice(choice: dict[str, Any]) -> str | None:
    return "content" if choice.get("text") else _message(choice.get("delta", {}))


def _message(message: dict[str, Any]) -> str | None:
    """Return what is first of what a message may have; a message of Ollama is one too."""
    content = message.get("content")
    if isinstance(content, list):
        return "reasoning" if any(part.get("thinking") for part in content) else "content" if content else None
    return next((kind for key, kind in _MEMBERS if message.get(key)), None)


def _parts(parts: list[dict[str, Any]]) -> str:
    for part in parts:
        if part.get("text"):
            return "reasoning" if part.get("thought") else "content"
        if "functionCall" in part:
            return "tool"
        if "executableCode" in part:
            return "content"
    return "frame"
