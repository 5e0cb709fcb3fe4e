"""Choices of requests: two beside each other, with intervals that hold the truth, and groups by a field."""

from __future__ import annotations

import json
import random
import re
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_logging.read.stats.histograms import Spans, ratio_of_quantiles
from inference_logging.read.view.app import STATIC
from inference_logging.read.where import ALIASES
from tests.kit.segment_files import log, request, write_segment
from tests.kit.view_server import Client, serving


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


ASKED, ANSWERED, FAILED = 20, 2813, 7


def a_request(number: int, outcome: str = "ok", **fields: Any) -> dict[str, Any]:
    return {**request(number * 0.1, outcome, **fields), "request_id": f"{number + 1:016x}"}


def requests() -> list[dict[str, Any]]:
    asked = [a_request(number, gen_ai__request__model="tiny-1", duration_s=1.0) for number in range(ASKED)]
    answered = [
        a_request(ASKED + number, gen_ai__response__model="tiny-1", duration_s=2.0, http__response__status_code=201)
        for number in range(ANSWERED)
    ]
    failed = [a_request(3000 + number, "error", duration_s=0) for number in range(FAILED)]
    for one in failed:
        del one["http.response.status_code"]
    return [*asked, *answered, *failed]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory = tmp_path_factory.mktemp("logs")
    write_segment(directory, [*requests(), {**log(1), "http.response.status_code": 201}])
    with serving([directory]) as made:
        yield made


def aggregate(client: Client, **query: Any) -> dict[str, Any]:
    answer = client.get("api/aggregate", q={"events": ["request"], "buckets": 3, "fields": ["duration_s"], **query})
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()
    return found


def counts(groups: list[dict[str, Any]]) -> dict[Any, int]:
    return {group["value"]: sum(group["count"]) for group in groups}


def test_the_model_of_a_request_that_named_none_is_the_one_that_answered(client: Client) -> None:
    groups = aggregate(client, group_by="model")["groups"]
    assert counts(groups) == {"tiny-1": ASKED + ANSWERED, None: FAILED}
    duration = groups[0]["fields"]["duration_s"]
    assert duration["count"] == ASKED + ANSWERED
    assert duration["mean"] == pytest.approx((ASKED + 2 * ANSWERED) / (ASKED + ANSWERED))
    assert duration["p50"] == pytest.approx(2.0, rel=0.09)
    assert duration["max"] == 2.0


@pytest.mark.parametrize("asked", [20, 1000])
def test_percentiles_of_a_model_that_only_some_have_named_are_those_of_all(tmp_path: Path, asked: int) -> None:
    source = random.Random(1)
    durations = [source.lognormvariate(0, 1) for _ in range(2000)]
    named = [a_request(number, gen_ai__request__model="m", duration_s=durations[number]) for number in range(asked)]
    answered = [
        a_request(number, gen_ai__response__model="m", duration_s=durations[number]) for number in range(asked, 2000)
    ]
    write_segment(tmp_path, [*named, *answered])
    with serving([tmp_path]) as client:
        found = aggregate(client, group_by="model")["groups"][0]["fields"]["duration_s"]
        of_all = aggregate(client)["fields"]["duration_s"]
    for name in ("p50", "p90", "p95", "p99", "mean"):
        assert found[name] == pytest.approx(of_all[name]), name


def test_requests_without_a_value_are_a_group(client: Client) -> None:
    groups = aggregate(client, group_by="http.response.status_code")["groups"]
    assert counts(groups) == {201: ANSWERED, 200: ASKED, None: FAILED}
    assert groups[-1]["rest"] == "none"
    assert sum(groups[-1]["errors"]) == FAILED
    assert groups[-1]["fields"]["duration_s"]["count"] == FAILED


def test_more_values_than_groups_leave_a_rest_that_says_so(client: Client) -> None:
    groups = aggregate(client, group_by="http.response.status_code", groups_limit=1)["groups"]
    assert counts(groups) == {201: ANSWERED, None: ASKED + FAILED}
    assert groups[-1]["rest"] == "more"


def test_a_value_that_no_condition_can_name_is_in_its_group_alone(tmp_path: Path) -> None:
    write_segment(tmp_path, [a_request(1, tenant__id=" a "), a_request(2)])
    with serving([tmp_path]) as client:
        assert counts(aggregate(client, group_by="tenant.id")["groups"]) == {" a ": 1, None: 1}


def test_values_come_with_the_condition_that_finds_them(client: Client) -> None:
    (model,) = client.get("api/values", q={"field": "model", "events": ["request"], "limit": 2}).json()
    assert model == {"value": "tiny-1", "count": ASKED + ANSWERED, "condition": "model=tiny-1"}
    assert sum(aggregate(client, where=["model=tiny-1"])["count"]) == ASKED + ANSWERED


def test_the_list_and_the_groups_have_the_same_fields_of_a_model() -> None:
    (listed,) = re.findall(r'id: "model".*?fields: (\[[^]]*\])', (STATIC / "columns.js").read_text())
    assert json.loads(listed) == list(ALIASES["model"])


@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">=", "~"])
def test_a_suggestion_counts_what_its_condition_finds(client: Client, operator: str) -> None:
    field = "http.response.status_code"
    query = {"field": field, "operator": operator, "events": ["request"]}
    offered = {one["value"]: one["count"] for one in client.get("api/values", q=query).json()}
    for value in (200, 201):
        found = sum(aggregate(client, where=[f"{field}{operator}{value}"])["count"])
        assert offered[value] == found, (operator, value)


def test_an_operator_that_is_none_is_refused(client: Client) -> None:
    answer = client.get("api/values", q={"field": "outcome", "operator": "≈"})
    assert (answer.status, answer.json()["error"]) == (400, "q.operator='≈': must be one of = != < <= > >= ~")


def test_shares_of_a_comparison_are_of_all_requests(client: Client) -> None:
    both = {"a": {"where": ["duration_s>0"]}, "b": {"where": ["duration_s<=1"]}}
    changed = client.get("api/compare", **both).json()["changed"]
    models = {one["value"]: (one["share_a"], one["share_b"]) for one in changed if one["field"] == "model"}
    assert models == {
        "tiny-1": (1.0, pytest.approx(ASKED / (ASKED + FAILED))),
        None: (0.0, pytest.approx(FAILED / (ASKED + FAILED))),
    }


def test_a_request_of_0_seconds_does_not_stretch_a_heat_map(client: Client) -> None:
    heat = aggregate(client, heatmap="duration_s", heatmap_rows=40)["heatmap"]
    assert heat["edges"][0] > 0.1
    assert heat["edges"][-1] == pytest.approx(2.0, rel=0.1)
    assert sum(heat["zeros"]) == FAILED
    assert sum(map(sum, heat["cells"])) == ASKED + ANSWERED
    assert {len(column) for column in heat["cells"]} == {len(heat["edges"]) - 1}


def test_a_heat_map_has_as_many_rows_as_asked_for_at_most(tmp_path: Path) -> None:
    write_segment(tmp_path, [a_request(number, duration_s=1.01**number) for number in range(1000)])
    with serving([tmp_path]) as client:
        heat = aggregate(client, heatmap="duration_s", heatmap_rows=40)["heatmap"]
        assert (len(heat["edges"]), sum(heat["zeros"])) == (41, 0)
        assert sum(map(sum, heat["cells"])) == 1000


def test_a_heat_map_of_nothing_but_0_is_empty(tmp_path: Path) -> None:
    write_segment(tmp_path, [a_request(1, duration_s=0.0)])
    with serving([tmp_path]) as client:
        heat = aggregate(client, heatmap="duration_s")["heatmap"]
        assert (sum(heat["zeros"]), sum(map(sum, heat["cells"]))) == (1, 0)
        assert len(heat["edges"]) == len(heat["cells"][0]) + 1


def test_a_client_that_left_is_no_failure(tmp_path: Path) -> None:
    outcomes = ("ok", "client_disconnect", "timeout", "aborted")
    write_segment(tmp_path, [a_request(number, outcome=outcome) for number, outcome in enumerate(outcomes)])
    with serving([tmp_path]) as client:
        assert sum(aggregate(client)["errors"]) == 2
