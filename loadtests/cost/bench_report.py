"""What every section of the benchmark shares: a figure beside its goal, the statistics, the machine it was seen on.

A figure is the median over interleaved rounds (each round measures every contender, so that a change of the machine's
mood hits all of them alike). Of few rounds the lowest and highest stand beside it, of many its interval of 95 %. A goal
is judged on the median only.
"""

from __future__ import annotations

import platform
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from inference_logging.prove.bench import machine as bench_machine
from inference_logging.prove.bench.text import number_text
from inference_logging.read.pages.content import Table
from inference_logging.read.stats.interval import Interval, bootstrap

MANY: Final = 20
"""Rounds from which on a bootstrap's interval means something."""


class Goal(NamedTuple):
    """A bound that a figure keeps: ``<=`` or ``>=`` with a number in the figure's unit."""

    sense: str
    bound: float

    def is_reached(self, value: float) -> bool:
        """Return whether ``value`` is on the right side of the bound."""
        return value <= self.bound if self.sense == "<=" else value >= self.bound

    def verdict(self, value: float) -> str:
        """Return the goal and the mark."""
        sign = "≤" if self.sense == "<=" else "≥"
        return f"goal {sign} {self.bound:g}: {'reached' if self.is_reached(value) else 'NOT REACHED'}"


class Figure(NamedTuple):
    """One measured number: the median of its rounds, their spread, and the goal if there is one."""

    name: str
    unit: str
    rounds: Sequence[float]
    goal: Goal | None = None

    @property
    def found(self) -> Interval:
        """The median round, with its interval, or the lowest and highest round."""
        if len(self.rounds) >= MANY:
            return bootstrap(self.rounds)
        return Interval(median(self.rounds), min(self.rounds), max(self.rounds))

    def cells(self) -> tuple[str, ...]:
        """Return the row of the report's table."""
        value, low, high = self.found.as_json().values()
        spread = f"({number_text(low)} … {number_text(high)})" if len(self.rounds) > 1 else ""
        verdict = self.goal.verdict(value) if self.goal else ""
        return self.name, f"{number_text(value)} {self.unit}".rstrip(), spread, verdict

    def as_json(self) -> dict[str, Any]:
        """Return the figure for the file of ``--json``."""
        goal = self.goal._asdict() if self.goal else None
        value, low, high = self.found.as_json().values()
        reached = self.goal.is_reached(value) if self.goal else None
        rounds = {"median": value, "low": low, "high": high, "rounds": len(self.rounds)}
        return {"name": self.name, "unit": self.unit, **rounds, "goal": goal, "reached": reached}


@dataclass
class Report:
    """What one section found: figures in the order of their lines, and remarks that belong beside them."""

    title: str
    figures: list[Figure] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, name: str, unit: str, rounds: Iterable[float], goal: Goal | None = None) -> None:
        """Add a figure."""
        self.figures.append(Figure(name, unit, [float(value) for value in rounds], goal))

    def print(self) -> None:
        """Print title, figures and remarks."""
        heads = ("", "median", "rounds", "verdict")
        remarks = "\n".join(f"  - {remark}" for remark in self.remarks)
        table = Table(f"\n{self.title}", heads, [figure.cells() for figure in self.figures], remarks)
        print(table.text(), flush=True)

    def as_json(self) -> dict[str, Any]:
        """Return the section for the file of ``--json``."""
        figures = [figure.as_json() for figure in self.figures]
        return {"title": self.title, "figures": figures, "remarks": self.remarks}


def sections(reports: Iterable[Report]) -> list[dict[str, Any]]:
    """Print each report as it comes, and return all for the file of ``--json``."""
    found = []
    for report in reports:
        report.print()
        found.append(report.as_json())
    return found


def at_most(bound: float) -> Goal:
    """Return the goal of being at or below ``bound``."""
    return Goal("<=", bound)


def at_least(bound: float) -> Goal:
    """Return the goal of being at or above ``bound``."""
    return Goal(">=", bound)


def ratios(above: Iterable[float], below: Iterable[float]) -> list[float]:
    """Divide the figures of the same round: a ratio is taken within a round, never between medians."""
    return [one / other for one, other in zip(above, below, strict=True)]


def machine() -> dict[str, str]:
    """Return date, processor, kernel, interpreter with its build, load, and packages that figures depend on."""
    place = bench_machine.machine()
    packages = ("uvicorn", "uvloop", "httptools", "fastapi", "starlette", "inferlog")
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{place['cpu']}, {place['cores']} cores usable",
        "kernel": f"{platform.system()} {place['kernel']}",
        "python": f"{platform.python_implementation()} {place['python']}, {_build()}",
        "load average": " ".join(f"{value:.2f}" for value in place["load"]),
        "packages": ", ".join(f"{name} {version(name)}" for name in packages),
    }


def _build() -> str:
    if "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        return "built with PGO (--enable-optimizations)"
    # Debian profiles in its own rules, of which the interpreter knows nothing.
    if sys.base_prefix == "/usr" and Path("/etc/debian_version").exists():
        return "Debian's build, which has PGO"
    return "built without PGO"
