"""The sampling rule against OpenTelemetry's vectors, and its properties over all inputs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import sampling

RATIOS = st.floats(min_value=sampling.MIN_RATIO, max_value=1.0)
PRECISIONS = st.integers(1, sampling.MAX_PRECISION)
THRESHOLDS = st.integers(0, sampling.NEVER - 1)
TRACE_IDS = st.integers(1, 2**128 - 1)


@pytest.mark.parametrize(
    ("ratio", "th"),
    [
        (1, "0"),
        (1 / 2, "8"),
        (1 / 3, "aaab"),
        (1 / 4, "c"),
        (1 / 5, "cccd"),
        (1 / 8, "e"),
        (1 / 10, "e666"),
        (1 / 16, "f"),
        (1 / 100, "fd70a"),
        (1 / 1000, "ffbe77"),
        (1 / 10_000, "fff9724"),
        (1e-5, "ffff583a"),
        (1e-6, "ffffef39"),
    ],
)
def test_thresholds_of_precision_4_are_those_of_the_specification(ratio: float, th: str) -> None:
    assert sampling.encode_th(sampling.threshold(ratio)) == th


@pytest.mark.parametrize(("ratio", "t"), [(0.45, 39631676720860364), (0.2, 57646075230342348)])
def test_thresholds_of_full_precision_are_those_of_the_python_sdk(ratio: float, t: int) -> None:
    assert sampling.threshold(ratio, 14) == t


def test_the_smallest_ratio_keeps_one_random_value_at_any_precision() -> None:
    assert {sampling.threshold(sampling.MIN_RATIO, precision) for precision in range(1, 15)} == {2**56 - 1}


def test_a_ratio_just_below_1_still_rejects_something() -> None:
    assert sampling.threshold(1 - 2**-53, 1) == 8


@given(RATIOS, PRECISIONS)
def test_the_share_kept_differs_from_the_ratio_by_no_more_than_the_precision_allows(ratio: float, digits: int) -> None:
    kept = (sampling.NEVER - sampling.threshold(ratio, digits)) / sampling.NEVER
    # Half a unit of the last digit, for the smaller of both shares, plus the rounding to 56 bits.
    assert abs(kept - ratio) <= min(ratio, 1 - ratio) * 16.0 ** (1 - digits) / 2 + 2.0**-56


@given(RATIOS, RATIOS, PRECISIONS)
def test_a_higher_ratio_never_has_a_higher_threshold(one: float, other: float, precision: int) -> None:
    low, high = sorted((one, other))
    assert sampling.threshold(low, precision) >= sampling.threshold(high, precision)


@given(THRESHOLDS)
def test_th_is_decoded_to_what_was_encoded(t: int) -> None:
    th = sampling.encode_th(t)
    assert sampling.decode_th(th) == t
    assert th == "0" or not th.endswith("0")


@given(TRACE_IDS, THRESHOLDS)
def test_a_trace_is_decided_alike_from_hex_digits_and_from_the_number(trace_id: int, t: int) -> None:
    expected = trace_id % 2**56 >= t
    assert sampling.is_kept(trace_id, t) is expected
    assert sampling.is_kept(f"{trace_id:032x}", t) is expected


@given(TRACE_IDS)
def test_ratio_1_keeps_every_trace_and_ratio_0_none(trace_id: int) -> None:
    assert sampling.is_kept(trace_id, sampling.threshold(1))
    assert not sampling.is_kept(trace_id, sampling.threshold(0))


@pytest.mark.parametrize(("r", "kept"), [(0x7FFFFFFFFFFFFF, False), (0x80000000000000, True)])
def test_a_random_value_equal_to_the_threshold_is_kept(r: int, kept: bool) -> None:
    assert sampling.is_kept(0xFFFF << 56 | r, sampling.threshold(0.5)) is kept


def test_each_kept_trace_stands_for_as_many_as_its_ratio_says() -> None:
    assert sampling.adjusted_count(sampling.ALWAYS) == 1.0
    assert sampling.adjusted_count(sampling.threshold(1 / 4)) == 4.0
    assert sampling.adjusted_count(sampling.threshold(0.1, 14)) == pytest.approx(10)
    assert sampling.adjusted_count(sampling.NEVER) == 0.0


@pytest.mark.parametrize("ratio", [-0.1, 1.1, 2.0**-57, float("nan"), float("inf")])
def test_a_ratio_without_a_threshold_is_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match=r"^ratio=.*must be 0, or from 2\*\*-56 to 1"):
        sampling.threshold(ratio)


@pytest.mark.parametrize("precision", [0, 15])
def test_a_precision_outside_the_hex_digits_is_refused(precision: int) -> None:
    with pytest.raises(ValueError, match=f"precision={precision}"):
        sampling.threshold(0.5, precision)


@pytest.mark.parametrize("th", ["", "0x8", "E666", "g", "1" * 15, "8 ", "8_0", "٣"])
def test_a_th_that_is_not_1_to_14_lowercase_hex_digits_is_refused(th: str) -> None:
    with pytest.raises(ValueError, match="must be 1 to 14 lowercase hex digits"):
        sampling.decode_th(th)


@pytest.mark.parametrize("t", [-1, sampling.NEVER])
def test_a_threshold_outside_56_bits_has_no_th(t: int) -> None:
    with pytest.raises(ValueError, match=r"must be from 0 to 2\*\*56 - 1"):
        sampling.encode_th(t)


@pytest.mark.parametrize("t", [-1, sampling.NEVER + 1])
def test_a_threshold_outside_the_range_has_no_adjusted_count(t: int) -> None:
    with pytest.raises(ValueError, match="must be from 0 to"):
        sampling.adjusted_count(t)
