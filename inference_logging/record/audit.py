"""The audit lane: records that are on the device before the caller goes on.

It is the same machinery a second time, a queue, a listener and its sink, with a sink that returns ``Ok`` only after an
fsync. One commit serves every record that has gathered during the last one, and one wake-up of an event loop serves
every record of a commit.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from inference_logging._native import AuditQueue, BoundFields, Service
from inference_logging.errors import AuditError
from inference_logging.record.context import reader
from inference_logging.record.service import open_service

if TYPE_CHECKING:
    from inference_logging.record.config import Config

INFO: Final = 9
_QUEUE_FULL: Final = -1
"""What an emit function of the lane returns when the queue is full; other reasons are below."""


_MOST_FORMS: Final = 16
"""Lists of fields that an event has at most; a record with yet another one has its fields in one map."""
_CROWDED: Final = 0.5
"""Share of the room for events from which on an event has one list of fields and the map."""


class AuditLane:
    """The audit queue of this process, its listener, and the tasks that wait for a commit.

    Raises ``OpenError`` if the queue, the sink, the key or the thread is not available, naming the parameter.
    """

    def __init__(self, config: Config) -> None:
        self._wait_s, self._overflow = config.audit_block_s, config.audit_overflow
        self._service = open_service(config, "audit")
        self._queue = AuditQueue(self._service)
        self._emitters: dict[tuple[str, ...], Callable[..., int]] = {}
        self._forms: dict[str, int] = {}
        self._loops: dict[asyncio.AbstractEventLoop, LoopCommits] = {}

    @property
    def service(self) -> Service:
        """The native service of the lane."""
        return self._service

    async def record(self, event: str, fields: dict[str, Any]) -> bool:
        """Put one record into the queue and wait for its commit; as ``Logger.audit``."""
        try:
            emit, values = self._form(event, fields)
        except OSError as error:
            return self._no_room(error)
        sequence = emit(*values)
        if sequence < 0:
            sequence = await self._try_again(partial(emit, *values), sequence)
            if sequence < 0:
                return self._refuse(sequence, INFO)
        return await self._commits().wait(sequence + 1, self._wait_s) or self._late(sequence)

    def _form(self, event: str, fields: dict[str, Any]) -> tuple[Callable[..., int], Collection[Any]]:
        """Return the emit function for an event with these fields, and its values; OSError where there is no room."""
        form = (event, *fields)
        emit = self._emitters.get(form)
        if emit is not None:
            return emit, fields.values()
        known = self._forms.get(event, 0)
        if known >= _MOST_FORMS or (known and self._queue.schemas_fill_ratio > _CROWDED):
            fields = {"attributes": BoundFields(None, fields)}
            form = (event, *fields)
            emit = self._emitters.get(form)
        if emit is None:
            emit = self._queue.event(event, ["trace", "request_id", *fields], INFO, reader())
            self._emitters[form] = emit
            self._forms[event] = known + 1
        return emit, fields.values()

    async def committed(self) -> bool:
        """Wait until every record that this process has made so far is committed; as ``Logger.committed``."""
        accepted = self._queue.accepted
        if accepted <= self._queue.committed:
            return True
        return await self._commits().wait(accepted, self._wait_s) or self._late(accepted - 1)

    def event(self, name: str, fields: Sequence[str], severity: int, *, with_request: bool) -> Callable[..., bool]:
        """Register an event; as ``Logger.event`` with ``lane="audit"``."""
        ids, context = (["trace", "request_id"], reader()) if with_request else ([], None)
        try:
            emit = self._queue.event(name, [*ids, *fields], severity, context)
        except OSError as error:
            raise ValueError(str(error)) from None

        def audit(*values: object) -> bool:
            sequence = emit(*values)
            if sequence < 0:
                sequence = self._try_again_now(partial(emit, *values), sequence)
            return sequence >= 0 or self._refuse(sequence, severity)

        return audit

    def flush(self, deadline_s: float) -> bool:
        """Wait until every record so far is committed; return whether it is, after ``deadline_s``."""
        return self._queue.wait(self._queue.accepted, deadline_s)

    def close(self, deadline_s: float) -> bool:
        """Refuse new records, commit what there is, end the listener; return whether everything was committed."""
        drained = self._service.close(deadline_s)
        for commits in self._loops.values():
            commits.close()
        self._loops = {}
        return drained

    def after_fork_in_child(self) -> None:
        """Start anew: the parent's queue, event loops and threads are not the child's."""
        self._service.after_fork_in_child()
        self._loops = {}

    def _commits(self) -> LoopCommits | ThreadCommits:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return ThreadCommits(self._queue)
        commits = self._loops.get(loop)
        if commits is None:
            for ended in [known for known in self._loops if known.is_closed()]:
                self._loops.pop(ended).close()
            commits = self._loops[loop] = LoopCommits(loop, self._queue)
        return commits

    async def _try_again(self, emit: Callable[[], int], refused: int) -> int:
        """Wait for room, if ``audit_overflow`` says so; return a sequence, or the reason for the last refusal."""
        end = time.monotonic() + self._wait_s if self._overflow == "block" else 0.0
        while refused == _QUEUE_FULL and (left_s := end - time.monotonic()) > 0:
            await self._commits().wait_for_room(left_s)
            refused = emit()
        return refused

    def _try_again_now(self, emit: Callable[[], int], refused: int) -> int:
        end = time.monotonic() + self._wait_s if self._overflow == "block" else 0.0
        while refused == _QUEUE_FULL and (left_s := end - time.monotonic()) > 0:
            self._queue.wait(self._queue.committed + 1, left_s)
            refused = emit()
        return refused

    def _refuse(self, refused: int, severity: int) -> bool:
        position = -1 - refused
        self._queue.count_refused(position, severity)
        if self._overflow == "count":
            return False
        reason = self._queue.reasons[position]
        waited = f" after audit_block_s={self._wait_s:g}" if (reason, self._overflow) == ("queue_full", "block") else ""
        raise AuditError(f"an audit record was refused{waited}: {reason}", reason)

    def _no_room(self, error: OSError) -> bool:
        """Count a record of an event for which there is no room to register it."""
        self._queue.count_refused(self._queue.reasons.index("serialize_error"), INFO)
        if self._overflow == "count":
            return False
        raise AuditError(f"an audit record was refused: too_many_events: {error}", "too_many_events") from None

    def _late(self, sequence: int) -> bool:
        if self._overflow == "count":
            return False
        raise AuditError(
            f"audit record {sequence} was not committed within audit_block_s={self._wait_s:g}; it is accepted, stays "
            "in the queue and is written once the disk takes it",
            "not_committed",
        )


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
