"""What each arm in a server adds to a request, and that as a multiple of what the thinnest wrapper adds.

The time of the arm without anything is taken off each block. The value is the mean over processes of trimmed means
over blocks; its interval of 95 % is that of the bootstrap that draws processes, and blocks in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

import numpy as np

from inference_logging.read.stats.interval import Interval, of_draws
from loadtests.turns.bench_turns_arms import COMPARED, NOTHING, OURS, THINNEST, THINNEST_AGAIN
from loadtests.turns.bench_turns_ratio import doubt, of_processes, resampled, trimmed_means, verdict
from loadtests.turns.bench_turns_report import Case
from loadtests.turns.bench_turns_slices import Block

_WIDTH: Final = max(map(len, COMPARED))


@dataclass(frozen=True)
class Peer:
    """What one arm adds to one kind of request."""

    case: Case
    arm: str
    added_us: Interval
    times: Interval | None
    """What it adds ÷ what the thinnest wrapper adds; None if that is not known to be above nothing."""
    kept: Interval
    """CPU time without anything ÷ with it."""
    verdict: str = ""

    def line(self) -> str:
        """Return the row as a line of the table."""
        added = f"{self.added_us.value:.2f} ({self.added_us.low:.2f}…{self.added_us.high:.2f}) µs"
        times = f"{self.times.value:.2f} ({self.times.low:.2f}…{self.times.high:.2f})" if self.times else "–"
        return f"  {self.arm:<{_WIDTH}} {added:>28} {times:>24} {self.kept!s:>24}  {self.verdict}".rstrip()

    def as_json(self) -> dict[str, Any]:
        """Return the row for the file of ``--json``."""
        return {
            "name": f"{self.case.name}, {self.arm}",
            "workload": self.case.name,
            "arm": self.arm,
            "added_us": self.added_us.as_json(),
            "times_thinnest": self.times.as_json() if self.times else None,
            "unlogged_to_logged": self.kept.as_json(),
            "verdict": self.verdict or "measured",
        }


@dataclass(frozen=True)
class Workload:
    """What all arms gave for one kind of request."""

    case: Case
    unlogged_us: float
    blocks: int
    peers: Sequence[Peer]

    @classmethod
    def of(cls, case: Case, processes: Sequence[Sequence[Block]]) -> Workload:
        """Evaluate the blocks of each process."""
        scale = 1000 * case.requests
        times = [np.asarray(blocks, dtype=float) / scale for blocks in processes]
        unlogged = fmean(float(trimmed_means(one[:, :1])[0]) for one in times)
        added = [one - one[:, :1] for one in times]
        found = _Found(unlogged, sum(map(trimmed_means, added)) / len(added), of_processes(list(map(resampled, added))))
        control = found.times(THINNEST_AGAIN)
        peers = [found.peer(case, arm, control) for arm in COMPARED if arm != NOTHING]
        return cls(case, unlogged, sum(map(len, processes)), peers)

    def text(self) -> str:
        """Return the table of this kind of request."""
        head = f"\n{self.case.name}: {self.unlogged_us:.1f} µs without anything, {self.blocks} blocks"
        columns = f"  {'':<{_WIDTH}} {'added':>28} {'× the thinnest':>24} {'without ÷ with':>24}"
        return "\n".join([head, columns, *(peer.line() for peer in self.peers)])


@dataclass(frozen=True)
class _Found:
    unlogged_us: float
    added: Any
    draws: Any

    def peer(self, case: Case, arm: str, control: Interval | None) -> Peer:
        at, times = COMPARED.index(arm), self.times(arm)
        kept = self._kept(at)
        judged = self._judged(case, kept) if arm == OURS and case.least_ratio else ""
        if arm == THINNEST_AGAIN and control and (reason := doubt(control, 1.0)):
            judged = reason
        return Peer(case, arm, of_draws(float(self.added[at]), self.draws[:, at]), times, kept, judged)

    def times(self, arm: str) -> Interval | None:
        least, at = COMPARED.index(THINNEST), COMPARED.index(arm)
        if of_draws(0, self.draws[:, least]).low <= 0:
            return None
        return of_draws(float(self.added[at] / self.added[least]), self.draws[:, at] / self.draws[:, least])

    def _kept(self, at: int) -> Interval:
        whole = self.unlogged_us
        return of_draws(float(whole / (whole + self.added[at])), whole / (whole + self.draws[:, at]))

    def _judged(self, case: Case, kept: Interval) -> str:
        """Return the goal and what became of it; the control is the one of the thinnest wrapper, as a ratio of CPU."""
        at, again = COMPARED.index(THINNEST), COMPARED.index(THINNEST_AGAIN)
        difference = self.draws[:, again] - self.draws[:, at]
        value = float(self.added[again] - self.added[at])
        whole = self.unlogged_us
        same = of_draws(whole / (whole + value), whole / (whole + difference))
        reached = case.least_ratio is not None and kept.value >= case.least_ratio
        return f"{case.goal()}: {verdict(reached, same, 1 - (case.least_ratio or 0))}"
