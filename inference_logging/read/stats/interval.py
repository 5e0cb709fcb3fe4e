"""Estimates with intervals by the percentile bootstrap, for values that were measured in turns.

Contenders take turns in blocks, so what changes more slowly than a block cancels in the ratio within each. The tenth of
the values at either end, where something else got in between, is left out of the mean. The same seed gives the same
interval for the same values. An interval is one of 95 % unless a level is given.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median
from typing import Final, TypeVar

TRIM: Final = 0.1
RESAMPLES: Final = 1000
LEAST_BLOCKS: Final = 6
"""The blocks, or spans of time, that an interval needs."""
_LEVEL: Final = 0.95
_SEED: Final = 20240501
T = TypeVar("T")


@dataclass(frozen=True)
class Interval:
    """An estimate, and the ends of its interval of 95 %."""

    value: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half of the width."""
        return (self.high - self.low) / 2

    def holds(self, value: float) -> bool:
        """Return whether ``value`` is between the ends."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        """Return value and ends as ratios are printed."""
        return f"{self.value:.4f} ({self.low:.4f}…{self.high:.4f})"

    def as_json(self) -> dict[str, float]:
        """Return value and ends."""
        return {"value": self.value, "low": self.low, "high": self.high}


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of some ascending values that at least ``share`` of them do not exceed."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def trimmed_mean(values: Sequence[float]) -> float:
    """Return the mean without the tenth of the values at either end."""
    cut = int(TRIM * len(values))
    return fmean(sorted(values)[cut : len(values) - cut])


def bootstrap(
    values: Sequence[float], estimate: Callable[[Sequence[float]], float] = median, level: float = _LEVEL
) -> Interval:
    """Return the estimate of ``values`` with its interval; raises ValueError without values."""
    if not values:
        raise ValueError("values=[]: an interval needs at least one value")
    draw = random.Random(_SEED).choices
    return of_draws(estimate(values), [estimate(draw(values, k=len(values))) for _ in range(RESAMPLES)], level)


def of_draws(value: float, draws: Sequence[float], level: float = _LEVEL) -> Interval:
    """Return an estimate with the interval that its values in resamples have: the percentile bootstrap."""
    ordered = sorted(draws)
    tail = int((1 - level) / 2 * len(ordered))
    return Interval(value, ordered[tail], ordered[-1 - tail])


def resamples(
    groups: Sequence[Sequence[T]], estimates: Callable[[Sequence[T]], Sequence[float]]
) -> list[tuple[float, ...]]:
    """Return means over groups of ``estimates``, in resamples in which groups are drawn, and then values in each.

    Groups are what differs as a whole, as processes do for their whole life: their spread is in the interval.
    """
    draw = random.Random(_SEED).choices
    return [
        tuple(map(fmean, zip(*(estimates(draw(one, k=len(one))) for one in draw(groups, k=len(groups))), strict=True)))
        for _ in range(RESAMPLES)
    ]


def of_groups(groups: Sequence[Sequence[float]]) -> Interval:
    """Return the mean over groups of trimmed means, with its interval; see ``resamples``."""
    drawn = resamples(groups, lambda values: (trimmed_mean(values),))
    return of_draws(fmean(map(trimmed_mean, groups)), [one for (one,) in drawn])


def ratio(numerators: Sequence[float], denominators: Sequence[float], level: float = _LEVEL) -> Interval:
    """Return ``numerators`` ÷ ``denominators``, each divided by that of its own block, as a mean of their logarithms.

    Raises ValueError if a value is not above 0, or the numbers of values differ.
    """
    if min(*numerators, *denominators) <= 0:
        raise ValueError("a ratio needs values above 0")
    logs = [math.log(a / b) for a, b in zip(numerators, denominators, strict=True)]
    found = bootstrap(logs, trimmed_mean, level)
    return Interval(math.exp(found.value), math.exp(found.low), math.exp(found.high))


def width_of_few(count: int, level: float) -> float:
    """Return how much wider than the bootstrap's the interval of the mean of few values must be.

    Resamples of ``count`` values spread less than their source does, and normally where Student's t is due (Hesterberg,
    The American Statistician 69, 2015, section 4). The quantile of t is Abramowitz and Stegun's 26.7.5.
    """
    z, free = NormalDist().inv_cdf((1 + level) / 2), count - 1
    t = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    t += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
    return math.sqrt(count / free) * t / z
