"""Many requests in one process behind the middleware, and what their records say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from inference_logging import InferenceLoggingMiddleware
from tests.kit.signatures import Message, Receive, Send
from tests.kit.support import Recorded, body_messages, http_scope
from tests.truth.events import SSE, Stream

_AT_ONCE: Final = 500
"""Requests between two looks at the queue, so that it never is full."""


class EngineDeadError(RuntimeError):
    """The application fails in the middle of an answer."""


@dataclass(frozen=True)
class Sent:
    """An answer as the application hands it out: its body messages, and whether the last one ends it."""

    stream: Stream
    parts: tuple[bytes, ...]
    last_ends: bool = False
    cut: str = "whole"
    ending: str = "whole"
    """`whole`, `left`: the client goes after the last part, or `raised`: the application fails there."""

    def messages(self) -> list[Message]:
        """Return the messages after the start."""
        last = len(self.parts) - 1
        made: list[Message] = [
            {"type": "http.response.body", "body": part, "more_body": not (self.last_ends and at == last)}
            for at, part in enumerate(self.parts)
        ]
        ended = self.last_ends or self.ending != "whole"
        return made if ended else [*made, {"type": "http.response.body", "body": b"", "more_body": False}]

    def start(self) -> Message:
        """Return the start of the answer."""
        more = "; charset=utf-8" if self.last_ends and self.stream.content_type == SSE else ""
        headers = [(b"content-type", f"{self.stream.content_type}{more}".encode())]
        if self.stream.encoding:
            headers.append((b"content-encoding", self.stream.encoding.encode()))
        return {"type": "http.response.start", "status": 200, "headers": headers}

    def __str__(self) -> str:
        return f"{self.stream.api}, {self.stream.shape}, {self.cut}"


class Stage:
    """One application behind the middleware, which sends what it is given, request after request."""

    def __init__(self, recorded: Recorded) -> None:
        """Take where the records go."""
        self._recorded = recorded
        self._number = 0
        self._sent: Sent | None = None
        self._app: InferenceLoggingMiddleware = recorded.wrap(self._play)

    async def _play(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        assert self._sent is not None
        await receive()
        await send(self._sent.start())
        for message in self._sent.messages():
            await send(message)
        if self._sent.ending == "left":
            assert (await receive())["type"] == "http.disconnect"
        elif self._sent.ending == "raised":
            raise EngineDeadError

    def records(self, sent: Iterable[Sent]) -> Iterator[tuple[Sent, Mapping[str, Any]]]:
        """Serve each, and give it with its record."""
        for answer, record in self.found(sent):
            assert record, f"no record of {answer}"
            yield answer, record

    def found(self, sent: Iterable[Sent]) -> Iterator[tuple[Sent, Mapping[str, Any]]]:
        """Serve each, and give it with its record, which is empty if there is none."""
        numbered: dict[str, Sent] = {}
        asyncio.run(self._serve(sent, numbered))
        found = {record["client_request_id"]: record for record in self._recorded.records("request")}
        for name, answer in numbered.items():
            yield answer, found.get(name, {})

    async def _serve(self, sent: Iterable[Sent], numbered: dict[str, Sent]) -> None:
        for answer in sent:
            self._number += 1
            name = f"truth-{self._number}"
            numbered[name] = self._sent = answer
            headers = [(b"content-type", b"application/json"), (b"x-request-id", name.encode())]
            incoming = iter([*body_messages(answer.stream.request()), {"type": "http.disconnect"}])
            with contextlib.suppress(EngineDeadError):
                await self._app(http_scope(answer.stream.path, "POST", headers), _receiving(incoming), _swallow)
            if self._number % _AT_ONCE == 0:
                assert self._recorded.logger.flush(180), "the listener does not write"


def _receiving(incoming: Iterator[Message]) -> Receive:
    async def receive() -> Message:
        return next(incoming)

    return receive


async def _swallow(message: Message) -> None: ...


def cut_at_every_byte(stream: Stream) -> Iterator[Sent]:
    """Give the body in two messages, cut at each place."""
    body = stream.body()
    for at in range(1, len(body)):
        yield Sent(stream, (body[:at], body[at:]), at % 2 == 0, f"cut at byte {at}")


def usual_cuts(stream: Stream) -> Iterator[Sent]:
    """Give the body by events, by bytes, by twos and threes of events, in one message, and with nothing in between."""
    body, parts = stream.body(), tuple(stream.parts())
    yield Sent(stream, parts, cut="an event a message")
    yield Sent(stream, parts, last_ends=True, cut="an event a message, the last one ends it")
    yield Sent(stream, tuple(body[at : at + 1] for at in range(len(body))), cut="a byte a message")
    yield Sent(stream, (body,), cut="one message")
    yield Sent(stream, (body,), last_ends=True, cut="one message that ends it")
    for events in (2, 3):
        joined = tuple(b"".join(parts[at : at + events]) for at in range(0, len(parts), events))
        yield Sent(stream, joined, cut=f"{events} events a message")
    for pieces in (2, 3):
        cut = [_pieces(part, pieces) for part in parts]
        yield Sent(stream, tuple(piece for part in cut for piece in part), cut=f"{pieces} messages an event")
    yield Sent(stream, tuple(piece for part in parts for piece in (b"", part, b"")), cut="empty messages between")


def _pieces(part: bytes, count: int) -> list[bytes]:
    size = -(-len(part) // count)
    return [part[at : at + size] for at in range(0, len(part), size)]
