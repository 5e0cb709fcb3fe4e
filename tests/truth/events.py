"""Events as an API's documentation has them, and what is true of each: said by the builder that makes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

Kind = Literal["content", "reasoning", "tool", "frame", "usage", "end", "keep-alive", "error"]

CHUNKS: Final = ("content", "reasoning", "tool")
"""Kinds that a client shows, or acts on."""

FRAMES: Final = ("frame", "usage", "end")
"""Kinds that carry no text."""

SSE: Final = "text/event-stream"
NDJSON: Final = "application/x-ndjson"
JSON: Final = "application/json"


@dataclass(frozen=True)
class Event:
    """One event: its name and data, and what is known once it has passed."""

    kind: Kind
    data: Any = None
    """What is written as JSON; bytes are written as they are."""
    name: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the record that hold from here on."""
    wire: bytes | None = None
    """The bytes, where they follow no framing."""


@dataclass(frozen=True)
class Framing:
    """A way in which a server may write the same events; the protocol gives all of them one meaning."""

    line_end: bytes = b"\n"
    space: bool = True
    before: tuple[bytes, ...] = ()
    """Lines before the other ones of each event: comments, `id`, `retry`."""
    mark: bytes = b""
    """A byte order mark."""
    name_last: bool = False
    """Whether `event` stands behind `data`."""
    loose: bool = False
    """Whether the JSON has spaces and is cut into several `data` lines, which it may be between two of its tokens."""
    ascii_only: bool = True

    def write(self, event: Event, content_type: str) -> bytes:
        """Return the bytes of one event."""
        if event.wire is not None:
            return event.wire
        text = event.data if isinstance(event.data, bytes) else self._json(event.data)
        if content_type != SSE:
            return text + self.line_end
        after = b": " if self.space else b":"
        data = [b"data" + after + line for line in text.split(b"\n")]
        name = [b"event" + after + event.name.encode()] if event.name else []
        lines = [*self.before, *(data + name if self.name_last else name + data), b""]
        return b"".join(line + self.line_end for line in lines)

    def _json(self, data: Any) -> bytes:
        separators = (", ", ": ") if self.loose else (",", ":")
        text = json.dumps(data, separators=separators, ensure_ascii=self.ascii_only)
        # An object begins by its brace, so a line may end behind it.
        return (text[0] + "\n" + text[1:] if self.loose and text[0] == "{" else text).encode()


PLAIN: Final = Framing()


@dataclass(frozen=True)
class Stream:
    """An answer of an API, event by event."""

    api: str
    shape: str
    path: str
    events: tuple[Event, ...]
    content_type: str = SSE
    framing: Framing = PLAIN
    encoding: str = ""
    """The content encoding of the body, if it has one."""

    def parts(self) -> list[bytes]:
        """Return the body, one part an event."""
        parts = [self.framing.write(event, self.content_type) for event in self.events]
        return [self.framing.mark + parts[0], *parts[1:]] if parts else []

    def body(self) -> bytes:
        """Return the whole body."""
        return b"".join(self.parts())

    def with_events(self, shape: str, *events: Event) -> Stream:
        """Return the same stream with other events."""
        return replace(self, shape=shape, events=events)

    def before(self, count: int) -> Stream:
        """Return the stream as far as its first ``count`` events."""
        return replace(self, events=self.events[:count])

    def request(self) -> bytes:
        """Return the body of a request that asks for it."""
        return json.dumps(
            {"model": "asked-for", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        ).encode()


FIELDS: Final = (
    "outcome",
    "error.type",
    "error.code",
    "chunks",
    "stream.frames",
    "stream.keep_alives",
    "stream.compressed",
    "gen_ai.response.id",
    "gen_ai.response.model",
    "gen_ai.response.finish_reasons",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.cache_read.input_tokens",
)
"""What every cut of a stream has to leave alike. A field without a truth is expected to be absent."""


@dataclass(frozen=True)
class Optional:
    """What is true, but need not be recorded."""

    value: Any


def truth(stream: Stream, outcome: str = "ok") -> dict[str, Any]:
    """Return the fields of the record that a stream has to leave, if all of its events were sent."""
    kinds = [event.kind for event in stream.events]
    facts: dict[str, Any] = {"outcome": outcome}
    for event in stream.events:
        facts.update(event.facts)
        if event.kind == "error":
            facts["outcome"] = "error"
    facts["chunks"] = sum(kind in CHUNKS for kind in kinds)
    facts["stream.frames"] = sum(kind in FRAMES for kind in kinds)
    facts["stream.keep_alives"] = kinds.count("keep-alive")
    return {key: value for key, value in facts.items() if value}


def errors(stream: Stream) -> int:
    """Return how many of its events report a failure."""
    return sum(event.kind == "error" for event in stream.events)


def differences(
    expected: Mapping[str, Any], record: Mapping[str, Any], fields: tuple[str, ...] = FIELDS, spare_frames: int = 0
) -> list[tuple[str, Any, Any]]:
    """Return field, truth and what is recorded, where they differ.

    Whether an event that reports a failure is also counted as a frame is left open: ``spare_frames`` of them.
    """
    found = []
    for name in fields:
        true, recorded = expected.get(name), record.get(name) or None
        if isinstance(true, Optional):
            true = true.value if recorded is not None else None
        if name == "stream.frames" and (recorded or 0) - (true or 0) in range(spare_frames + 1):
            continue
        if true != recorded:
            found.append((name, true, recorded))
    return found


def failure(kind: str = "stream_error", code: str | None = None) -> dict[str, Any]:
    """Return the facts of an event that reports a failure."""
    return {"error.type": kind, "error.code": code}


COMMENT: Final = Event("keep-alive", wire=b": keep-alive\n\n")
EMPTY_DATA: Final = Event("keep-alive", wire=b"data:\n\n")
PING: Final = Event("keep-alive", {"type": "ping"}, "ping")
SPACED_PING: Final = Event("keep-alive", wire=b'event: ping\ndata: {"type": "ping"}\n\n')
PING_COMMENT: Final = Event("keep-alive", wire=b": ping - 2026-01-01 00:00:00+00:00\r\n\r\n")
"""As libraries of servers write it after some seconds of waiting."""
BLANK_LINES: Final = Event("keep-alive", wire=b"\n\n")
"""Only as a body message of its own: cut in two, it is two of them."""
