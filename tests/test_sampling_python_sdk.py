"""Decision by decision as OpenTelemetry's SDK for Python: both of its ways, over thousands of trace ids."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace._sampling_experimental import (
    composable_parent_threshold,
    composable_traceid_ratio_based,
    composite_sampler,
)
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.sdk.trace.sampling import Sampler as SdkSampler
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context

from tests import sampling
from tests.support import sampler_of

RATIOS = [1.0, 0.9999, 0.75, 0.5, 1 / 3, 0.25, 0.2, 0.1, 0.01, 1e-3, 1e-6, 2.0**-56, 0.0]
LOW_BITS = st.integers(0, 2**64 - 1)
ANY_RATIO = st.floats(2.0**-56, 1.0)


def trace_ids(ratio: float) -> Iterator[int]:
    """Yield random ids, and those around the bounds of every way."""
    source = random.Random(f"{ratio}")
    for _ in range(2000):
        yield source.getrandbits(128) | 1 << 127
    bounds = [0, 2**55, 2**56, 2**63, 2**64, round(ratio * 2**64), int(ratio * 2**63), 2**64 - int(ratio * 2**63)]
    for bound in [*bounds, 2**56 - round(ratio * 2**56)]:
        for near in range(-2, 3):
            yield 1 << 127 | (bound + near) % 2**64


def keeps(sampler: SdkSampler, trace_id: int, parent: SpanContext | None = None) -> bool:
    context = set_span_in_context(NonRecordingSpan(parent)) if parent is not None else None
    state = parent.trace_state if parent is not None else None
    result = sampler.should_sample(context, trace_id, "", trace_state=state)
    return result.decision is Decision.RECORD_AND_SAMPLE


@pytest.mark.parametrize("ratio", RATIOS)
def test_otel_legacy_python_keeps_what_trace_id_ratio_based_keeps(ratio: float) -> None:
    theirs, ours = TraceIdRatioBased(ratio), sampler_of("otel-legacy-python", ratio=ratio)
    for trace_id in trace_ids(ratio):
        kept = keeps(theirs, trace_id)
        assert sampling.is_kept_legacy_python(trace_id, ratio) is kept, hex(trace_id)
        assert ours.head(f"{trace_id:032x}")[0] is kept, hex(trace_id)


@pytest.mark.parametrize("ratio", RATIOS)
def test_probability_of_full_precision_keeps_what_the_composable_sampler_keeps(ratio: float) -> None:
    theirs, threshold = composite_sampler(composable_traceid_ratio_based(ratio)), sampling.threshold(ratio, 14)
    for kind in ("probability", "parent"):
        ours = sampler_of(kind, ratio=ratio, precision=14)
        for trace_id in trace_ids(ratio):
            kept = keeps(theirs, trace_id)
            assert sampling.is_kept(trace_id, threshold) is kept, hex(trace_id)
            assert ours.head(f"{trace_id:032x}")[0] is kept, hex(trace_id)


@given(LOW_BITS, st.integers(0, 2**56 - 1) | st.none(), st.integers(0, 2**56 - 1) | st.none(), st.booleans())
def test_parent_follows_what_the_composable_parent_threshold_follows(
    low: int, th: int | None, rv: int | None, sampled: bool
) -> None:
    trace_id = 1 << 127 | low
    members = [f"th:{sampling.encode_th(th)}"] if th is not None else []
    members += [f"rv:{rv:014x}"] if rv is not None else []
    state = TraceState([("ot", ";".join(members))] if members else [])
    flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    parent = SpanContext(trace_id, 7, is_remote=True, trace_flags=flags, trace_state=state)
    # The ratio of the root must not matter where there is a parent.
    theirs = composite_sampler(composable_parent_threshold(composable_traceid_ratio_based(0.5)))
    kept = keeps(theirs, trace_id, parent)
    head = sampler_of("parent", ratio=0.5).head(f"{trace_id:032x}", "/", (sampled, th, rv))
    assert head[0] is kept
    if kept:
        assert head[1] == (pytest.approx(sampling.adjusted_count(th)) if th is not None else None)


@given(LOW_BITS, ANY_RATIO, st.integers(1, 14))
def test_the_native_sampler_decides_and_weighs_as_the_python_functions(low: int, ratio: float, precision: int) -> None:
    trace_id, threshold = f"{1 << 127 | low:032x}", sampling.threshold(ratio, precision)
    head = sampler_of("probability", ratio=ratio, precision=precision).head(trace_id)
    assert head[0] is sampling.is_kept(trace_id, threshold)
    assert head[1] == (pytest.approx(sampling.adjusted_count(threshold), rel=1e-12) if head[0] else 0.0)


@given(LOW_BITS, ANY_RATIO)
def test_the_native_legacy_ways_decide_as_the_python_functions(low: int, ratio: float) -> None:
    trace_id = f"{1 << 127 | low:032x}"
    for name, decide in (("python", sampling.is_kept_legacy_python), ("java", sampling.is_kept_legacy_java)):
        assert sampler_of(f"otel-legacy-{name}", ratio=ratio).head(trace_id)[0] is decide(trace_id, ratio), name


@given(ANY_RATIO, st.integers(1, 14), st.integers(-2, 2))
def test_the_native_threshold_lies_exactly_where_the_python_one_lies(ratio: float, precision: int, near: int) -> None:
    r = sampling.threshold(ratio, precision) + near
    if 0 <= r < sampling.NEVER:
        head = sampler_of("probability", ratio=ratio, precision=precision).head(f"{1 << 127 | r:032x}")
        assert head[0] is (near >= 0)


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_a_ratio_that_no_sdk_takes_is_refused(ratio: float) -> None:
    for decide in (sampling.is_kept_legacy_python, sampling.is_kept_legacy_java):
        with pytest.raises(ValueError, match=r"^ratio="):
            decide(1, ratio)
    for kind in ("parent", "probability", "otel-legacy-python", "otel-legacy-java"):
        with pytest.raises(ValueError, match=r"^sample_ratio=|is no JSON"):
            sampler_of(kind, ratio=ratio)


def test_an_unknown_kind_and_a_wrong_trace_id_are_refused() -> None:
    with pytest.raises(ValueError, match='sampler="always": must be one of "parent", "probability"'):
        sampler_of("always")
    for wrong in ("", "1", "g" * 32, "0" * 33):
        with pytest.raises(ValueError, match="must be 32 hex digits"):
            sampler_of("parent").head(wrong)
