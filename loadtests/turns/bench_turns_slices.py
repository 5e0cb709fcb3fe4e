"""Whose turn it is, and what each slice of requests cost by the CPU clock of the thread that serves them.

A slice is a number of consecutive requests for one arm; a block is one slice of each arm in random order. The clock is
read where a slice's first request reaches the switch, so what the server does after an answer, and with the bytes of
the next request, is in the slice. What is not a whole block when the measurement starts or pauses is left out.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[Any]]

UNLOGGED, LOGGED, CONTROL = range(3)
"""The arms where only the cost of our own middleware is asked for."""
Block = tuple[int, ...]
"""Nanoseconds of each arm's slice."""
Clock = Callable[[], int]


class Slices:
    """The turns of the arms, and the blocks that are whole, by ``clock``."""

    def __init__(self, arms: int, clock: Clock = time.thread_time_ns, seed: int = 0) -> None:
        self._arms = arms
        self.blocks: list[Block] = []
        self.begun: list[tuple[int, int]] = []
        """Monotonic nanoseconds and the arm of each slice; -1 where the measurement was paused."""
        self._clock = clock
        self._random = random.Random(seed)
        self.pause()

    def pause(self) -> None:
        """Leave out the block that has begun, and the one after it."""
        self.begun.append((time.monotonic_ns(), -1))
        self._order: list[int] = []
        self._taken = [0] * self._arms
        self._arm: int | None = None
        self._is_warm = False
        self._since = 0

    def begin(self) -> int:
        """Begin a slice, and return the arm whose turn it is."""
        if not self._order:
            self._order = self._random.sample(range(self._arms), self._arms)
        self._arm = self._order.pop()
        self.begun.append((time.monotonic_ns(), self._arm))
        self._since = self._clock()
        return self._arm

    def end(self) -> None:
        """End the slice that has begun, if there is one."""
        now = self._clock()
        if self._arm is None:
            return
        self._taken[self._arm] = now - self._since
        if not self._order:
            if self._is_warm:
                self.blocks.append(tuple(self._taken))
            self._is_warm = True


class Switch:
    """An ASGI application that hands each request to the arm whose turn it is, and counts what each one got."""

    def __init__(self, arms: Sequence[App], slices: Slices) -> None:
        self.slices = slices
        self.served = [0] * len(arms)
        self._arms = arms
        self._arm = 0
        self._app = arms[0]
        self._requests = 1
        self._left = 0

    def restart(self, requests: int) -> None:
        """Begin a measurement with slices of ``requests`` requests."""
        self.pause()
        self._requests = requests
        self.slices.blocks.clear()
        self.slices.begun.clear()

    def pause(self) -> None:
        """Leave the current block out."""
        self.served[self._arm] -= self._left
        self._left = 0
        self.slices.pause()

    def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> Awaitable[Any]:
        """Serve one HTTP request with the arm's own coroutine."""
        if not self._left:
            self._turn()
        self._left -= 1
        return self._app(scope, receive, send)

    def _turn(self) -> None:
        self.slices.end()
        self._arm = self.slices.begin()
        self._app = self._arms[self._arm]
        self._left = self._requests
        self.served[self._arm] += self._requests
