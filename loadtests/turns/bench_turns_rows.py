"""Rows as ``--json`` writes them and a table prints them; and what each arm in a server adds to a request.

The time of the arm without anything is taken off each block. The value is the mean over processes of trimmed means
over blocks; its interval of 95 % is that of the bootstrap that draws processes, and blocks in each. What an arm adds is
also a multiple of what the thinnest wrapper adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, Final, NamedTuple

from inference_logging.read.pages.content import Table
from inference_logging.read.stats.interval import Interval, of_draws, resamples, trimmed_mean
from loadtests.turns.bench_turns_arms import COMPARED, NOTHING, OURS, THINNEST, THINNEST_AGAIN

_LEAST: Final = COMPARED.index(THINNEST)
Block = tuple[int, ...]
"""Nanoseconds of each arm's slice."""
LEAST_BLOCKS: Final = 20
"""Fewer say nothing, so even a short measurement goes on until there are as many."""


class Case(NamedTuple):
    """What is measured in a server, the requests of a slice, and the goal: how often the thinnest wrapper's cost."""

    name: str
    requests: int = 64
    most_times: float | None = None


def doubt(control: Interval, distance: float) -> str | None:
    """Return why a ratio that is ``distance`` from 1 cannot be claimed beside this control, or None if it can."""
    if not control.holds(1.0):
        return "the control is off 1"
    if control.high - control.low >= distance:
        return "the control is wider than the claim"
    return None


def verdict(is_reached: bool, reason: str | None) -> str:
    """Return ``reached``, ``not reached``, or ``not measured`` with the reason."""
    return f"not measured: {reason}" if reason else "reached" if is_reached else "not reached"


_HEADS: Final = {
    "unlogged_us": "without, µs",
    "added_us": "added, µs",
    "times_thinnest": "× the thinnest",
    "unlogged_to_logged": "without ÷ with",
    "control": "the control",
    "listener_us_per_record": "listener, µs",
}


def table(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows, which are as ``--json`` writes them, as a table of the figures that one of them has."""
    shown = [name for name in _HEADS if any(row.get(name) is not None for row in rows)]
    cells = [(row["name"], *(_cell(row.get(name)) for name in shown), row["verdict"]) for row in rows]
    return Table(title, ("", *(_HEADS[name] for name in shown), "verdict"), cells).text()


def _cell(found: Mapping[str, float] | float | None) -> str:
    if found is None:
        return ""
    return f"{found:.2f}" if isinstance(found, float) else str(Interval(**found))


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
        if arm == OURS and self.case.most_times:
            judged = self._judged(times, self.case.most_times)
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

    def _judged(self, times: Interval | None, most: float) -> str:
        again, close = self._times(THINNEST_AGAIN), ""
        if times is None or again is None:
            reason: str | None = "the thinnest wrapper's cost is within noise"
        else:
            reason, close = doubt(again, math.inf), ", but within noise of the goal" if times.holds(most) else ""
        judged = verdict(times is not None and times.value <= most, reason)
        return f"goal ≤ {most:g} × the thinnest wrapper: {judged}{close}"

    def _of(self, read: Callable[[Added], float]) -> Interval:
        return of_draws(read(self.added), list(map(read, self.draws)))

    def _times(self, arm: str) -> Interval | None:
        if self._of(lambda added: added[_LEAST]).low <= 0:
            return None
        return self._of(lambda added: added[COMPARED.index(arm)] / added[_LEAST])

    def _kept(self, read: Callable[[Added], float]) -> Interval:
        return self._of(lambda added: self.unlogged_us / (self.unlogged_us + read(added)))
