"""New records as they are written, as server-sent events: each once, in a few messages a second.

A record is new behind the place in its segment up to which lines were seen. The order of times says nothing about that:
a record can be older than others that were written before it.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
from starlette.requests import Request

from inference_logging.read.segments import Segment, segments
from inference_logging.read.table.table import Table
from inference_logging.read.view.queries import Query, asked
from inference_logging.read.view.workers import BusyError, GoneError, Refresher, Workers

_MOST_TRIES: Final = 20
"""Looks in a row that may find a segment changed, before what is missing there is passed over."""


class Arrivals:
    """The records of a query that are added from now on, each once."""

    def __init__(self, index: Table, directories: Sequence[Path], prefixes: Sequence[str] | None, query: Query) -> None:
        """Begin behind all that the index has. Raises ``QueryError`` for a wrong query."""
        self._index, self._directories, self._prefixes = index, directories, prefixes
        self._query = query
        self._tries = 0
        listed = self._listed()
        sizes = {name: segment.size_bytes() for name, segment in listed.items() if not segment.compressed}
        reached = self._ask(sizes, 1)["reached"]
        # What the index has not reached comes when it does.
        self._places: dict[str, int] = {name: min(reached.get(name, size), size) for name, size in sizes.items()}
        self._sealed = listed.keys() - sizes.keys()

    def next(self, most: int) -> tuple[list[dict[str, Any]], int]:
        """Return the rows that are new, in the order in which they were written, and how many more there were."""
        wanted = self._grown(self._listed())
        if not wanted:
            return [], 0
        answer = self._ask(wanted, most)
        matched = answer["matched"]
        if (matched is None or len(answer["rows"]) < min(matched, most)) and self._tries < _MOST_TRIES:
            self._tries += 1  # a segment has changed under the look: all of it comes with the next one
            return [], 0
        self._tries = 0
        for name, end in answer["reached"].items():
            if name in self._sealed:
                self._places.pop(name, None)
            else:
                self._places[name] = max(end, self._places.get(name, 0))
        rows: list[dict[str, Any]] = sorted(answer["rows"], key=_place)
        return rows, max(0, (matched or 0) - len(rows))

    def _grown(self, listed: Mapping[str, Segment]) -> dict[str, int]:
        """Return the segments that may have more, and the place in each; forget those that are gone."""
        self._places = {name: place for name, place in self._places.items() if name in listed}
        self._sealed &= listed.keys()
        wanted = {}
        for name, segment in listed.items():
            place = self._places.get(name)
            if segment.compressed:
                if place is not None or name not in self._sealed:
                    wanted[name] = place or 0  # its last lines, or all of it
                    self._places.setdefault(name, 0)
                    self._sealed.add(name)
            elif place is None or segment.size_bytes() > place:
                wanted[name] = place or 0
        return wanted

    def _listed(self) -> dict[str, Segment]:
        found: dict[str, Segment] = {}
        for directory in self._directories:
            if directory.is_dir():
                found |= {segment.name: segment for segment in segments(directory, self._prefixes)}
        return found

    def _ask(self, places: Mapping[str, int], most: int) -> dict[str, Any]:
        query = {**self._query, "order": "newest", "segments": places, "limit": most}
        answer: dict[str, Any] = asked(self._index.rows, query)
        return answer


def _place(row: Mapping[str, Any]) -> tuple[str, int]:
    segment, _, offset = str(row["key"]).rpartition(":")
    return segment, int(offset)


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
