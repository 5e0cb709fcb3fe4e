"""Numbers of `view`: groups that together are all requests, counts that a condition keeps, rows of a heat map."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_logging.read.view.app import STATIC
from inference_logging.read.where import ALIASES
from tests.segment_files import log, request, write_segment
from tests.view_server import Client, serving

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
    assert heat["zero"] == FAILED
    assert sum(map(sum, heat["cells"])) == ASKED + ANSWERED
    assert {len(column) for column in heat["cells"]} == {len(heat["edges"]) - 1}


def test_a_heat_map_has_as_many_rows_as_asked_for_at_most(tmp_path: Path) -> None:
    write_segment(tmp_path, [a_request(number, duration_s=1.01**number) for number in range(1000)])
    with serving([tmp_path]) as client:
        heat = aggregate(client, heatmap="duration_s", heatmap_rows=40)["heatmap"]
        assert (len(heat["edges"]), heat["zero"]) == (41, 0)
        assert sum(map(sum, heat["cells"])) == 1000


def test_a_heat_map_of_nothing_but_0_is_empty(tmp_path: Path) -> None:
    write_segment(tmp_path, [a_request(1, duration_s=0.0)])
    with serving([tmp_path]) as client:
        heat = aggregate(client, heatmap="duration_s")["heatmap"]
        assert (heat["zero"], sum(map(sum, heat["cells"]))) == (1, 0)
        assert len(heat["edges"]) == len(heat["cells"][0]) + 1


def test_a_client_that_left_is_no_failure(tmp_path: Path) -> None:
    outcomes = ("ok", "client_disconnect", "timeout", "aborted")
    write_segment(tmp_path, [a_request(number, outcome=outcome) for number, outcome in enumerate(outcomes)])
    with serving([tmp_path]) as client:
        assert sum(aggregate(client)["errors"]) == 2
