"""New records as they are written, as server-sent events: each once, in a few messages a second."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncIterator
from typing import Final

import orjson
from starlette.requests import Request

from inference_logging.read.view.arrivals import Arrivals
from inference_logging.read.view.refresher import Refresher
from inference_logging.read.view.workers import BusyError, GoneError, Workers

INTERVAL_S: Final = 0.25
"""Between two messages with rows."""
MOST_ROWS: Final = 500
"""Of a message; of more the newest, and the number of the others."""
MOST_STREAMS: Final = 16
_PROGRESS_S: Final = 1.0
_PING_S: Final = 15.0


class Seat:
    """One of the places for streams; it is free when the stream ends, or if it never begins."""

    __slots__ = ("__weakref__",)


class Live:
    """The streams of one server."""

    def __init__(self, refresher: Refresher, workers: Workers) -> None:
        """Begin without a stream."""
        self._refresher, self._workers = refresher, workers
        self._seats: weakref.WeakSet[Seat] = weakref.WeakSet()
        self._closed = asyncio.Event()

    def close(self) -> None:
        """End all streams."""
        self._closed.set()

    def is_full(self) -> bool:
        """Return whether there are as many streams as there may be."""
        return len(self._seats) >= MOST_STREAMS

    def seat(self) -> Seat:
        """Take a place, before anything is awaited. Raises ``BusyError`` if there is none."""
        if self.is_full():
            raise BusyError
        seat = Seat()
        self._seats.add(seat)
        return seat

    async def events(
        self,
        request: Request,
        arrivals: Arrivals,
        seat: Seat,
    ) -> AsyncIterator[bytes]:
        """Iterate over the messages until the client leaves, or the server ends."""
        try:
            yield b"retry: 1000\n\n"
            async for message in self._messages(request, arrivals):
                yield message
        except (BusyError, GoneError):
            return  # the browser connects again
        finally:
            self._seats.discard(seat)

    async def _messages(self, request: Request, arrivals: Arrivals) -> AsyncIterator[bytes]:
        seen, sent_s, said, said_s = -1, time.monotonic(), b"", 0.0
        while not await self._pause():
            now_s, looks = time.monotonic(), self._refresher.looks
            if now_s - said_s >= _PROGRESS_S and said != (progress := orjson.dumps(self._refresher.progress)):
                yield _event("progress", progress)
                said, said_s, sent_s = progress, now_s, now_s
            if looks != seen:
                seen = looks
                rows, skipped = await self._workers.run(request, lambda _: arrivals.next(MOST_ROWS))
                if rows:
                    yield _event("rows", orjson.dumps({"rows": rows, "skipped": skipped}))
                    sent_s = now_s
            if now_s - sent_s >= _PING_S:
                yield b": ping\n\n"
                sent_s = now_s

    async def _pause(self) -> bool:
        """Wait for the next round; return whether the server ends."""
        try:
            await asyncio.wait_for(self._closed.wait(), INTERVAL_S)
        except asyncio.TimeoutError:
            return False
        return True


def _event(name: str, content: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + content + b"\n\n"
