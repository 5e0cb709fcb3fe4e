"""A quantile sketch: a histogram with buckets whose width grows with the value (DDSketch, Masson et al., VLDB 2019).

Every quantile is within 1 % of a value that was counted at that rank, whatever the distribution. The engine counts, and
memory is bounded by the range of the values: 1 ns … 30 years is 2,100 buckets.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from inference_logging.read.table.search import Search

RELATIVE_ERROR: Final = 0.01
_GAMMA: Final = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_PER_E: Final = 1 / math.log(_GAMMA)
"""Buckets in which values grow to e times themselves: the bucket of a value is the logarithm times this, rounded up."""
SMALLEST: Final = 1e-9
"""What is less counts as zero."""
_LARGEST_LOGARITHM: Final = math.log(sys.float_info.max)
WEIGHT: Final = "CASE WHEN isfinite(weight) AND weight > 0 THEN weight ELSE 1 END"
"""SQL of how many requests a row stands for: a sampled one for more than one; nothing else is a weight."""


def edge(bucket: float) -> float:
    """Return the upper end of a bucket; the largest number, where that is beyond it."""
    return math.exp(min(bucket / _PER_E, _LARGEST_LOGARITHM))


class Sketch:
    """Counts of positive values by size; zero and less is counted as zero."""

    __slots__ = ("buckets", "count", "greatest", "least", "sum", "values", "zeros")

    def __init__(self) -> None:
        self.values = 0
        self.buckets: dict[int, float] = {}
        self.zeros = self.count = self.sum = 0.0
        self.least, self.greatest = math.inf, -math.inf

    def add(self, bucket: int | None, values: int, weight: float, total: float, least: float, greatest: float) -> None:
        """Count values of one bucket, None for zeros: their number, weight and sum, the least and the greatest."""
        self.values += values
        self.count += weight
        self.sum += total
        self.least, self.greatest = min(self.least, least), max(self.greatest, greatest)
        if bucket is None:
            self.zeros += weight
        else:
            self.buckets[bucket] = self.buckets.get(bucket, 0.0) + weight

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


def sketches(search: Search, member: str, group: str, values: dict[str, Any]) -> dict[Any, Sketch]:
    """Return the distribution of a member of the rows in each group; the group None is all.

    ``group`` is SQL, with the values of its parameters and of the search.
    """
    found: dict[Any, Sketch] = {None: Sketch()}
    sql = f"""
        SELECT {group}, CASE WHEN {member} >= {SMALLEST} THEN CAST(ceil(ln({member}) * {_PER_E!r}) AS INTEGER) END,
            count(*), sum({WEIGHT}), sum({member} * {WEIGHT}), min({member}), max({member})
        FROM ({search.relation}) WHERE {member} IS NOT NULL GROUP BY 1, 2
    """
    for one, *of_bucket in search.cursor.execute(sql, values).fetchall():
        for key in {None, one}:
            found.setdefault(key, Sketch()).add(*of_bucket)
    return found
