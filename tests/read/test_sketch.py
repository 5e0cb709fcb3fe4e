"""Quantiles of `stats` and `view`: as near to the values at their ranks as they say, whatever the values are."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_logging.read.table.sketch import RELATIVE_ERROR, Sketch, sketches

VALUES = st.lists(st.floats(1e-8, 1e8) | st.sampled_from([1e-3, 0.5, 1.0]), min_size=1, max_size=60)
SQL = duckdb.connect()


def sketches_of(values: list[float], weights: list[float], group: str = "NULL") -> dict[Any, Sketch]:
    rows: Any = SimpleNamespace(cursor=SQL, relation="SELECT unnest($v::DOUBLE[]) AS v, unnest($w::DOUBLE[]) AS weight")
    return sketches(rows, "v", group, {"v": values, "w": weights})


def sketch_of(values: list[float], weight: float = 1.0) -> Sketch:
    return sketches_of(values, [weight] * len(values))[None]


@settings(deadline=None)
@given(values=VALUES, share=st.floats(0, 1), weight=st.sampled_from([1.0, 3.0, 0.25]))
def test_each_quantile_is_within_the_stated_error_of_the_value_at_that_rank(
    values: list[float], share: float, weight: float
) -> None:
    exact = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    found = sketch_of(values, weight).quantile(share)
    assert found is not None
    assert abs(found - exact) <= RELATIVE_ERROR * exact * (1 + 1e-9)


@settings(deadline=None)
@given(VALUES)
def test_mean_and_greatest_are_exact_and_no_quantile_is_beyond_them(values: list[float]) -> None:
    sketch = sketch_of(values)
    assert sketch.mean == pytest.approx(sum(values) / len(values))
    assert (sketch.values, sketch.least, sketch.greatest) == (len(values), min(values), max(values))
    quantiles = [sketch.quantile(share / 10) or 0.0 for share in range(11)]
    assert min(values) <= quantiles[0]
    assert quantiles == sorted(quantiles)
    assert quantiles[-1] <= max(values)


@settings(deadline=None)
@given(VALUES)
def test_groups_are_distributed_as_each_alone_and_all_as_without_groups(values: list[float]) -> None:
    found = sketches_of(values, [1.0] * len(values), "v < 1.0")
    for key, chosen in ((None, values), (True, [v for v in values if v < 1]), (False, [v for v in values if v >= 1])):
        alone = sketch_of(chosen) if chosen else Sketch()
        assert found.get(key, Sketch()).buckets == alone.buckets
        assert found.get(key, Sketch()).values == len(chosen)


def test_weights_count_as_repetition() -> None:
    sketch = sketches_of([1.0, 100.0], [99.0, 1.0])[None]
    assert sketch.quantile(0.98) == pytest.approx(1.0, rel=RELATIVE_ERROR)
    assert sketch.quantile(0.999) == pytest.approx(100.0, rel=RELATIVE_ERROR)


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_weight_counts_once(weight: float) -> None:
    assert sketches_of([1.0, 2.0], [weight, 3.0])[None].count == 4


def test_zero_is_counted_and_an_empty_sketch_has_no_quantile() -> None:
    assert Sketch().quantile(0.5) is None
    assert Sketch().mean is None
    sketch = sketch_of([0.0, 0.0, 0.0, 1.0])
    assert sketch.quantile(0.5) == 0.0
    assert sketch.quantile(1.0) == pytest.approx(1.0, rel=RELATIVE_ERROR)


def test_a_thousand_years_and_a_nanosecond_take_a_bounded_number_of_buckets() -> None:
    values = [10 ** (exponent / 10) * (1 + step / 385) for exponent in range(-90, 101) for step in range(100)]
    assert len(sketch_of(values).buckets) < 2300
