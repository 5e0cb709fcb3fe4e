"""The open loop: each request is sent at its intended time, whatever became of the ones before it.

The intended time is the recorded arrival since the first one, divided by the speed. How late a request was sent is
measured and reported, and shifts no other request. A cap of requests under way closes the loop while it binds: how
often, and for how long, is reported too.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from inference_logging.prove.replay.client import Answer, Client, new_answer
from inference_logging.prove.replay.schedule import Planned

_SHOWN_EVERY_S: Final = 0.2


class Pace(NamedTuple):
    """How many times as fast as recorded, and how many requests at once at most (None: any number)."""

    speed: float = 1.0
    concurrency: int | None = None


class Result(NamedTuple):
    """A request, when it was sent, and its answer. ``planned`` is without its body.

    ``intended_s`` and ``sent_s`` are seconds after the replay's beginning; ``capped_s`` of the difference were spent
    under the cap.
    """

    planned: Planned
    intended_s: float
    sent_s: float
    capped_s: float
    answer: Answer

    @property
    def late_s(self) -> float:
        """Seconds from the intended time to the sending."""
        return max(0.0, self.sent_s - self.intended_s)


@dataclass
class State:
    """How far a replay is."""

    sent: int = 0
    ended: int = 0
    under_way: int = 0
    most_under_way: int = 0
    late_s: float = 0.0
    """Of the last request."""
    is_interrupted: bool = False
    elapsed_s: float = 0.0


class Player:
    """Plays requests on ``client`` at a pace; ``on_result`` gets each result as its request ends."""

    def __init__(self, client: Client, pace: Pace, on_result: Callable[[Result], object]) -> None:
        """Prepare; nothing is sent."""
        self._client, self._speed, self._on_result = client, pace.speed, on_result
        self._cap = asyncio.Semaphore(pace.concurrency) if pace.concurrency is not None else None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self.state = State()

    async def play(self, requests: Iterable[Planned], show: Callable[[State], object] | None = None) -> State:
        """Send all requests, and wait for their answers. SIGINT and SIGTERM end it early: see the state.

        ``show`` is called several times a second.
        """
        loop = asyncio.get_running_loop()
        showing = asyncio.ensure_future(self._keep_showing(show)) if show is not None else None
        began = time.perf_counter()
        feeding = asyncio.ensure_future(self._feed(requests, began))
        self._feeding = feeding
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self._interrupt)
        try:
            await feeding
        except asyncio.CancelledError:
            if not self.state.is_interrupted and self._failure is None:
                raise
        finally:
            if showing is not None:
                showing.cancel()
            for number in signals:
                loop.remove_signal_handler(number)
            left = list(self._tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            self.state.elapsed_s = time.perf_counter() - began
        if self._failure is not None:
            raise self._failure
        return self.state

    async def _keep_showing(self, show: Callable[[State], object]) -> None:
        while True:
            show(self.state)
            await asyncio.sleep(_SHOWN_EVERY_S)

    def _interrupt(self) -> None:
        self.state.is_interrupted = True
        self._feeding.cancel()

    async def _feed(self, requests: Iterable[Planned], began: float) -> None:
        for planned in requests:
            intended_s = planned.offset_s / self._speed
            # Also when it is late: other requests go on in between.
            await asyncio.sleep(max(0.0, began + intended_s - time.perf_counter()))
            task = asyncio.ensure_future(self._one(planned, intended_s, began))
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
            self._feeding.cancel()

    async def _one(self, planned: Planned, intended_s: float, began: float) -> None:
        if self._cap is None:
            await self._send(planned, intended_s, began, 0.0)
            return
        is_free = not self._cap.locked()
        waits = time.perf_counter()
        async with self._cap:
            await self._send(planned, intended_s, began, 0.0 if is_free else time.perf_counter() - waits)

    async def _send(self, planned: Planned, intended_s: float, began: float, capped_s: float) -> None:
        state, answer = self.state, new_answer()
        sent_s = time.perf_counter() - began
        result = Result(planned._replace(body=b""), intended_s, sent_s, capped_s, answer)
        state.sent += 1
        state.under_way += 1
        state.most_under_way = max(state.most_under_way, state.under_way)
        state.late_s = result.late_s
        try:
            # A request that is cancelled is unfinished, which its answer says.
            with contextlib.suppress(asyncio.CancelledError):
                await self._client.send(planned, answer)
        finally:
            state.under_way -= 1
            state.ended += 1
            self._on_result(result)
