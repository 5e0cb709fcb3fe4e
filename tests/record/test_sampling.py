"""Sampling: which requests are kept, as the vectors of other SDKs say."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

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

from inference_logging._native import Sampler, sampling_threshold
from tests.kit.support import sampler_of

NEVER = 1 << 56
"""The threshold that no random value of 56 bits reaches."""
ANY_RATIO = st.floats(min_value=2.0**-56, max_value=1.0)
PRECISIONS = st.integers(1, 14)


def threshold(ratio: float, precision: int = 4) -> int:
    """Return T of the native sampler."""
    return sampling_threshold(ratio, precision)[0]


def decoded(th: str) -> int:
    return int(th.ljust(14, "0"), 16)


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
    assert sampling_threshold(ratio, 4)[:2] == (decoded(th), th)


@pytest.mark.parametrize(("ratio", "t"), [(0.45, 39631676720860364), (0.2, 57646075230342348)])
def test_thresholds_of_full_precision_are_those_of_the_python_sdk(ratio: float, t: int) -> None:
    assert threshold(ratio, 14) == t


def test_the_smallest_ratio_keeps_one_random_value_at_any_precision() -> None:
    assert {threshold(2.0**-56, precision) for precision in range(1, 15)} == {2**56 - 1}


def test_a_ratio_just_below_1_still_rejects_something() -> None:
    assert threshold(1 - 2**-53, 1) == 8


@given(ANY_RATIO, PRECISIONS)
def test_the_share_kept_differs_from_the_ratio_by_no_more_than_the_precision_allows(ratio: float, digits: int) -> None:
    kept = (NEVER - threshold(ratio, digits)) / NEVER
    # Half a unit of the last digit, for the smaller of both shares, plus the rounding to 56 bits.
    assert abs(kept - ratio) <= min(ratio, 1 - ratio) * 16.0 ** (1 - digits) / 2 + 2.0**-56


@given(ANY_RATIO, ANY_RATIO, PRECISIONS)
def test_a_higher_ratio_never_has_a_higher_threshold(one: float, other: float, precision: int) -> None:
    low, high = sorted((one, other))
    assert threshold(low, precision) >= threshold(high, precision)


@given(ANY_RATIO, PRECISIONS)
def test_a_threshold_is_written_without_zeros_at_its_end_and_weighs_as_its_share(ratio: float, precision: int) -> None:
    t, th, count = sampling_threshold(ratio, precision)
    assert th is not None
    assert (decoded(th), th == "0" or not th.endswith("0")) == (t, True)
    assert count == pytest.approx(NEVER / (NEVER - t), rel=1e-12)
    assert sampling_threshold(0, precision) == (NEVER, None, 0.0)


FOLDER = Path(__file__).parents[1] / "vectors"


@cache
def vectors(language: str) -> dict[str, Any]:
    loaded = json.loads((FOLDER / f"{language}.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


def decisions(language: str, part: str) -> list[Any]:
    entries = vectors(language)[part]
    assert len(entries) >= 14
    return [
        pytest.param(language, entry, id=f"{language}-{entry['ratio']:.3g}-{at}") for at, entry in enumerate(entries)
    ]


def expected(language: str, entry: dict[str, Any]) -> list[tuple[str, bool]]:
    ids = vectors(language)["ids"] + entry["edges"]
    return [(trace_id, kept == "1") for trace_id, kept in zip(ids, entry["kept"], strict=True)]


def natively(sampler: Sampler, wanted: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    return [(trace_id, sampler.head(trace_id)[0]) for trace_id, _ in wanted]


@pytest.mark.parametrize(("language", "entry"), [*decisions("go", "consistent"), *decisions("java", "consistent")])
def test_consistent_probability_keeps_what_go_and_java_keep(language: str, entry: dict[str, Any]) -> None:
    # The Java SDK has no precision: it rounds to 56 bits.
    ratio, precision = entry["ratio"], entry.get("precision", 14)
    wanted = expected(language, entry)
    assert sampling_threshold(ratio, precision)[1] == entry["th"]
    assert natively(sampler_of("probability", ratio=ratio, precision=precision), wanted) == wanted
    assert natively(sampler_of("parent", ratio=ratio, precision=precision), wanted) == wanted


@pytest.mark.parametrize(("language", "entry"), decisions("java", "legacy"))
def test_otel_legacy_java_keeps_what_the_java_sdk_keeps(language: str, entry: dict[str, Any]) -> None:
    wanted, ratio = expected(language, entry), entry["ratio"]
    assert natively(sampler_of("otel-legacy-java", ratio=ratio), wanted) == wanted


@pytest.mark.parametrize(("language", "entry"), decisions("go", "legacy"))
def test_otel_legacy_python_keeps_what_the_go_sdk_keeps(language: str, entry: dict[str, Any]) -> None:
    wanted, ratio = expected(language, entry), entry["ratio"]
    # Go drops the lowest bit before it compares. From 2**-11 on that changes nothing; below, two ids in 2**64.
    bound = round(ratio * 2**64)
    exempt = {bound - 2, bound - 1} if 0 < ratio < 2**-11 else set()
    wanted = [(trace_id, kept) for trace_id, kept in wanted if int(trace_id[16:], 16) not in exempt]
    assert natively(sampler_of("otel-legacy-python", ratio=ratio), wanted) == wanted


@pytest.mark.parametrize("case", vectors("go")["random"], ids=lambda case: f"{case['th']}-{case['rv']}")
def test_a_random_value_of_the_caller_is_weighed_against_th_as_in_go(case: dict[str, Any]) -> None:
    th, rv = decoded(case["th"]), int(case["rv"], 16)
    for sampled in (True, False):
        assert sampler_of("parent").head(case["trace_id"], "/", (sampled, th, rv))[0] is case["kept"]


@pytest.mark.parametrize(
    "case", vectors("java")["parents"], ids=lambda case: f"{case['ot']}-{case['traceparent'][19:]}"
)
def test_a_parent_is_followed_as_by_the_java_sdk(case: dict[str, Any]) -> None:
    _, trace_id, _, flags = case["traceparent"].split("-")
    sent = dict(member.split(":") for member in case["ot"].split(";") if member)
    th, rv = (decoded(sent["th"]) if "th" in sent else None), (int(sent["rv"], 16) if "rv" in sent else None)
    kept, count, reason = sampler_of("parent", ratio=0.5).head(trace_id, "/", (flags == "01", th, rv))
    assert (kept, reason) == (case["kept"], "" if case["kept"] else "parent")
    if kept:
        assert count == (NEVER / (NEVER - th) if th is not None else None)
        assert ("th:" in case["sent"]) is (count is not None), "Java passes th on where the weight is known"


def test_the_fixtures_say_which_versions_printed_them() -> None:
    assert set(vectors("go")["versions"]) == {
        "go.opentelemetry.io/otel/sdk",
        "github.com/open-telemetry/opentelemetry-collector-contrib/pkg/sampling",
    }
    assert set(vectors("java")["versions"]) == {
        "io.opentelemetry:opentelemetry-sdk-trace",
        "io.opentelemetry:opentelemetry-sdk-extension-incubator",
    }


def test_the_legacy_ways_of_go_and_java_disagree_on_the_same_traces() -> None:
    # Why the two have names of their own: half of what one keeps, the other leaves out.
    both: list[tuple[set[str], set[str]]] = [(set(), set()), (set(), set())]
    for language, (kept, left) in zip(("go", "java"), both, strict=True):
        entry = next(entry for entry in vectors(language)["legacy"] if entry["ratio"] == 0.5)
        for trace_id, is_kept in expected(language, entry)[:24]:
            (kept if is_kept else left).add(trace_id)
    assert both[0][0] & both[1][1]
    assert both[0][1] & both[1][0]


OF_THE_SDK = [1.0, 0.9999, 0.75, 0.5, 1 / 3, 0.25, 0.2, 0.1, 0.01, 1e-3, 1e-6, 2.0**-56, 0.0]
LOW_BITS = st.integers(0, 2**64 - 1)


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


@pytest.mark.parametrize("ratio", OF_THE_SDK)
def test_otel_legacy_python_keeps_what_trace_id_ratio_based_keeps(ratio: float) -> None:
    theirs, ours = TraceIdRatioBased(ratio), sampler_of("otel-legacy-python", ratio=ratio)
    for trace_id in trace_ids(ratio):
        assert ours.head(f"{trace_id:032x}")[0] is keeps(theirs, trace_id), hex(trace_id)


@pytest.mark.parametrize("ratio", OF_THE_SDK)
def test_probability_of_full_precision_keeps_what_the_composable_sampler_keeps(ratio: float) -> None:
    theirs = composite_sampler(composable_traceid_ratio_based(ratio))
    for kind in ("probability", "parent"):
        ours = sampler_of(kind, ratio=ratio, precision=14)
        for trace_id in trace_ids(ratio):
            assert ours.head(f"{trace_id:032x}")[0] is keeps(theirs, trace_id), hex(trace_id)


@given(LOW_BITS, st.integers(0, 2**56 - 1) | st.none(), st.integers(0, 2**56 - 1) | st.none(), st.booleans())
def test_parent_follows_what_the_composable_parent_threshold_follows(
    low: int, th: int | None, rv: int | None, sampled: bool
) -> None:
    trace_id = 1 << 127 | low
    members = ["th:" + (f"{th:014x}".rstrip("0") or "0")] if th is not None else []
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
        assert head[1] == (pytest.approx(NEVER / (NEVER - th)) if th is not None else None)


def kept_by_java(low: int, ratio: float) -> bool:
    """Decide as the SDK for Java: ratio 1 leaves out two ids, and any above 0 keeps the one without absolute value."""
    sign = 1 << 63
    return ratio > 0 if low == sign else min(low, 2 * sign - low) < min(int(ratio * sign), sign - 1)


@given(LOW_BITS, ANY_RATIO)
def test_the_legacy_ways_decide_as_their_sdks_by_any_ratio(low: int, ratio: float) -> None:
    trace_id = 1 << 127 | low
    wanted = {"python": keeps(TraceIdRatioBased(ratio), trace_id), "java": kept_by_java(low, ratio)}
    for name, kept in wanted.items():
        assert sampler_of(f"otel-legacy-{name}", ratio=ratio).head(f"{trace_id:032x}")[0] is kept, name


@given(ANY_RATIO, PRECISIONS, st.integers(-2, 2) | st.integers(-NEVER, NEVER))
def test_a_trace_is_kept_from_its_threshold_on_and_has_its_weight(ratio: float, precision: int, near: int) -> None:
    t, _, count = sampling_threshold(ratio, precision)
    if 0 <= (r := t + near) < NEVER:
        head = sampler_of("probability", ratio=ratio, precision=precision).head(f"{1 << 127 | r:032x}")
        assert head[:2] == ((True, count) if near >= 0 else (False, 0.0))


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
@pytest.mark.parametrize("kind", ["parent", "probability", "otel-legacy-python", "otel-legacy-java"])
def test_a_ratio_that_no_sdk_takes_is_refused(kind: str, ratio: float) -> None:
    with pytest.raises(ValueError, match=r"^sample_ratio=|is no JSON"):
        sampler_of(kind, ratio=ratio)


def test_an_unknown_kind_and_a_wrong_trace_id_are_refused() -> None:
    with pytest.raises(ValueError, match='sampler="always": must be one of "parent", "probability"'):
        sampler_of("always")
    for wrong in ("", "1", "g" * 32, "0" * 33):
        with pytest.raises(ValueError, match="must be 32 hex digits"):
            sampler_of("parent").head(wrong)
