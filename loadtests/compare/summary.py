"""What several rounds of measurements say: medians, and ratios to the server without logging, with their intervals.

A ratio is taken within a round, between runs that follow each other: a machine that becomes slower for a minute then
moves both sides of a ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from inference_logging.read.stats.interval import Interval, bootstrap, ratio
from loadtests.compare.load import SATURATED, Load
from loadtests.compare.measure import Books

BASE = "none"


@dataclass(frozen=True)
class Row:
    """One mode of one scenario over all rounds."""

    scenario: str
    mode: str
    loads: tuple[Load, ...]
    rps: Interval
    rps_ratio: Interval
    cpu_us: Interval
    cpu_ratio: Interval
    p50_ms: float
    p99_ms: float
    busy: float
    failures: int
    books: Books

    @property
    def saturated(self) -> bool:
        """Whether the server was what limited req/s."""
        return self.busy >= SATURATED


Rounds = dict[str, dict[str, list[Load]]]
"""Loads by scenario, mode and round."""


def rows(rounds: Rounds, books: dict[tuple[str, str], Books]) -> list[Row]:
    """Return one row per scenario and mode, in the order in which they were measured."""
    return [
        _row(scenario, mode, loads, modes[BASE], books[scenario, mode])
        for scenario, modes in rounds.items()
        for mode, loads in modes.items()
    ]


def _row(scenario: str, mode: str, loads: Sequence[Load], base: Sequence[Load], books: Books) -> Row:
    def of(value: Callable[[Load], float]) -> Interval:
        return bootstrap([value(load) for load in loads])

    def to_base(value: Callable[[Load], float]) -> Interval:
        return ratio([value(load) for load in loads], [value(load) for load in base])

    return Row(
        scenario=scenario,
        mode=mode,
        loads=tuple(loads),
        rps=of(lambda load: load.rps),
        rps_ratio=to_base(lambda load: load.rps),
        cpu_us=of(lambda load: load.cpu_us),
        cpu_ratio=to_base(lambda load: load.cpu_us),
        p50_ms=median(load.p50_ms for load in loads),
        p99_ms=median(load.p99_ms for load in loads),
        busy=median(load.busy for load in loads),
        failures=sum(load.failures for load in loads),
        books=books,
    )
