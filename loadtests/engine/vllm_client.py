"""The load on a vLLM server: a closed loop of chat requests over raw connections, as the client sees it.

The client reads as little as it can. Client and API server share a core where there are but two, so a client that
decodes every event would be measured along with the server.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from statistics import median
from typing import Final, NamedTuple

import uvloop

from loadtests.harness import HOST

CONNECTIONS: Final = 8
PATIENCE_S: Final = 120.0
_PROMPT: Final = "hello world " * 100
_MOST_BYTES: Final = 1 << 20
_ALL_TOKENS: Final = b'"finish_reason":"length"'


class Shape(NamedTuple):
    """One kind of request: so many tokens, streamed or not; ``requests`` make a load of some seconds on two cores."""

    name: str
    tokens: int
    stream: bool
    requests: int

    def request(self, port: int) -> bytes:
        """Return the request as it goes over the wire; the engine must generate all tokens."""
        messages = [{"role": "user", "content": _PROMPT}]
        body = {"model": "tiny", "messages": messages, "max_tokens": self.tokens, "ignore_eos": True, "temperature": 0}
        content = json.dumps({**body, "stream": self.stream}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


SHAPES: Final = (Shape("16 tokens", 16, False, 480), Shape("64 tokens streamed", 64, True, 240))


class Seen(NamedTuple):
    """What the client saw of one load: how long it took, and the median time to the first event or the answer."""

    wall_s: float
    first_ms: float


def load(port: int, shape: Shape, requests: int) -> Seen:
    """Send so many requests, one at a time on each connection. Raises ``RuntimeError`` for a wrong answer."""
    return uvloop.run(asyncio.wait_for(_load(port, shape.request(port), requests), PATIENCE_S))


async def _load(port: int, request: bytes, requests: int) -> Seen:
    turns, firsts = iter(range(requests)), list[float]()
    connections = [
        await asyncio.open_connection(HOST, port, limit=_MOST_BYTES) for _ in range(min(CONNECTIONS, requests))
    ]
    started = time.perf_counter()
    try:
        await asyncio.gather(*(_work(*connection, request, turns, firsts) for connection in connections))
    finally:
        for _, writer in connections:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in connections), return_exceptions=True)
    return Seen(time.perf_counter() - started, median(firsts) * 1e3)


async def _work(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    request: bytes,
    turns: Iterator[int],
    firsts: list[float],
) -> None:
    for _ in turns:
        asked = time.perf_counter()
        writer.write(request)
        head, answer = await reader.readuntil(b"\r\n\r\n"), b""
        _, is_whole, length = head.partition(b"content-length: ")
        if not is_whole:
            answer = await reader.readuntil(b"\n\n")
        else:
            answer = await reader.readexactly(int(length.partition(b"\r\n")[0]))
        firsts.append(time.perf_counter() - asked)
        answer += b"" if is_whole else await reader.readuntil(b"\r\n0\r\n\r\n")
        # Also proves that all tokens were generated: an engine that stops early is another load.
        if not head.startswith(b"HTTP/1.1 200") or _ALL_TOKENS not in answer:
            raise RuntimeError(f"the server's answer is not what was asked for:\n{(head + answer)[:1000]!r}")
