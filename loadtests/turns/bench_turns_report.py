"""What `bench_turns` prints: a row with its control and a verdict; and where it ran."""

from __future__ import annotations

import sys
import sysconfig
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from inference_logging.read.stats.interval import Interval
from loadtests.cost.bench_report import machine

LEAST_BLOCKS: Final = 20
"""Fewer say nothing, so even a short measurement goes on until there are as many."""
HEAD: Final = (
    f"{'':<34} {'unlogged':>9} {'added':>16} {'unlogged ÷ logged':>25} {'control':>25} {'listener':>9} {'batches':>7}"
)


class Case(NamedTuple):
    """What is measured in a server: the requests of a slice, and the goal, a ratio of CPU times without and with it."""

    name: str
    requests: int = 64
    least_ratio: float | None = None


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


@dataclass(frozen=True)
class Row:
    """What the middleware adds to a request or to one of its chunks, awaited without a server."""

    name: str
    added_us: Interval
    most_us: float
    reason: str | None
    """Why the goal cannot be judged."""
    batches: int = 0
    unlogged_us: float | None = None
    """None of a chunk, whose figure is a difference of two rows."""
    ratio: Interval | None = None
    control: Interval | None = None
    listener_us: float = 0.0

    def verdict(self) -> str:
        """Return the goal and what became of it."""
        judged = verdict(self.added_us.value <= self.most_us, self.reason)
        close = ", but within noise of the goal" if not self.reason and self.added_us.holds(self.most_us) else ""
        return f"goal ≤ {self.most_us:g} µs: {judged}{close}"

    def line(self) -> str:
        """Return the row as a line of the table."""
        digits = 2 if self.added_us.half >= 0.005 else 3
        added = f"{self.added_us.value:.{digits}f} ± {self.added_us.half:.{digits}f} µs"
        if self.unlogged_us is None:
            return f"{self.name:<34} {'':>9} {added:>16} {'':>25} {'':>25} {'':>9} {'':>7}  {self.verdict()}"
        return (
            f"{self.name:<34} {self.unlogged_us:>6.2f} µs {added:>16} {self.ratio!s:>25} {self.control!s:>25} "
            f"{self.listener_us:>6.2f} µs {self.batches:>7}  {self.verdict()}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the row for the file of ``--json``."""
        found = {"name": self.name, "added_us": self.added_us.as_json(), "verdict": self.verdict()}
        if self.ratio is None or self.control is None:
            return found
        ratios = {"unlogged_to_logged": self.ratio.as_json(), "control": self.control.as_json()}
        times = {"unlogged_us": self.unlogged_us, "listener_us_per_record": self.listener_us}
        return {**found, **ratios, **times, "batches": self.batches}


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
