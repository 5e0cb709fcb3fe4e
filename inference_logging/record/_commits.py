"""Waiting for commits in an event loop: one descriptor per loop, one wake-up for all records of a commit."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import NamedTuple

from inference_logging._native import AuditQueue


class _Waiting(NamedTuple):
    sequence: int
    deadline: float
    future: asyncio.Future[bool]


class LoopCommits:
    """The waiting tasks of one event loop, for commits of this process's audit queue, oldest first.

    Raises ``OSError`` if no descriptor or thread is left.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, queue: AuditQueue) -> None:
        self._loop, self._queue = loop, queue
        self._waiting: deque[_Waiting] = deque()
        self._for_room: list[_Waiting] = []
        self._watch = queue.watch()
        self._timer: asyncio.TimerHandle | None = None
        self._armed = self._asked = False
        loop.add_reader(self._watch.fileno(), self._look)

    def wait(self, sequence: int, wait_s: float) -> asyncio.Future[bool]:
        """Return a future: True once every record before ``sequence`` is committed, False after ``wait_s``."""
        waiting = _Waiting(sequence, self._loop.time() + wait_s, self._loop.create_future())
        self._waiting.append(waiting)
        self._expect(waiting)
        return waiting.future

    def wait_for_room(self, wait_s: float) -> asyncio.Future[bool]:
        """Return a future: True after the next commit, False after ``wait_s``."""
        waiting = _Waiting(0, self._loop.time() + wait_s, self._loop.create_future())
        self._for_room.append(waiting)
        self._expect(waiting)
        return waiting.future

    def close(self) -> None:
        """End the watch; for every task that still waits, nothing was committed."""
        if not self._loop.is_closed():
            # From any thread: the loop may run in another one.
            self._loop.call_soon_threadsafe(self._end)
        self._watch.close()

    def _expect(self, waiting: _Waiting) -> None:
        if not self._asked:
            # After all tasks that are ready have made their records: one commit for all of them.
            self._asked = True
            self._loop.call_soon(self._ask)
        if self._timer is None:
            self._timer = self._loop.call_at(waiting.deadline, self._expire)

    def _ask(self) -> None:
        self._asked = False
        if not self._armed:
            self._armed = True
            committed = self._queue.committed
            self._watch.arm(committed)
            self._settle(committed)
        self._queue.request_commit()

    def _look(self) -> None:
        if not self._waiting and not self._for_room:
            self._armed = False
            self._watch.disarm()
        self._settle(self._watch.take())

    def _settle(self, committed: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0].sequence <= committed:
            future = waiting.popleft().future
            if not future.done():
                future.set_result(True)
        for entry in self._for_room:
            if not entry.future.done():
                entry.future.set_result(True)
        self._for_room.clear()

    def _expire(self) -> None:
        now, self._timer = self._loop.time(), None
        entries = [*self._waiting, *self._for_room]
        for entry in entries:
            if entry.deadline <= now and not entry.future.done():
                entry.future.set_result(False)
        self._waiting = deque(entry for entry in self._waiting if not entry.future.done())
        self._for_room = [entry for entry in self._for_room if not entry.future.done()]
        left = [entry.deadline for entry in (*self._waiting, *self._for_room)]
        if left:
            self._timer = self._loop.call_at(min(left), self._expire)

    def _end(self) -> None:
        self._loop.remove_reader(self._watch.fileno())
        if self._timer is not None:
            self._timer.cancel()
        for entry in (*self._waiting, *self._for_room):
            if not entry.future.done():
                entry.future.set_result(entry.sequence <= self._queue.committed and entry.sequence > 0)


class ThreadCommits:
    """The same for an event loop that is not asyncio's: a thread waits for each."""

    def __init__(self, queue: AuditQueue) -> None:
        self._queue = queue

    async def wait(self, sequence: int, wait_s: float) -> bool:
        """Return True once every record before ``sequence`` is committed, False after ``wait_s``."""
        import trio  # where there is no asyncio loop, there is this one

        return await trio.to_thread.run_sync(partial(self._queue.wait, sequence, wait_s))

    async def wait_for_room(self, wait_s: float) -> bool:
        """Return True after the next commit, False after ``wait_s``."""
        return await self.wait(self._queue.committed + 1, wait_s)
