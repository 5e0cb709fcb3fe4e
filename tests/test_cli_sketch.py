"""The quantile sketch: its stated error, and that parts merge into the whole."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_logging.read.stats.sketch import RELATIVE_ERROR, Sketch

VALUES = st.lists(st.floats(1e-8, 1e8) | st.sampled_from([1e-3, 0.5, 1.0]), min_size=1, max_size=60)


def sketch_of(values: list[float], weight: float = 1.0) -> Sketch:
    sketch = Sketch()
    for value in values:
        sketch.add(value, weight)
    return sketch


@given(values=VALUES, share=st.floats(0, 1), weight=st.sampled_from([1.0, 3.0, 0.25]))
def test_each_quantile_is_within_the_stated_error_of_the_value_at_that_rank(
    values: list[float], share: float, weight: float
) -> None:
    exact = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    found = sketch_of(values, weight).quantile(share)
    assert found is not None
    assert abs(found - exact) <= RELATIVE_ERROR * exact * (1 + 1e-9)


@given(first=VALUES, second=VALUES)
def test_two_sketches_merge_into_the_one_of_all_values(first: list[float], second: list[float]) -> None:
    merged, whole = sketch_of(first), sketch_of(first + second)
    merged.merge(sketch_of(second))
    assert merged.buckets == whole.buckets
    assert (merged.count, merged.least, merged.greatest) == (whole.count, whole.least, whole.greatest)
    assert merged.sum == pytest.approx(whole.sum)


@given(VALUES)
def test_mean_and_greatest_are_exact_and_no_quantile_is_beyond_them(values: list[float]) -> None:
    sketch = sketch_of(values)
    assert sketch.mean == pytest.approx(sum(values) / len(values))
    assert (sketch.least, sketch.greatest) == (min(values), max(values))
    quantiles = [sketch.quantile(share / 10) or 0.0 for share in range(11)]
    assert min(values) <= quantiles[0]
    assert quantiles == sorted(quantiles)
    assert quantiles[-1] <= max(values)


def test_weights_count_as_repetition() -> None:
    sketch = Sketch()
    sketch.add(1.0, 99.0)
    sketch.add(100.0, 1.0)
    assert sketch.quantile(0.98) == pytest.approx(1.0, rel=RELATIVE_ERROR)
    assert sketch.quantile(0.999) == pytest.approx(100.0, rel=RELATIVE_ERROR)


def test_zero_is_counted_and_an_empty_sketch_has_no_quantile() -> None:
    assert Sketch().quantile(0.5) is None
    assert Sketch().mean is None
    sketch = sketch_of([0.0, 0.0, 0.0, 1.0])
    assert sketch.quantile(0.5) == 0.0
    assert sketch.quantile(1.0) == pytest.approx(1.0, rel=RELATIVE_ERROR)


def test_a_thousand_years_and_a_nanosecond_take_a_bounded_number_of_buckets() -> None:
    sketch = Sketch()
    for exponent in range(-90, 101):
        for step in range(100):
            sketch.add(10 ** (exponent / 10) * (1 + step / 385))
    assert len(sketch.buckets) < 2300
