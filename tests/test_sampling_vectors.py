"""Decision by decision as OpenTelemetry's Go and Java code: fixtures that the programs beside them have written.

`tests/vectors/go` and `tests/vectors/java` hold the programs; each begins with the command that writes its fixture.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from inference_logging._native import Sampler
from tests import sampling
from tests.support import sampler_of

FOLDER = Path(__file__).parent / "vectors"


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
    threshold = sampling.threshold(ratio, precision)
    assert sampling.encode_th(threshold) == entry["th"]
    assert [(trace_id, sampling.is_kept(trace_id, threshold)) for trace_id, _ in wanted] == wanted
    assert natively(sampler_of("probability", ratio=ratio, precision=precision), wanted) == wanted
    assert natively(sampler_of("parent", ratio=ratio, precision=precision), wanted) == wanted


@pytest.mark.parametrize(("language", "entry"), decisions("java", "legacy"))
def test_otel_legacy_java_keeps_what_the_java_sdk_keeps(language: str, entry: dict[str, Any]) -> None:
    wanted, ratio = expected(language, entry), entry["ratio"]
    assert [(trace_id, sampling.is_kept_legacy_java(trace_id, ratio)) for trace_id, _ in wanted] == wanted
    assert natively(sampler_of("otel-legacy-java", ratio=ratio), wanted) == wanted


@pytest.mark.parametrize(("language", "entry"), decisions("go", "legacy"))
def test_otel_legacy_python_keeps_what_the_go_sdk_keeps(language: str, entry: dict[str, Any]) -> None:
    wanted, ratio = expected(language, entry), entry["ratio"]
    # Go drops the lowest bit before it compares. From 2**-11 on that changes nothing; below, two ids in 2**64.
    bound = round(ratio * 2**64)
    exempt = {bound - 2, bound - 1} if 0 < ratio < 2**-11 else set()
    wanted = [(trace_id, kept) for trace_id, kept in wanted if int(trace_id[16:], 16) not in exempt]
    assert [(trace_id, sampling.is_kept_legacy_python(trace_id, ratio)) for trace_id, _ in wanted] == wanted
    assert natively(sampler_of("otel-legacy-python", ratio=ratio), wanted) == wanted


@pytest.mark.parametrize("case", vectors("go")["random"], ids=lambda case: f"{case['th']}-{case['rv']}")
def test_a_random_value_of_the_caller_is_weighed_against_th_as_in_go(case: dict[str, Any]) -> None:
    th, rv = sampling.decode_th(case["th"]), int(case["rv"], 16)
    assert sampling.is_kept(rv, th) is case["kept"]
    for sampled in (True, False):
        assert sampler_of("parent").head(case["trace_id"], "/", (sampled, th, rv))[0] is case["kept"]


@pytest.mark.parametrize(
    "case", vectors("java")["parents"], ids=lambda case: f"{case['ot']}-{case['traceparent'][19:]}"
)
def test_a_parent_is_followed_as_by_the_java_sdk(case: dict[str, Any]) -> None:
    _, trace_id, _, flags = case["traceparent"].split("-")
    sent = dict(member.split(":") for member in case["ot"].split(";") if member)
    th, rv = (sampling.decode_th(sent["th"]) if "th" in sent else None), (int(sent["rv"], 16) if "rv" in sent else None)
    kept, count, reason = sampler_of("parent", ratio=0.5).head(trace_id, "/", (flags == "01", th, rv))
    assert (kept, reason) == (case["kept"], "" if case["kept"] else "parent")
    if kept:
        assert count == (sampling.adjusted_count(th) if th is not None else None)
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
