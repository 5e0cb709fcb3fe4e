"""The rounds of a shipper: read, send until it is acknowledged, save.

A destination that fails is tried again, each time after a longer pause, for as long as it takes; meanwhile segments
stay where they are. A record that cannot be shipped harms itself only, whatever the destination: one that is none, that
cannot be converted, or that the destination will never take (too large, malformed) is counted as refused, reported, and
kept as a dead letter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from inference_logging.ship.letters import Letter
from inference_logging.ship.line import Destination, Line, Sent
from inference_logging.ship.pauses import FIRST_PAUSE_S, Limits, Rounds, Waiting, to_stderr
from inference_logging.ship.source import CORRUPT, Batch, Source
from inference_logging.ship.sources import Sources

UNCONVERTIBLE: Final = "unconvertible"
"""The reason of a record that the destination cannot make a message of."""


class BatchLimits(Limits, Protocol):
    """The parameters of a shipper of batches; ``Config`` has them."""

    ship_batch_records: int
    ship_batch_bytes: int


class Shipper(Rounds):
    """Sends what ``source`` has to ``destination``."""

    _limits: BatchLimits

    def __init__(
        self,
        source: Source | Sources,
        destination: Destination,
        limits: BatchLimits,
        *,
        report: Callable[[str], None] = to_stderr,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        # In the file of dead letters, which is full, or fails; or not named.
        super().__init__(limits, ("kept", "full", "failed", "unnamed"), report, clock, sleep)
        self._source, self._destination = source, destination

    def run(self, stop: Waiting, *, once: bool = False, drain_s: float = 0.0) -> bool:
        """Ship until ``stop`` is set, and then the present records, and those still written, for up to ``drain_s``.

        ``once``: only what ``source`` has. Returns whether all of that has arrived.
        """
        while True:
            # Before the read: what a listener writes after it, and then ends, is still to be read.
            was_written = self._source.has_writers()
            batch = self._read()
            is_over = self._pauses.ends(stop, drain_s) and self._pauses.is_over()
            if batch is not None and batch.stands and not is_over:
                if not self._deliver(batch, stop, drain_s):
                    return False
                if not (once or self._is_full(batch) or self._pauses.ends(stop, drain_s)):
                    # Nothing waits: what comes meanwhile goes together.
                    self._pauses.pause(stop, self._limits.ship_interval_s)
            elif once or is_over:
                return batch is not None and not batch.lines
            elif not self._pauses.ends(stop, drain_s):
                self._pauses.pause(stop, self._limits.ship_interval_s)
            elif batch is None or not (was_written or self._source.has_writers()):
                return batch is not None
            else:
                self._pauses.pause(stop, FIRST_PAUSE_S)

    def _is_full(self, batch: Batch) -> bool:
        return len(batch.lines) >= self._limits.ship_batch_records or batch.bytes >= self._limits.ship_batch_bytes

    def _waiting_bytes(self) -> int:
        return self._source.lag_bytes()

    def _read(self) -> Batch | None:
        try:
            batch = self._source.read(self._limits.ship_batch_records, self._limits.ship_batch_bytes)
        except OSError as error:
            self._failed("read", f"segments cannot be read: {error}")
            return None
        if batch.unread:
            self._failed("read", f"segments cannot be read: {batch.unread[0]}")
        if batch.corrupt:
            self._refuse({CORRUPT: len(batch.corrupt)}, batch.corrupt)
        return batch

    def _deliver(self, batch: Batch, stop: Waiting, drain_s: float) -> bool:
        """Send a batch until all of it has arrived or was refused; False: the end came first."""
        left: list[Line] = batch.lines
        pause_s = FIRST_PAUSE_S
        if left:
            self._save(self._source.plan, batch)
        self.sending_since_s = left[0].unix_nano() / 1e9 if left else 0.0
        while left:
            sent = self._send(left)
            self._count(left, sent)
            progress, left = len(sent.failed) < len(left), list(sent.failed)
            if not left:
                break
            self._failed(sent.error_type, f"{len(left)} records wait: {sent.error}")
            if self._pauses.ends(stop, drain_s) and self._pauses.is_over():
                return False
            self._wait_after_failure(stop, pause_s, sent.retry_after_s)
            pause_s = FIRST_PAUSE_S if progress else pause_s * 2
        self.sending_since_s = 0.0
        if not self._save(self._source.acknowledge, batch):
            self._pauses.pause(stop, self._limits.ship_interval_s)
        return True

    def _send(self, lines: list[Line]) -> Sent:
        """Send lines; those that the destination raises for are refused, and the others sent without them."""
        try:
            return self._destination.send(lines)
        except Exception as error:  # noqa: BLE001 - whatever a record of an application leads to
            faults = [(line, self._fault(line)) for line in lines]
            others = [line for line, fault in faults if not fault]
            if len(others) == len(lines):
                # No record is the cause.
                return Sent.failing(lines, error)
        sent = Sent()
        for line, fault in faults:
            if fault:
                sent.refuse(line, UNCONVERTIBLE, fault)
        rest = self._send(others) if others else Sent()
        joined = sent.joined(rest)
        joined.left_out = rest.left_out
        return joined

    def _fault(self, line: Line) -> str:
        """Return why a line cannot be converted; empty if it can."""
        try:
            self._destination.convert(line)
        except Exception as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"
        return ""

    def _save(self, what: Callable[[Batch], None], batch: Batch) -> bool:
        try:
            what(batch)
        except OSError as error:
            self._failed("offsets", f"offsets cannot be saved, the next shipper would send records again: {error}")
            return False
        return True

    def _count(self, lines: list[Line], sent: Sent) -> None:
        if sent.refused:
            self._refuse(sent.refused, sent.letters)
        self.left_out += sent.left_out
        # A line that fails at one signal and is refused at the other is counted there alone.
        self.records += max(0, len(lines) - len(sent.failed) - sum(sent.refused.values()) - sent.left_out)
        failed = {line.place for line in sent.failed}
        self.bytes += sum(len(line.raw) + 1 for line in lines if line.place not in failed)

    def _refuse(self, reasons: Mapping[str, int], letters: Sequence[Letter]) -> None:
        self.refused.update(reasons)
        counted = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        first = f"; the first is {letters[0].segment}, byte {letters[0].offset}: {letters[0].detail}" if letters else ""
        self._pauses.report("refused", f"records are given up: {counted}{first}")
        self.letters["unnamed"] += sum(reasons.values()) - len(letters)
        try:
            kept = self._source.give_up(letters) if letters else 0
            if kept < len(letters):
                self._pauses.report("letters", "the file of dead letters is full: further ones are only counted")
            self.letters.update(kept=kept, full=len(letters) - kept)
        except OSError as error:
            self.letters["failed"] += len(letters)
            self._failed("letters", f"dead letters cannot be saved: {error}")

    def close(self) -> None:
        """Let go of everything; idempotent where its parts are."""
        self._destination.close()
        self._source.close()
