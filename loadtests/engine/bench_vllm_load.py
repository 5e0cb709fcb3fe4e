"""The load on a vLLM server: a closed loop of chat requests over raw asyncio connections, as the client sees it.

The client reads as little as it can: it counts events and notes when they came. Client and API server share a core
where there are but two, so a client that decodes every event would be measured along with the server.

Events that arrive in one read have a gap of 0 between them, as in vLLM's own benchmark.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, cast

import uvloop

from loadtests.cost.bench_report import percentile

HOST: Final = "127.0.0.1"
CONNECTIONS: Final = 8
PATIENCE_S: Final = 120.0
CHAT: Final = "/v1/chat/completions"

_PROMPT: Final = "hello world " * 100
_EVENT: Final = b"data: "
_END_OF_CHUNKS: Final = b"\r\n0\r\n\r\n"
_ALL_TOKENS: Final = b'"finish_reason":"length"'


@dataclass(frozen=True)
class Shape:
    """One kind of request: so many tokens, streamed or not; the engine must generate all of them."""

    name: str
    tokens: int
    stream: bool
    requests: int
    """How many make one load: some seconds on two cores."""

    def request(self, port: int) -> bytes:
        """Return the request as it goes over the wire."""
        body = {
            "model": "tiny",
            "messages": [{"role": "user", "content": _PROMPT}],
            "max_tokens": self.tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": self.stream,
        }
        content = json.dumps(body).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


SHAPES: Final = (Shape("16 tokens", 16, False, 480), Shape("64 tokens streamed", 64, True, 240))


@dataclass
class Seen:
    """What the client saw of one load: how long all of it took, and seconds of each request and each gap."""

    wall_s: float = 0.0
    requests: int = 0
    first_s: list[float] = field(default_factory=list)
    """Per request: until the first event of a stream, or until the whole of an answer that is not streamed."""
    gaps_s: list[float] = field(default_factory=list)

    def first_ms(self) -> float:
        """Return the median time to the first token; of an answer that is not streamed, to all of them."""
        return percentile(sorted(self.first_s), 0.5) * 1e3

    def gap_ms(self, share: float) -> float:
        """Return the gap between two events that ``share`` of them stay below; 0 where nothing was streamed."""
        return percentile(sorted(self.gaps_s), share) * 1e3 if self.gaps_s else 0.0


def load(port: int, shape: Shape, requests: int) -> Seen:
    """Send so many requests, one at a time on each connection. Raises ``RuntimeError`` for a wrong answer."""
    return uvloop.run(asyncio.wait_for(_load(port, shape, requests), PATIENCE_S))


async def _load(port: int, shape: Shape, requests: int) -> Seen:
    seen = Seen(requests=requests)
    connections = [await _connect(port, seen) for _ in range(min(CONNECTIONS, requests))]
    turns = iter(range(requests))
    request = shape.request(port)
    started = time.perf_counter()
    try:
        await asyncio.gather(*(_work(connection, request, turns) for connection in connections))
    finally:
        for connection in connections:
            connection.close()
    seen.wall_s = time.perf_counter() - started
    return seen


async def _connect(port: int, seen: Seen) -> Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection(loop, seen), HOST, port)
    return connection


async def _work(connection: Connection, request: bytes, turns: Iterator[int]) -> None:
    for _ in turns:
        answer = await connection.ask(request)
        # Also proves that all tokens were generated: an engine that stops early is another load.
        if not answer.startswith(b"HTTP/1.1 200") or _ALL_TOKENS not in answer:
            raise RuntimeError(f"the server's answer is not what was asked for:\n{answer[:1000]!r}")


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seen: Seen) -> None:
        self._loop, self._seen = loop, seen
        self._transport: asyncio.WriteTransport | None = None
        self._answered: asyncio.Future[bytes] | None = None
        self._read: list[bytes] = []
        self._missing: int | None = None
        self._events_at = 0.0
        self._asked_at = 0.0

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        """Send a request; the answer comes as it was read."""
        if self._transport is None:
            raise RuntimeError("the server closed a connection")
        self._read, self._missing, self._events_at = [], None, 0.0
        self._answered = self._loop.create_future()
        self._asked_at = time.perf_counter()
        self._transport.write(request)
        return self._answered

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what writes."""
        self._transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the answer that is waited for."""
        self._transport = None
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(exc or ConnectionError("the server closed the connection in an answer"))

    def data_received(self, data: bytes) -> None:
        """Note when events came, and whether the answer is whole."""
        now = time.perf_counter()
        self._read.append(data)
        if events := data.count(_EVENT):
            self._note(now, events)
        if self._is_whole(data) and self._answered is not None:
            if not self._events_at:
                self._seen.first_s.append(now - self._asked_at)
            self._answered.set_result(b"".join(self._read))

    def _note(self, now: float, events: int) -> None:
        if self._events_at:
            self._seen.gaps_s.append(now - self._events_at)
        else:
            self._seen.first_s.append(now - self._asked_at)
        self._seen.gaps_s.extend([0.0] * (events - 1))
        self._events_at = now

    def _is_whole(self, data: bytes) -> bool:
        if len(self._read) == 1:
            self._missing = _announced(data)
        if self._missing is None:
            return b"".join(self._read[-2:]).endswith(_END_OF_CHUNKS)
        self._missing -= len(data)
        return self._missing == 0


def _announced(first_read: bytes) -> int | None:
    """Return how many bytes an answer has, headers included, which servers write at once; None for one in chunks."""
    head, _, _ = first_read.partition(b"\r\n\r\n")
    _, found, length = head.partition(b"content-length: ")
    return len(head) + 4 + int(length.partition(b"\r\n")[0]) if found else None
