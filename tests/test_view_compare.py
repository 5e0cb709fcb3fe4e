"""Two choices of requests beside each other: ratios with intervals that hold the truth, and what has changed."""

from __future__ import annotations

import random
from bisect import bisect_right
from pathlib import Path
from typing import Any

import pytest

from inference_logging.read.stats.histograms import Spans, ratio_of_quantiles
from tests.segment_files import request, write_segment
from tests.view_server import serving


def spans(values: list[list[float]], rows: int = 200, low: float = 0.01, high: float = 100.0) -> Spans:
    edges = [low * (high / low) ** (at / rows) for at in range(rows + 1)]
    cells = [[0] * rows for _ in values]
    for at, span in enumerate(values):
        for value in span:
            cells[at][min(rows, max(1, bisect_right(edges, value))) - 1] += 1
    return Spans(edges, cells)


def drawn(source: random.Random, factor: float, number: int = 40, blocks: int = 30) -> list[list[float]]:
    return [[factor * source.lognormvariate(0, 0.5) for _ in range(number)] for _ in range(blocks)]


def test_a_quantile_of_a_histogram_is_near_that_of_its_values() -> None:
    values = sorted(value for span in drawn(random.Random(1), 1.0) for value in span)
    made = spans([values[::2], values[1::2]])
    for share in (0.5, 0.9, 0.99):
        assert made.quantile(share) == pytest.approx(values[int(share * len(values))], rel=0.03)


def test_the_weights_of_a_resample_count() -> None:
    made = spans([[1.0] * 10, [10.0] * 10])
    assert made.quantile(0.5, [1, 0]) == pytest.approx(1.0, rel=0.05)
    assert made.quantile(0.5, [0, 3]) == pytest.approx(10.0, rel=0.05)
    assert made.quantile(0.5, [1, 3]) == pytest.approx(10.0, rel=0.05)


def test_the_interval_holds_the_true_ratio_nearly_always() -> None:
    held = 0
    for seed in range(20):
        source = random.Random(seed)
        found = ratio_of_quantiles(spans(drawn(source, 1.3)), spans(drawn(source, 1.0)), [0.5])
        assert found is not None
        held += found[0].holds(1.3)
    assert held >= 16  # of 20 intervals of 95 %; 15 or fewer have a chance of 3 in 1,000


def test_bursts_widen_the_interval() -> None:
    source = random.Random(3)
    even = ratio_of_quantiles(spans(drawn(source, 1.0)), spans(drawn(source, 1.0)), [0.9])
    bursts = [[value * (5 if at % 6 == 0 else 1) for value in span] for at, span in enumerate(drawn(source, 1.0))]
    bursty = ratio_of_quantiles(spans(bursts), spans(drawn(source, 1.0)), [0.9])
    assert even is not None
    assert bursty is not None
    assert bursty[0].half > 2 * even[0].half


def test_too_few_spans_have_no_interval() -> None:
    source = random.Random(4)
    assert ratio_of_quantiles(spans(drawn(source, 1.0, blocks=5)), spans(drawn(source, 1.0)), [0.5]) is None
    assert ratio_of_quantiles(spans([[]] * 20), spans(drawn(source, 1.0)), [0.5]) is None


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    source, root = random.Random(5), tmp_path_factory.mktemp("runs")
    models = {"before": ["llama"] * 9 + ["qwen"], "after": ["llama", "qwen"]}
    for number, (name, factor) in enumerate((("before", 1.0), ("after", 2.0))):
        records = [
            request(
                at / 2, "error" if name == "after" and at % 5 == 0 else "ok",
                duration_s=factor * source.lognormvariate(0, 0.3),
                gen_ai__request__model=source.choice(models[name]), gen_ai__usage__input_tokens=100,
                gen_ai__usage__output_tokens=1 + at % 3,
            )
            for at in range(400)
        ]  # fmt: skip
        write_segment(root / name, records, number=number + 1)
    before, after = str(root / "before"), str(root / "after")
    with serving([root / "before", root / "after"]) as client:
        answer = client.get("api/compare", a={"directories": [before], "buckets": 40}, b={"directories": [after]})
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        return found


def test_both_sides_are_there(compared: dict[str, Any]) -> None:
    assert sum(compared["a"]["count"]) == sum(compared["b"]["count"]) == 400
    assert len(compared["a"]["count"]) == 40
    assert compared["fields"]["duration_s"]["counts"] == [400, 400]


def test_ratios_are_of_b_to_a_with_intervals(compared: dict[str, Any]) -> None:
    duration = compared["fields"]["duration_s"]
    assert duration["ratio_p50"] == pytest.approx(2.0, rel=0.15)
    assert duration["ratio_mean"] == pytest.approx(2.0, rel=0.15)
    for name in ("p50", "p90"):
        low, high = duration[f"interval_{name}"]
        assert low < 2.0 < high
        assert low > 1.5
        assert high < 2.7
    assert duration["interval"] == duration["interval_p50"]
    tokens = compared["fields"]["gen_ai.usage.input_tokens"]
    assert tokens["ratio_p50"] == 1.0
    assert tokens["interval"] is None
    tokens = compared["a"]["fields"]["gen_ai.usage.output_tokens"]
    assert [tokens[name] for name in ("p50", "p99")] == [2, 3]
    assert "engine.queued_s" not in compared["fields"]


def test_what_has_changed_is_named_the_largest_change_first(compared: dict[str, Any]) -> None:
    changed = {(one["field"], one["value"]): one for one in compared["changed"]}
    assert changed["outcome", "error"] == {"field": "outcome", "value": "error", "share_a": 0.0, "share_b": 0.2}
    assert changed["model", "qwen"]["share_a"] == pytest.approx(0.1, abs=0.06)
    assert changed["model", "qwen"]["share_b"] == pytest.approx(0.5, abs=0.1)
    sizes = [abs(one["share_b"] - one["share_a"]) for one in compared["changed"]]
    assert sizes == sorted(sizes, reverse=True)
    assert not any(field == "http.request.method" for field, _ in changed)


def test_a_wrong_side_is_named(tmp_path: Path) -> None:
    with serving([tmp_path]) as client:
        answer = client.get("api/compare", a={}, b={"buckets": 0})
        assert (answer.status, answer.json()["error"][:11]) == (400, "b.buckets=0")


def test_two_empty_sides_have_nothing_to_compare(tmp_path: Path) -> None:
    with serving([tmp_path]) as client:
        found = client.get("api/compare", a={}, b={}).json()
        assert found["fields"] == {}
        assert found["changed"] == []
