"""What `bench_turns` prints: one row for each case, with its ratio, its control and a verdict; and where it ran."""

from __future__ import annotations

import math
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from inference_logging.read.stats.interval import Interval
from loadtests.cost.bench_report import machine
from loadtests.turns.bench_turns_ratio import across, doubt, ratio, trimmed_interval, verdict
from loadtests.turns.bench_turns_slices import CONTROL, LOGGED, UNLOGGED, Block

PRECISION: Final = 0.003
"""Half of the interval at which a measurement ends, as a ratio."""
LEAST_BLOCKS: Final = 20
"""Fewer say nothing, so even a short measurement goes on until there are as many."""
_HEAD: Final = (
    f"{'':<34} {'unlogged':>9} {'added':>16} {'unlogged ÷ logged':>25} {'control':>25} {'listener':>9} {'blocks':>7}"
)


@dataclass(frozen=True)
class Case:
    """What is measured: its slices, and the goal, a ratio or added µs per request."""

    name: str
    requests: int = 64
    least_ratio: float | None = None
    most_added_us: float | None = None

    def distance(self, unlogged_us: float, measured: Interval) -> float:
        """Return how far from 1 the ratio is where the goal is just reached; without a goal, how far it is."""
        if self.least_ratio is not None:
            return 1 - self.least_ratio
        if self.most_added_us is not None:
            return self.most_added_us / (unlogged_us + self.most_added_us)
        return abs(1 - measured.value)

    def goal(self) -> str:
        """Return the goal in words, or nothing."""
        if self.least_ratio is not None:
            return f"goal ≥ {self.least_ratio:.3f}"
        return f"goal ≤ {self.most_added_us:g} µs" if self.most_added_us is not None else ""


@dataclass(frozen=True)
class Row:
    """What was found for one case."""

    case: Case
    blocks: int
    unlogged_us: float
    added_us: Interval
    ratio: Interval
    control: Interval
    listener_us: float
    processes: int = 1

    @classmethod
    def of(cls, case: Case, blocks: Sequence[Block], listener_us: float) -> Row:
        """Evaluate the blocks of a case."""
        unlogged, logged, control = ([block[arm] for block in blocks] for arm in (UNLOGGED, LOGGED, CONTROL))
        scale = 1000 * case.requests
        added = trimmed_interval([(a - b) / scale for a, b in zip(logged, unlogged, strict=True)])
        typical = trimmed_interval(unlogged).value / scale
        ratios = ratio(unlogged, logged), ratio(unlogged, control)
        return cls(case, len(blocks), typical, added, *ratios, listener_us)

    @classmethod
    def across(cls, rows: Sequence[Row]) -> Row:
        """Put together what several processes gave for the same case."""
        return cls(
            rows[0].case,
            sum(row.blocks for row in rows),
            fmean(row.unlogged_us for row in rows),
            across([row.added_us for row in rows]),
            across([row.ratio for row in rows]),
            across([row.control for row in rows]),
            fmean(row.listener_us for row in rows),
            len(rows),
        )

    @property
    def is_precise(self) -> bool:
        """Whether both intervals are as narrow as they should be."""
        return max(self.ratio.half, self.control.half) <= PRECISION

    @property
    def is_reached(self) -> bool:
        """Whether the goal is reached, whatever the control says."""
        if self.case.least_ratio is not None:
            return self.ratio.value >= self.case.least_ratio
        return self.case.most_added_us is None or self.added_us.value <= self.case.most_added_us

    @property
    def _is_close(self) -> bool:
        if self.case.least_ratio is not None:
            return self.ratio.holds(self.case.least_ratio)
        return self.case.most_added_us is not None and self.added_us.holds(self.case.most_added_us)

    def verdict(self) -> str:
        """Return the goal and what became of it."""
        distance = self.case.distance(self.unlogged_us, self.ratio)
        judged = verdict(self.is_reached, self.control, distance)
        if not self.case.goal():
            return "measured" if judged == "reached" else judged
        close = self._is_close and not judged.startswith("not measured")
        return f"{self.case.goal()}: {judged}{', but within noise of the goal' if close else ''}"

    def line(self) -> str:
        """Return the row as a line of the table."""
        listener = f"{self.listener_us:.2f} µs"
        wide = "" if self.is_precise else f"; known to ±{max(self.ratio.half, self.control.half):.1%} only"
        return (
            f"{self.case.name:<34} {self.unlogged_us:>6.2f} µs {_added(self.added_us):>16} {self.ratio!s:>25} "
            f"{self.control!s:>25} {listener:>9} {self.blocks:>7}  {self.verdict()}{wide}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the row for the file of ``--json``."""
        return {
            "name": self.case.name,
            "requests_per_slice": self.case.requests,
            "processes": self.processes,
            "blocks": self.blocks,
            "unlogged_us": self.unlogged_us,
            "added_us": self.added_us.as_json(),
            "unlogged_to_logged": self.ratio.as_json(),
            "control": self.control.as_json(),
            "listener_us_per_record": self.listener_us,
            "is_precise": self.is_precise,
            "verdict": self.verdict(),
        }


@dataclass(frozen=True)
class ChunkRow:
    """What one chunk of a stream adds: the difference of two rows, divided by the number of chunks."""

    name: str
    added_us: Interval
    most_us: float
    reason: str | None

    @classmethod
    def of(cls, name: str, request: Row, stream: Row, chunks: int, most_us: float) -> ChunkRow:
        """Take a stream's row and that of a request without chunks apart."""
        value = (stream.added_us.value - request.added_us.value) / chunks
        half = math.hypot(stream.added_us.half, request.added_us.half) / chunks
        reasons = (doubt(row.control, row.case.distance(row.unlogged_us, row.ratio)) for row in (request, stream))
        return cls(name, Interval(value, value - half, value + half), most_us, next(filter(None, reasons), None))

    def verdict(self) -> str:
        """Return the goal and what became of it."""
        reached = "reached" if self.added_us.value <= self.most_us else "not reached"
        return f"goal ≤ {self.most_us:g} µs: {f'not measured: {self.reason}' if self.reason else reached}"

    def line(self) -> str:
        """Return the row as a line of the table."""
        return (
            f"{self.name:<34} {'':>9} {_added(self.added_us):>16} {'':>25} {'':>25} {'':>9} {'':>7}  {self.verdict()}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the row for the file of ``--json``."""
        return {"name": self.name, "added_us": self.added_us.as_json(), "verdict": self.verdict()}


def head() -> str:
    """Return the head of the table."""
    return _HEAD


def place() -> dict[str, str]:
    """Return the machine, the interpreter with its build, and the packages that the figures depend on."""
    packages = ("uvicorn", "uvloop", "httptools", "fastapi", "starlette", "inferlog")
    found = machine()
    found["python"] += f", {_build()}"
    return found | {"packages": ", ".join(f"{name} {version(name)}" for name in packages)}


def _build() -> str:
    if "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        return "built with PGO (--enable-optimizations)"
    # Debian profiles in its own rules, of which the interpreter knows nothing.
    if sys.base_prefix == "/usr" and Path("/etc/debian_version").exists():
        return "Debian's build, which has PGO"
    return "built without PGO"


def _added(added: Interval) -> str:
    digits = 2 if added.half >= 0.005 else 3
    return f"{added.value:.{digits}f} ± {added.half:.{digits}f} µs"
