"""Engine requests that ended, until their HTTP request takes them; bounded in number and age.

vLLM reports the end of an engine request before the last message of its HTTP answer, so they usually wait for less than
a millisecond. An abort is reported after it: then the HTTP request has left a note, and later ends are recorded at
once, with its ids. A request that is not taken is recorded by itself. All of it runs on the event loop: no locks.

The id of an engine request is that of its HTTP request (``chatcmpl-x``), or that and an index (``cmpl-x-0``,
``resp_x_1``). HTTP requests that share an id while both run (a client's own ``X-Request-Id``) cannot be distinguished.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sized

from inference_logging._native import RequestIds
from inference_logging.integrations.vllm.records import ID_CHARACTERS, EngineRequests, Finished, merge

WAITING_LIMIT = 4096
"""Engine requests that wait at most; above that the oldest are recorded by themselves. About 2 MiB."""
WAITING_S = 30.0
"""Longest time one waits when none of its HTTP request runs any more."""
NOTES_LIMIT = 1024
NOTE_S = 10.0
"""How long a note is good for: the same id may come again, and means another request then."""

_INDEX = re.compile(r"[-_]\d{1,5}\Z")


class Note:
    """The note of an HTTP request that ends before ``left`` of its engine requests."""

    __slots__ = ("ids", "left", "until")

    def __init__(self, ids: RequestIds | None, left: int, until: float) -> None:
        self.ids, self.left, self.until = ids, left, until


class Waiting:
    """The table; ``running`` maps the ids of engine requests that run to as many things as run under each."""

    def __init__(
        self,
        emit: Callable[[Finished, RequestIds | None], object],
        running: Mapping[str, Sized],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._emit = emit
        self._running = running
        self._clock = clock
        self._entries: dict[str, tuple[float, list[Finished]]] = {}
        self._notes: dict[str, Note] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, entry: Finished) -> None:
        """Keep ``entry`` until it is taken, or record it now if its HTTP request has ended before."""
        if self._notes and self._noted(entry):
            return
        name = entry.request_id
        if len(name) > ID_CHARACTERS:
            self._emit(entry, None)
            return
        known = self._entries.get(name)
        if known is None:
            self._entries[name] = self._clock(), [entry]
        else:
            known[1].append(entry)
        self._count += 1
        while self._count > WAITING_LIMIT:
            self._record(next(iter(self._entries)))

    def take(self, request_id: str, ids: RequestIds | None) -> EngineRequests | None:
        """Return the ended ones of the HTTP request ``request_id``; note its ``ids`` if more may come."""
        if len(request_id) > ID_CHARACTERS:
            return None
        names = list(self._names(request_id))
        entries = [entry for name in names for entry in self._pop(name)]
        left = sum(len(self._running[name]) for name in names if name in self._running)
        if left or not entries:
            self._leave_note(request_id, Note(ids, max(left, 1), self._clock() + NOTE_S))
        return merge(entries) if entries else None

    def sweep(self) -> None:
        """Record by themselves those that waited too long, unless the rest of their HTTP request still runs."""
        since = self._clock() - WAITING_S
        old = [name for name, (at, _) in self._entries.items() if at < since]
        under_way = {_http_id(name) for name in self._running} if old else set()
        for name in old:
            if _http_id(name) not in under_way:
                self._record(name)

    def clear(self) -> None:
        """Record all by themselves: they will not be taken."""
        for name in list(self._entries):
            self._record(name)

    def _names(self, request_id: str) -> Iterator[str]:
        if request_id in self._entries or request_id in self._running:
            yield request_id
            return
        for separator in "-_":
            at = 0
            while (name := f"{request_id}{separator}{at}") in self._entries or name in self._running:
                yield name
                at += 1

    def _pop(self, name: str) -> list[Finished]:
        _, entries = self._entries.pop(name, (0.0, []))
        self._count -= len(entries)
        return entries

    def _record(self, name: str) -> None:
        for entry in self._pop(name):
            self._emit(entry, None)

    def _leave_note(self, request_id: str, note: Note) -> None:
        self._notes.pop(request_id, None)
        self._notes[request_id] = note
        if len(self._notes) > NOTES_LIMIT:
            del self._notes[next(iter(self._notes))]

    def _noted(self, entry: Finished) -> bool:
        name = entry.request_id
        if name not in self._notes:
            name = _http_id(name)
        note = self._notes.get(name)
        if note is None:
            return False
        note.left -= 1
        if note.left <= 0 or note.until < self._clock():
            del self._notes[name]
        if note.until < self._clock():
            return False
        self._emit(entry, note.ids)
        return True


def _http_id(engine_id: str) -> str:
    """Return the id without its index; one of a client that ends like that is cut, too, which only makes it wait."""
    return _INDEX.sub("", engine_id)
