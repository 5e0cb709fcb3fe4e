"""A quantile sketch: a histogram with buckets whose width grows with the value (DDSketch, Masson et al., VLDB 2019).

Every quantile is within 1 % of a value that was counted at that rank, whatever the distribution. Two sketches merge
into the sketch of all their values, so that figures per route and per model add up to the whole. Memory is bounded by
the range of the values: 1 ns … 30 years is 2,100 buckets.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Final

RELATIVE_ERROR: Final = 0.01
_GAMMA: Final = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
PER_E: Final = 1 / math.log(_GAMMA)
"""Buckets in which values grow to e times themselves: the bucket of a value is the logarithm times this, rounded up."""
SMALLEST: Final = 1e-9
"""What is less counts as zero."""
_LARGEST_LOGARITHM: Final = math.log(sys.float_info.max)


def edge(bucket: float) -> float:
    """Return the upper end of a bucket; the largest number, where that is beyond it."""
    return math.exp(min(bucket / PER_E, _LARGEST_LOGARITHM))


class Sketch:
    """Counts of positive values by size; zero and less is counted as zero."""

    __slots__ = ("buckets", "count", "greatest", "least", "sum", "zeros")

    def __init__(self) -> None:
        """Begin empty."""
        self.buckets: dict[int, float] = {}
        self.zeros = self.count = self.sum = 0.0
        self.least, self.greatest = math.inf, -math.inf

    def add(self, value: float, weight: float = 1.0) -> None:
        """Count ``value``, ``weight`` times."""
        self.count += weight
        self.sum += value * weight
        if value < self.least:
            self.least = value
        if value > self.greatest:
            self.greatest = value
        if value < SMALLEST:
            self.zeros += weight
            return
        index = math.ceil(math.log(value) * PER_E)
        buckets = self.buckets
        buckets[index] = buckets.get(index, 0.0) + weight

    def add_bucket(self, bucket: int | None, weight: float, total: float, least: float, greatest: float) -> None:
        """Count values of one bucket, None for zeros: their weight, their sum, the least and the greatest."""
        self.count += weight
        self.sum += total
        self.least, self.greatest = min(self.least, least), max(self.greatest, greatest)
        if bucket is None:
            self.zeros += weight
        else:
            self.buckets[bucket] = self.buckets.get(bucket, 0.0) + weight

    def merge(self, other: Sketch) -> None:
        """Count all that ``other`` counted."""
        self.count += other.count
        self.sum += other.sum
        self.zeros += other.zeros
        self.least, self.greatest = min(self.least, other.least), max(self.greatest, other.greatest)
        for index, weight in other.buckets.items():
            self.buckets[index] = self.buckets.get(index, 0.0) + weight

    def quantile(self, share: float) -> float | None:
        """Return the value below which ``share`` (0 … 1) of the weight lies; None if nothing was counted."""
        if not self.count:
            return None
        rank = share * self.count
        for _, upper, weight in self.bars():
            rank -= weight
            if rank <= 0:
                # The middle that is as far, relatively, from both ends of the bucket; never outside of what was seen.
                middle = upper * 2 / (1 + _GAMMA)
                return min(max(middle, self.least), self.greatest)
        return self.greatest

    @property
    def mean(self) -> float | None:
        """The mean of all counted values; None if there are none, or if their sum is beyond the largest number."""
        return self.sum / self.count if self.count and math.isfinite(self.sum) else None

    def bars(self) -> Iterator[tuple[float, float, float]]:
        """Iterate over lower end, upper end and weight of each bucket with something in it, from the smallest."""
        if self.zeros:
            yield 0.0, 0.0, self.zeros
        for index in sorted(self.buckets):
            upper = edge(index)
            yield upper / _GAMMA, upper, self.buckets[index]
