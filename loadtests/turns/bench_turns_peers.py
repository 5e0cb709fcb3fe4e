"""What each arm in a server adds to a request, and that as a multiple of what the thinnest wrapper adds.

The time of the arm without anything is taken off each block. The value is the mean over processes of trimmed means
over blocks; its interval of 95 % is that of the bootstrap that draws processes, and blocks in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final, NamedTuple

from inference_logging.read.stats.interval import Interval, of_draws, resamples, trimmed_mean
from loadtests.turns.bench_turns_arms import COMPARED, NOTHING, OURS, THINNEST, THINNEST_AGAIN
from loadtests.turns.bench_turns_report import Case, doubt, verdict
from loadtests.turns.bench_turns_slices import Block

_WIDTH: Final = max(map(len, COMPARED))
_LEAST, _AGAIN = COMPARED.index(THINNEST), COMPARED.index(THINNEST_AGAIN)


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
    verdict: str

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


class Workload(NamedTuple):
    """What all arms gave for one kind of request."""

    case: Case
    unlogged_us: float
    blocks: int
    peers: Sequence[Peer]

    @classmethod
    def of(cls, case: Case, processes: Sequence[Sequence[Block]]) -> Workload:
        """Evaluate the blocks of each process."""
        scale = 1000 * case.requests
        unlogged = fmean(trimmed_mean([block[0] / scale for block in one]) for one in processes)
        added = [[tuple((arm - block[0]) / scale for arm in block) for block in one] for one in processes]
        means = [fmean(column) for column in zip(*map(_means, added), strict=True)]
        found = _Found(case, unlogged, means, resamples(added, _means))
        return cls(case, unlogged, sum(map(len, processes)), [found.peer(arm) for arm in COMPARED if arm != NOTHING])

    def text(self) -> str:
        """Return the table of this kind of request."""
        head = f"\n{self.case.name}: {self.unlogged_us:.1f} µs without anything, {self.blocks} blocks"
        columns = f"  {'':<{_WIDTH}} {'added':>28} {'× the thinnest':>24} {'without ÷ with':>24}"
        return "\n".join([head, columns, *(peer.line() for peer in self.peers)])


def _means(blocks: Sequence[Sequence[float]]) -> list[float]:
    return [trimmed_mean(column) for column in zip(*blocks, strict=True)]


Added = Sequence[float]
"""What each arm adds, in microseconds."""


class _Found(NamedTuple):
    case: Case
    unlogged_us: float
    added: Added
    draws: Sequence[Added]

    def peer(self, arm: str) -> Peer:
        at, times, kept = COMPARED.index(arm), self._times(arm), self._kept(lambda added: added[COMPARED.index(arm)])
        judged = ""
        if arm == OURS and (least := self.case.least_ratio):
            # The control is the one of the thinnest wrapper, as a ratio of CPU time.
            same = self._kept(lambda added: added[_AGAIN] - added[_LEAST])
            judged = f"goal ≥ {least:.3f}: {verdict(kept.value >= least, doubt(same, 1 - least))}"
        elif arm == THINNEST_AGAIN and times:
            judged = doubt(times, 1.0) or ""
        return Peer(self.case, arm, self._of(lambda added: added[at]), times, kept, judged)

    def _of(self, read: Callable[[Added], float]) -> Interval:
        return of_draws(read(self.added), list(map(read, self.draws)))

    def _times(self, arm: str) -> Interval | None:
        if self._of(lambda added: added[_LEAST]).low <= 0:
            return None
        return self._of(lambda added: added[COMPARED.index(arm)] / added[_LEAST])

    def _kept(self, read: Callable[[Added], float]) -> Interval:
        return self._of(lambda added: self.unlogged_us / (self.unlogged_us + read(added)))
