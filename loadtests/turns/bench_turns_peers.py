"""What each arm in a server adds to a request, and that as a multiple of what the thinnest wrapper adds.

The time of the arm without anything is taken off each block. The value is the mean over processes of trimmed means
over blocks; its interval of 95 % is that of the bootstrap that draws processes, and blocks in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from inference_logging.read.stats.interval import Interval, of_draws, resamples, trimmed_mean
from loadtests.turns.bench_turns_arms import COMPARED, NOTHING, OURS, THINNEST, THINNEST_AGAIN
from loadtests.turns.bench_turns_report import Case, doubt, verdict
from loadtests.turns.bench_turns_slices import Block

_LEAST, _AGAIN = COMPARED.index(THINNEST), COMPARED.index(THINNEST_AGAIN)


def rows_of(case: Case, processes: Sequence[Sequence[Block]]) -> list[dict[str, Any]]:
    """Return a row for each arm, as ``--json`` writes it, from the blocks of each process.

    ``times_thinnest`` is null where the thinnest wrapper is not known to add more than nothing.
    """
    scale = 1000 * case.requests
    unlogged = fmean(trimmed_mean([block[0] / scale for block in one]) for one in processes)
    added = [[tuple((arm - block[0]) / scale for arm in block) for block in one] for one in processes]
    means = [fmean(column) for column in zip(*map(_means, added), strict=True)]
    found = _Found(case, unlogged, means, resamples(added, _means))
    return [found.row(arm) for arm in COMPARED if arm != NOTHING]


def _means(blocks: Sequence[Sequence[float]]) -> list[float]:
    return [trimmed_mean(column) for column in zip(*blocks, strict=True)]


Added = Sequence[float]
"""What each arm adds, in microseconds."""


class _Found(NamedTuple):
    case: Case
    unlogged_us: float
    added: Added
    draws: Sequence[Added]

    def row(self, arm: str) -> dict[str, Any]:
        at, times, kept = COMPARED.index(arm), self._times(arm), self._kept(lambda added: added[COMPARED.index(arm)])
        judged = "measured"
        if arm == OURS and (least := self.case.least_ratio):
            # The control is the one of the thinnest wrapper, as a ratio of CPU time.
            same = self._kept(lambda added: added[_AGAIN] - added[_LEAST])
            judged = f"goal ≥ {least:.3f}: {verdict(kept.value >= least, doubt(same, 1 - least))}"
        elif arm == THINNEST_AGAIN and times:
            judged = doubt(times, 1.0) or judged
        return {
            "name": f"{self.case.name}, {arm}",
            "workload": self.case.name,
            "arm": arm,
            "added_us": self._of(lambda added: added[at]).as_json(),
            "times_thinnest": times.as_json() if times else None,
            "unlogged_to_logged": kept.as_json(),
            "verdict": judged,
        }

    def _of(self, read: Callable[[Added], float]) -> Interval:
        return of_draws(read(self.added), list(map(read, self.draws)))

    def _times(self, arm: str) -> Interval | None:
        if self._of(lambda added: added[_LEAST]).low <= 0:
            return None
        return self._of(lambda added: added[COMPARED.index(arm)] / added[_LEAST])

    def _kept(self, read: Callable[[Added], float]) -> Interval:
        return self._of(lambda added: self.unlogged_us / (self.unlogged_us + read(added)))
