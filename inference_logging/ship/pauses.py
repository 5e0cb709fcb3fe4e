"""The pauses of a shipper, the end that a signal asks for, and reports that do not repeat each other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, Protocol

FIRST_PAUSE_S: Final = 0.1
REPORT_INTERVAL_S: Final = 60.0


class Waiting(Protocol):
    """The end of a pause; ``threading.Event`` is one."""

    def wait(self, timeout: float, /) -> bool:
        """Wait ``timeout`` seconds or until it is set; return whether it is."""

    def is_set(self) -> bool:
        """Return whether it is set."""


def to_stderr(text: str) -> None:
    """Write ``text`` in a line of its own."""
    sys.stderr.write(f"inference-logging ship: {text}\n")
    sys.stderr.flush()


class Pauses:
    """The clock of a shipper: one end, once it was asked for."""

    def __init__(
        self, report: Callable[[str], None], clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        """Keep them."""
        self._report, self._clock, self._sleep = report, clock, sleep
        self._end_s: float | None = None
        self._reported_s: dict[str, float] = {}

    def ends(self, stop: Waiting, drain_s: float) -> bool:
        """Return whether the end was asked for; it is over ``drain_s`` after that was first seen."""
        if stop.is_set() and self._end_s is None:
            self._end_s = self._clock() + drain_s
        return self._end_s is not None

    def is_over(self) -> bool:
        """Return whether the time for what is left has passed."""
        return self._end_s is not None and self._clock() >= self._end_s

    def pause(self, stop: Waiting, pause_s: float) -> None:
        """Wait; before the end ``stop`` ends a pause, and then each is short."""
        if self._end_s is None:
            stop.wait(pause_s)
        else:
            self._sleep(min(pause_s, FIRST_PAUSE_S))

    def report(self, kind: str, text: str) -> None:
        """Say something, unless that was said about ``kind`` within the last minute."""
        now_s = self._clock()
        if kind not in self._reported_s or now_s - self._reported_s[kind] >= REPORT_INTERVAL_S:
            self._reported_s[kind] = now_s
            self._report(text)
