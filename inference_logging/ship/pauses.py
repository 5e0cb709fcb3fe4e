"""What both kinds of shippers have: pauses, an end that a signal asks for, reports that do not repeat, and counts."""

from __future__ import annotations

import contextlib
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from inference_logging.read.segments import Stop

FIRST_PAUSE_S: Final = 0.1
REPORT_INTERVAL_S: Final = 60.0


class Waiting(Stop, Protocol):
    """The end of a pause; ``threading.Event`` is one."""

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


class Limits(Protocol):
    """The parameters of a shipper; ``Config`` has them."""

    ship_interval_s: float
    ship_retry_s: float


class Rounds(ABC):
    """A shipper's clock, and the counts that its metrics read."""

    def __init__(
        self,
        limits: Limits,
        letters: Iterable[str],
        report: Callable[[str], None] = to_stderr,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limits = limits
        self._pauses = Pauses(report, clock, sleep)
        self.records = 0
        """Acknowledged by the destination."""
        self.bytes = 0
        self.errors: Counter[str] = Counter()
        """Sendings that failed, by type of error."""
        self.refused: Counter[str] = Counter()
        """What the destination will never take, or cannot be read, by reason."""
        self.letters = Counter(dict.fromkeys(letters, 0))
        """The same by what became of it."""
        self.left_out = 0
        """Records that ``ship_to`` does not ask for."""
        self.live = 0
        """Segments that had a writer at the last look, where only whole ones are sent."""
        self.sending_since_s = 0.0
        """The Unix time of the oldest that is being sent; 0: nothing is."""

    def lag_bytes(self) -> int:
        """Return the bytes that wait; 0 if that is unknown."""
        with contextlib.suppress(OSError):
            return self._waiting_bytes()
        return 0

    @abstractmethod
    def _waiting_bytes(self) -> int:
        """Return the same. Raises OSError."""

    def lag_s(self) -> float:
        """Return the age of the oldest that is being sent; 0: nothing is."""
        return max(0.0, time.time() - self.sending_since_s) if self.sending_since_s else 0.0

    def _failed(self, kind: str, text: str) -> None:
        self.errors[kind] += 1
        self._pauses.report(kind, text)

    def _wait_after_failure(self, stop: Waiting, pause_s: float, retry_after_s: float) -> None:
        """Pause for as long as the destination wants, at most ``ship_retry_s``."""
        self._pauses.pause(stop, min(max(pause_s, retry_after_s), self._limits.ship_retry_s))
