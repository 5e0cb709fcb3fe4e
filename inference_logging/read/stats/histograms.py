"""Ratios of quantiles of two runs with intervals, from histograms over time instead of the values themselves.

Requests that were near each other met the same load, so the resamples take whole spans of time, not single requests: a
burst counts as one thing that happened, and an interval is as wide as the run's ups and downs make it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from inference_logging.read.stats.interval import LEAST_BLOCKS, Interval, of_draws

_RESAMPLES: Final = 500
_SEED: Final = 20240501


class Spans:
    """Histograms of the same edges, one for each span of time: ``cells[span][row]`` counts values of one row."""

    def __init__(self, edges: Sequence[float], cells: Sequence[Sequence[float]]) -> None:
        self._edges = edges
        full = [[float(count) for count in span] for span in cells if sum(span) > 0]
        # Cumulative in each span, so that a quantile of any mix of spans is found by bisection.
        self._spans = [list(accumulate(span)) for span in full]

    def __len__(self) -> int:
        """Return the number of spans with values."""
        return len(self._spans)

    def quantile(self, share: float, weights: Sequence[int] | None = None) -> float:
        """Return the value below which a share of all values lie, the spans ``weights`` times each."""
        weights = weights if weights is not None else [1] * len(self)
        chosen = [(span, weight) for span, weight in zip(self._spans, weights, strict=True) if weight]
        wanted = share * sum(span[-1] * weight for span, weight in chosen)
        low, high = 0, len(self._edges) - 2
        while low < high:
            middle = (low + high) // 2
            if sum(span[middle] * weight for span, weight in chosen) < wanted:
                low = middle + 1
            else:
                high = middle
        upto = sum(span[low] * weight for span, weight in chosen)
        before = sum(span[low - 1] * weight for span, weight in chosen) if low else 0.0
        within = (wanted - before) / (upto - before) if upto > before else 1.0
        begin, end = self._edges[low], self._edges[low + 1]
        # Edges are spaced by their logarithm; the lowest row may begin at 0.
        return begin * (end / begin) ** within if begin > 0 else begin + (end - begin) * within

    def draw(self, source: random.Random) -> list[int]:
        """Return how often each span is in a resample."""
        weights = [0] * len(self)
        for at in source.choices(range(len(self)), k=len(self)):
            weights[at] += 1
        return weights


def ratio_of_quantiles(over: Spans, under: Spans, shares: Sequence[float]) -> list[Interval] | None:
    """Return quantiles of ``over`` ÷ those of ``under`` with intervals of 95 %; None: too few spans for an interval."""
    if min(len(over), len(under)) < LEAST_BLOCKS:
        return None
    source = random.Random(_SEED)
    draws: list[list[float]] = [[] for _ in shares]
    for _ in range(_RESAMPLES):
        weights = over.draw(source), under.draw(source)
        for at, share in enumerate(shares):
            below = under.quantile(share, weights[1])
            if below > 0:
                draws[at].append(over.quantile(share, weights[0]) / below)
    found = []
    for share, ratios in zip(shares, draws, strict=True):
        below = under.quantile(share)
        if not ratios or below <= 0:
            return None
        found.append(of_draws(over.quantile(share) / below, ratios))
    return found
