"""Estimates with their intervals."""

import random

import pytest

from inference_logging.read.stats.interval import Interval, bootstrap, of_groups, ratio, trimmed_mean


def test_an_interval_holds_the_true_median_about_as_often_as_it_says() -> None:
    source = random.Random(7)
    held = [bootstrap([source.gauss(10, 1) for _ in range(40)]).holds(10) for _ in range(60)]
    assert held.count(True) >= 50


def test_a_ratio_by_turns_finds_a_factor_below_a_drift_that_is_larger() -> None:
    source = random.Random(7)
    drift = [1 + turn / 20 for turn in range(60)]
    off = [100 * one * source.gauss(1, 0.01) for one in drift]
    on = [105 * one * source.gauss(1, 0.01) for one in drift]
    found = ratio(on, off)
    assert found.holds(1.05)
    assert found.half < 0.01
    assert not found.holds(1.0)


def test_what_got_in_between_at_either_end_is_left_out() -> None:
    assert trimmed_mean([1.0] * 18 + [1000.0, -1000.0]) == 1.0


def test_groups_that_differ_widen_the_interval() -> None:
    alike, apart = ([[mean + turn / 100 for turn in range(20)] for mean in means] for means in ((5, 5, 5), (4, 5, 6)))
    assert of_groups(alike).value == of_groups(apart).value == pytest.approx(5.095)
    assert of_groups(apart).half > 5 * of_groups(alike).half


@pytest.mark.parametrize(("numerators", "denominators"), [([1.0], [0.0]), ([1.0, 2.0], [1.0])])
def test_values_without_a_ratio_are_refused(numerators: list[float], denominators: list[float]) -> None:
    with pytest.raises(ValueError, match=r"above 0|shorter"):
        ratio(numerators, denominators)


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        bootstrap([])


def test_the_same_values_have_the_same_interval() -> None:
    values = [1.0, 2.0, 5.0, 3.0]
    assert bootstrap(values) == bootstrap(values)
    assert Interval(1.0, 0.5, 2.0).as_json() == {"value": 1.0, "low": 0.5, "high": 2.0}
