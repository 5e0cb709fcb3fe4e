"""What several rounds of measurements say: medians, spread, and ratios to the server without logging.

A ratio is taken within a round, between runs that follow each other, and the median is taken over rounds: a machine
that becomes slower for a minute then moves both sides of a ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from loadtests.compare.load import SATURATED, Load
from loadtests.compare.measure import Books

BASE = "none"


@dataclass(frozen=True)
class Spread:
    """A median and what lies around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise `values`, of which there is at least one."""
        return cls(median(values), min(values), max(values))

    def show(self, form: str = ".3f") -> str:
        """Return `median (low … high)`."""
        return f"{self.median:{form}} ({self.low:{form}} … {self.high:{form}})"


@dataclass(frozen=True)
class Row:
    """One mode of one scenario over all rounds."""

    scenario: str
    mode: str
    loads: tuple[Load, ...]
    rps: Spread
    rps_ratio: Spread
    rps_ratios: tuple[float, ...]
    cpu_us: Spread
    cpu_ratio: Spread
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
    def spread(value: Callable[[Load], float]) -> Spread:
        return Spread.of([value(load) for load in loads])

    def ratios(value: Callable[[Load], float]) -> list[float]:
        return [value(load) / value(none) for load, none in zip(loads, base, strict=True)]

    return Row(
        scenario=scenario,
        mode=mode,
        loads=tuple(loads),
        rps=spread(lambda load: load.rps),
        rps_ratio=Spread.of(ratios(lambda load: load.rps)),
        rps_ratios=tuple(ratios(lambda load: load.rps)),
        cpu_us=spread(lambda load: load.cpu_us),
        cpu_ratio=Spread.of(ratios(lambda load: load.cpu_us)),
        p50_ms=median(load.p50_ms for load in loads),
        p99_ms=median(load.p99_ms for load in loads),
        busy=median(load.busy for load in loads),
        failures=sum(load.failures for load in loads),
        books=books,
    )
