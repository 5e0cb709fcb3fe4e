"""The independent journal: what producers say through a pipe after each emit, and what the parent makes of it.

A producer writes one entry after each emit: accepted or refused, and which number. Between the emit and the entry it
may be killed. So of each thread the journal lacks one record at most, and what it has must be in the segments: no slack
but that one is given.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

ACCEPTED: Final = 0
REFUSED: Final = 1
"""Journalled for one severity only: what the listener itself says has others."""
BORN: Final = 2
"""A process that its parent did not start by itself reports its pid in the place of the number."""

# Far below PIPE_BUF: entries of several processes are never mixed.
_ENTRY = struct.Struct("<IHHI")
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031


class Thread(NamedTuple):
    """One thread of one process; each process of a run has a life of its own number."""

    life: int
    thread: int


class Pen:
    """The producer's side: one entry, one write."""

    def __init__(self, descriptor: int, life: int, thread: int = 0) -> None:
        self._descriptor, self._life, self._thread = descriptor, life, thread

    def write(self, kind: int, number: int) -> None:
        """Add one entry; waits while the pipe is full."""
        os.write(self._descriptor, _ENTRY.pack(self._life, self._thread, kind, number))


class Journal:
    """The parent's side: reads what all producers write, and counts."""

    def __init__(self, born: Callable[[int, int], None]) -> None:
        self.accepted: Counter[Thread] = Counter()
        self.refused: Counter[Thread] = Counter()
        self._born = born
        self._rest = b""
        self._reading, self.writing = os.pipe()
        _widen(self.writing)

    def read_until(self, monotonic_s: float) -> bool:
        """Read entries until then; return False as soon as nobody is left who could write any."""
        while (left_s := monotonic_s - time.monotonic()) > 0:
            if select.select([self._reading], [], [], left_s)[0] and not self._read():
                return False
        return True

    def close_writing(self) -> None:
        """Leave the writing to the producers, so that the end of the last one is seen."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def close(self) -> None:
        """Close both ends."""
        self.close_writing()
        os.close(self._reading)

    def _read(self) -> bool:
        read = os.read(self._reading, _PIPE_BYTES)
        entries = self._rest + read
        whole = len(entries) - len(entries) % _ENTRY.size
        self._rest = entries[whole:]
        for life, thread, kind, number in _ENTRY.iter_unpack(entries[:whole]):
            self._enter(Thread(life, thread), kind, number)
        return bool(read)

    def _enter(self, thread: Thread, kind: int, number: int) -> None:
        if kind == BORN:
            self._born(thread.life, number)
        elif kind == REFUSED:
            self.refused[thread] += 1
        else:
            assert number == self.accepted[thread], f"{thread} reports {number} after {self.accepted[thread] - 1}"
            self.accepted[thread] += 1


def _widen(descriptor: int) -> None:
    import fcntl

    # A wider pipe lets producers run while the parent is busy; without the right to one the usual width does.
    try:
        fcntl.fcntl(descriptor, _F_SETPIPE_SZ, _PIPE_BYTES)
    except PermissionError:
        return
