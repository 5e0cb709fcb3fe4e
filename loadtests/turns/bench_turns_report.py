"""What `bench_turns` prints: rows with a verdict, if the control allows one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from inference_logging.read.pages.content import Table
from inference_logging.read.stats.interval import Interval

LEAST_BLOCKS: Final = 20
"""Fewer say nothing, so even a short measurement goes on until there are as many."""


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
