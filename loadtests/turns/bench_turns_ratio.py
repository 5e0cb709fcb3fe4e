"""Ratios of what took turns: log ratio within each block, trimmed mean over blocks, bootstrap interval, verdict.

A block holds one slice of each contender, so what changes more slowly than a block cancels in their ratio. The tenth of
the blocks with the highest and the tenth with the lowest ratio, where something else got in between, are left out. The
interval is that of 95 % by the percentile bootstrap over blocks.

Where memory happens to lie makes one process differ from the next by more than that, in what logging costs as well. So
several processes are measured, and their mean has Student's interval, in which this spread is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any, Final

import numpy as np

from inference_logging.read.stats.interval import RESAMPLES, TRIM, Interval

_STUDENT: Final = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's factor of 95 % for two values, three and so on; the last one is a little wide for more."""
_NUMBERS_AT_ONCE: Final = 2_000_000
_SEED: Final = 20240501


def trimmed_interval(values: Sequence[float]) -> Interval:
    """Return the trimmed mean of ``values`` with its interval; of a single value, that value."""
    given = np.asarray(values, dtype=float)
    value = float(_trimmed_mean(given[np.newaxis])[0])
    drawn = np.random.default_rng(_SEED)
    rows = max(1, _NUMBERS_AT_ONCE // len(given))
    means = [
        _trimmed_mean(given[drawn.integers(len(given), size=(min(rows, RESAMPLES - done), len(given)))])
        for done in range(0, RESAMPLES, rows)
    ]
    low, high = np.quantile(np.concatenate(means), (0.025, 0.975))
    return Interval(value, float(low), float(high))


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    """Return ``numerators`` ÷ ``denominators``, each divided by that of its own block."""
    logs = trimmed_interval([math.log(a / b) for a, b in zip(numerators, denominators, strict=True)])
    return Interval(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high))


def across(found: Sequence[Interval]) -> Interval:
    """Return the mean of what several processes gave, with the interval that their spread gives; of one, that one."""
    if len(found) == 1:
        return found[0]
    values = [one.value for one in found]
    half = _STUDENT[min(len(found), len(_STUDENT) + 1) - 2] * stdev(values) / math.sqrt(len(values))
    return Interval(fmean(values), fmean(values) - half, fmean(values) + half)


def resampled(values: Any) -> Any:
    """Return the trimmed means of the columns in resamples of the rows: a row for each resample."""
    drawn = np.random.default_rng(_SEED)
    count = len(values)
    return np.array([_trimmed_mean(values[drawn.integers(count, size=count)].T) for _ in range(RESAMPLES)])


def of_processes(found: Sequence[Any]) -> Any:
    """Return means over processes, which are drawn with replacement as the rows of ``resampled`` in each are."""
    drawn, processes = np.random.default_rng(_SEED), np.stack(found)
    chosen = drawn.integers(len(found), size=(RESAMPLES, len(found)))
    return processes[chosen, drawn.integers(RESAMPLES, size=chosen.shape)].mean(axis=1)


def trimmed_means(values: Any) -> Any:
    """Return the trimmed mean of each column."""
    return _trimmed_mean(values.T)


def doubt(control: Interval, distance: float) -> str | None:
    """Return why a ratio that is ``distance`` from 1 cannot be claimed beside this control, or None if it can."""
    if not control.holds(1.0):
        return "the control is off 1"
    if control.high - control.low >= distance:
        return "the control is wider than the claim"
    return None


def verdict(is_reached: bool, control: Interval, distance: float) -> str:
    """Return ``reached``, ``not reached``, or ``not measured`` with the reason."""
    reason = doubt(control, distance)
    if reason:
        return f"not measured: {reason}"
    return "reached" if is_reached else "not reached"


def _trimmed_mean(rows: Any) -> Any:
    count = rows.shape[1]
    cut = int(TRIM * count)
    if cut == 0:
        return rows.mean(axis=1)
    return np.partition(rows, (cut, count - cut - 1), axis=1)[:, cut : count - cut].mean(axis=1)
