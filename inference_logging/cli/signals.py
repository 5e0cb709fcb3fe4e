"""Waits that a signal ends, whenever it comes: `ship`, `listen`, `recover` and `tail --follow` wait here.

A handler that sets a flag is not enough: a signal between the look at the flag and the wait ends nothing. Python's
locks and queues are not enough either: some of them wait for ever if their deadline passes in such a gap. Here the
interpreter's own C handler writes the number of each signal into a pipe, and a wait is a `poll` of that pipe: a signal
from before the wait is still in the pipe.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any, Final

ENDING: Final = frozenset({signal.SIGTERM, signal.SIGINT})
"""The signals that ask a process to end."""

_PIPE_BYTES: Final = 4096


def _go_on(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the pipe has the number, and without a Python handler the interpreter writes nothing to it."""


class Signals:
    """The signals ``numbers`` in the order of their arrival, from entering to leaving. Main thread only."""

    def __init__(
        self, numbers: Collection[signal.Signals] = ENDING, handler: Callable[[int, FrameType | None], Any] = _go_on
    ) -> None:
        """Keep the signals; ``handler`` runs like any Python handler, besides what ``wait`` returns."""
        self._numbers, self._handler = frozenset(numbers), handler
        self._came: deque[int] = deque()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)
        # A full pipe ends a wait as well as a new byte does.
        self._other_descriptor = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in self._numbers:
            self._before[number] = signal.signal(number, self._handler)
        return self

    def __exit__(self, *_error: object) -> None:
        """Restore the former handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
        signal.set_wakeup_fd(self._other_descriptor)
        os.close(self._read)
        os.close(self._write)

    def wait(self, timeout_s: float) -> int | None:
        """Return the next signal, None if none comes within ``timeout_s``; at once if one came before."""
        end_s = time.monotonic() + timeout_s
        while not self._came:
            # The timeout is never negative, since poll would then wait for ever.
            left_s = max(0.0, end_s - time.monotonic())
            # The unit is a whole millisecond. It is rounded up, so that the last one is no busy loop.
            if not self._poll.poll(int(left_s * 1000) + (left_s > 0)):
                return None
            self._came.extend(number for number in os.read(self._read, _PIPE_BYTES) if number in self._numbers)
        return self._came.popleft()
