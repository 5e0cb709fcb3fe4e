"""The plots of the page of `replay --html`, as data: each time's distribution in both runs."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from inference_logging.prove.replay.comparison import Comparison, Times
from inference_logging.read.pages.content import SHARES, Plot
from inference_logging.read.stats.summary import duration_text

_LEAST_S: Final = 1e-9  # a logarithmic scale has no 0
_NARROW: Final = 1e-4
_MOST_POINTS: Final = 300
"""Of a line; more make a page larger, and look the same."""


def plots(comparison: Comparison) -> Iterator[Plot]:
    """Return each time that requests have in both runs."""
    yield from (_distribution(times) for times in comparison.times if times.pairs)


def _distribution(times: Times) -> Plot:
    arms = ("recorded", "replayed")
    medians = [duration_text(times.quantiles(arm)[0]) for arm in (0, 1)]
    series = [{"name": name, **_counted(sorted(pair[arm] for pair in times.pairs))} for arm, name in enumerate(arms)]
    words = (
        f"Share of {len(times.pairs)} requests whose {times.name} was at most so long, on a logarithmic scale: median "
        f"{medians[0]} recorded, {medians[1]} replayed."
    )
    data = {"series": series, "unit": "s"}
    name = times.name.replace(" ", "-")
    return Plot(name, times.name.capitalize(), words, "distribution", data, SHARES)


def _counted(ordered: list[float]) -> dict[str, list[Any]]:
    """Return ascending values as edges, and how many values lie between each two of them.

    Each value that is drawn has an interval that is too narrow to be seen, so that a line of few values has steps.
    """
    ordered = [max(value, _LEAST_S) for value in ordered]
    every = len(ordered) // _MOST_POINTS + 1
    shown = sorted({*ordered[::every], ordered[-1]})
    edges = [end for value in shown for end in (value * (1 - _NARROW), value)]
    edges = [edge for edge, after in pairwise([*edges, math.inf]) if edge < after]
    below = [bisect_right(ordered, edge) for edge in edges]
    return {"edges": edges, "counts": [b - a for a, b in pairwise(below)]}
