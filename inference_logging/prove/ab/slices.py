"""Slices with recording and without it, by turns in a random order, on servers that serve: what happened in each.

The servers' counts and the clocks of their CPU time are read from outside. A guard at the beginning of each slice is
not counted, since the listener still writes what came before. Each slice is renewed many times, so that a command that
is killed leaves nothing switched off.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from inference_logging._native import queues_of
from inference_logging.prove.ab.comparison import Pair, Slice, Times, Window

if TYPE_CHECKING:
    from inference_logging._native import Comparison

RENEWAL_S: Final = 0.1
_RENEWED_FOR_S: Final = 1.0
"""As the page has it: a slice that was not renewed for so long has ended by itself."""

_CPU_CLOCK: Final = 2
"""The kind of a process's clock that counts the CPU time of all its threads, also of those that have ended."""

Counts = tuple[dict[str, int], dict[str, int]]
"""Of both arms since the beginning: off and on."""


class Processes:
    """The servers and listeners of a queue directory."""

    def __init__(self, queue_directory: Path) -> None:
        """Look for them; ``find`` looks again."""
        self._directory = queue_directory
        self.servers: set[int] = set()
        self.listeners: set[int] = set()
        """Those that only listen."""
        self.unseen: set[int] = set()
        """Those that cannot be seen from here, or run another version."""
        self.find()

    def find(self) -> None:
        """Find the processes that have come since."""
        known = self.servers | self.listeners | self.unseen | {os.getpid()}
        queues = [queue for queue in queues_of(self._directory) if queue["producer"] == "elsewhere"]
        new = {queue["pid"]: queue["only_listens"] for queue in queues if queue["pid"] not in known}
        pages = {str(page.stat().st_ino) for page in self._directory.glob("runtime-*")} if new else set()
        for pid, only_listens in new.items():
            if not _maps(pid, pages):
                self.unseen.add(pid)
            elif only_listens:
                self.listeners.add(pid)
            else:
                self.servers.add(pid)

    def cpu_s(self) -> dict[int, float]:
        """Return the CPU time of each process that is seen and still lives, in seconds."""
        found = {}
        for pid in self.servers | self.listeners:
            with contextlib.suppress(OSError):  # it has ended
                found[pid] = time.clock_gettime(~pid << 3 | _CPU_CLOCK)
        return found


class Interrupted(Exception):  # noqa: N818 - the end that was asked for, not an error
    """A signal asks to end."""


class _State(NamedTuple):
    at_s: float
    counts: Counts
    cpu_s: dict[int, float]

    def until(self, end: _State) -> Window:
        """Return what happened from this state to another one."""
        events = [_events(after) - _events(before) for before, after in zip(self.counts, end.counts, strict=True)]
        return Window(
            seconds=end.at_s - self.at_s,
            requests=sum(
                after["requests"] - before["requests"] for before, after in zip(self.counts, end.counts, strict=True)
            ),
            cpu_s=sum(end.cpu_s[pid] - before for pid, before in self.cpu_s.items() if pid in end.cpu_s),
            recorded_events=events[1],
            events=sum(events),
        )


class Slices:
    """The slices of one comparison."""

    def __init__(
        self,
        comparison: Comparison,
        processes: Processes,
        wait: Callable[[float], int | None],
        *,
        slice_s: float,
        guard_s: float,
        seed: int | None,
    ) -> None:
        """Prepare slices of ``slice_s`` seconds, the first ``guard_s`` of each not counted.

        ``wait`` takes seconds, and returns early with a signal that asks to end.
        """
        self._comparison, self._processes, self._pause = comparison, processes, wait
        self._slice_s, self._guard_s = slice_s, guard_s
        self._random = random.Random(seed)
        self._renewed_s = 0.0
        self._is_late = False
        self.late = 0
        """Pairs that do not count: this process was not run in time, so recording was on where it should be off."""

    def pairs(self, number: int) -> Iterator[Pair]:
        """Iterate over pairs of slices, each as soon as it is over.

        Raises ``Interrupted`` on a signal; ``OSError`` with a sentence if something else has ended the comparison.
        """
        for _ in range(number):
            self._is_late = False
            before = self._comparison.counts()
            windows = {is_off: self._window(is_off) for is_off in self._random.sample([False, True], 2)}
            times = [_times(*arm) for arm in zip(before, self._comparison.counts(), strict=True)]
            if self._is_late:
                self.late += 1
            else:
                yield Pair(off=Slice(windows[True], times[0]), on=Slice(windows[False], times[1]))

    def _window(self, is_off: bool) -> Window:
        self._processes.find()
        begin_s = self._renewed_s = time.monotonic()
        self._comparison.hold(is_off)
        self._wait(begin_s + self._guard_s, is_off)
        begin = self._state()
        self._wait(begin_s + self._slice_s, is_off)
        return begin.until(self._state())

    def _wait(self, until_s: float, is_off: bool) -> None:
        while (left_s := until_s - time.monotonic()) > 0:
            if self._pause(min(left_s, RENEWAL_S)) is not None:
                raise Interrupted
            now_s = time.monotonic()
            self._is_late |= now_s - self._renewed_s >= _RENEWED_FOR_S
            self._renewed_s = now_s
            self._comparison.hold(is_off)

    def _state(self) -> _State:
        return _State(time.monotonic(), self._comparison.counts(), self._processes.cpu_s())


def _events(counts: dict[str, int]) -> int:
    return counts["requests"] + counts["first_chunks"] + counts["later_chunks"]


def _times(before: dict[str, int], after: dict[str, int]) -> Times:
    change = {name: after[name] - count for name, count in before.items()}
    return Times(
        first_chunks=change["first_chunks"],
        first_chunks_s=change["first_chunks_nano"] / 1e9,
        later_chunks=change["later_chunks"],
        later_chunks_s=change["later_chunks_nano"] / 1e9,
    )


def _maps(pid: int, inodes: set[str]) -> bool:
    """Return whether a process has one of these files mapped."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(line.split(None, 5)[4] in inodes for line in lines)
