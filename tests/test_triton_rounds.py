"""A request that a Triton model reschedules comes to `execute` once per round, and has one record; without a Triton."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from inference_logging.record.integrations.triton.requests import DEFAULT_CANDIDATES, _sequences
from inference_logging.triton import usage
from tests.fake_triton import FINAL, RESCHEDULE, SEQUENCE_START, arguments, ok, request
from tests.support import Recorded

pytestmark = pytest.mark.usefixtures("fake_backend")
Serve = Callable[..., tuple[Any, Recorded]]
ITERATIVE = {"max_batch_size": 4, "sequence_batching": {"iterative_sequence": True, "direct": {}}}


def turn(self: Any, requests: list[Any]) -> list[Any]:
    """Answer the requests that are in their last round, and reschedule the others."""
    responses = []
    for one in requests:
        is_last = json.loads(one.parameters()).get("last", False)
        if not is_last:
            one.set_release_flags(RESCHEDULE)
        responses.append(ok() if is_last else None)
    return responses


def send(self: Any, requests: list[Any]) -> None:
    """Send a response in each round, with the end in the last one."""
    for one in requests:
        is_last = json.loads(one.parameters()).get("last", False)
        if not is_last:
            one.set_release_flags(RESCHEDULE)
        one.get_response_sender().send(ok(), FINAL if is_last else 0)


def first(correlation: int, **given: Any) -> Any:
    """Return the object of a sequence's first round."""
    return request(name=f"r-{correlation}", correlation=correlation, flags=SEQUENCE_START, **given)


def later(correlation: int, **given: Any) -> Any:
    """Return the object of a later round."""
    return request(name=f"r-{correlation}", correlation=correlation, **given)


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_request_of_five_rounds_has_one_record(serve: Serve, decoupled: bool) -> None:
    model, recorded = serve(send if decoupled else turn, decoupled=decoupled, configuration=ITERATIVE)
    model.execute([first(1)])
    for _ in range(3):
        model.execute([later(1)])
    assert recorded.records("request") == []
    model.execute([later(1, last=True)])
    (record,) = recorded.records("request")
    assert (record["outcome"], record["client_request_id"], record["triton.correlation_id"]) == ("ok", "r-1", 1)
    assert record.get("chunks") == (5 if decoupled else None)
    assert record["triton.outputs"] == [{"name": "Y", "datatype": "INT64", "shape": [1, 2], "bytes": 16}]


def test_requests_that_come_back_in_another_order_keep_their_records(serve: Serve) -> None:
    def execute(self: Any, requests: list[Any]) -> Any:
        for one in requests:
            usage(one, input_tokens=one.correlation_id())
        return turn(self, requests)

    model, recorded = serve(execute, configuration=ITERATIVE)
    model.execute([first(1), first(2)])
    model.execute([first(3), later(2), later(1, last=True)])
    model.execute([later(2, last=True), later(3, last=True)])
    found = [(one["client_request_id"], one["gen_ai.usage.input_tokens"]) for one in recorded.records("request")]
    assert found == [("r-1", 1), ("r-2", 2), ("r-3", 3)]


def test_an_exception_in_a_later_round_is_the_requests_end(serve: Serve) -> None:
    def execute(self: Any, requests: list[Any]) -> Any:
        return turn(self, requests) if requests[0].flags() else 1 / 0

    model, recorded = serve(execute, configuration=ITERATIVE)
    model.execute([first(1)])
    with pytest.raises(ZeroDivisionError):
        model.execute([later(1)])
    assert [(one["outcome"], one["error.type"]) for one in recorded.records("request")] == [
        ("error", "ZeroDivisionError")
    ]


def test_a_request_that_is_released_after_all_is_not_waited_for(serve: Serve) -> None:
    def execute(self: Any, requests: list[Any]) -> Any:
        requests[0].set_release_flags(RESCHEDULE)
        requests[0].set_release_flags(1)
        return [ok()]

    model, recorded = serve(execute, configuration=ITERATIVE)
    model.execute([first(1)])
    assert recorded.request()["outcome"] == "ok"


def test_a_request_that_triton_does_not_give_back_was_cancelled(serve: Serve) -> None:
    model, recorded = serve(turn, configuration=ITERATIVE)
    model.execute([first(1)])
    for number in range(2, 5):
        model.execute([first(number)])
    assert recorded.records("request") == [], "four sequences have room, so any of them may come back"
    model.execute([first(5)])
    assert [(one["client_request_id"], one["outcome"]) for one in recorded.records("request")] == [
        ("r-1", "client_disconnect")
    ]


def test_a_sequence_that_begins_anew_ends_the_one_before(serve: Serve) -> None:
    model, recorded = serve(turn, configuration=ITERATIVE)
    model.execute([first(1)])
    model.execute([first(1, last=True)])
    assert [one["outcome"] for one in recorded.records("request")] == ["client_disconnect", "ok"]


def test_a_model_that_is_unloaded_has_no_more_rounds(serve: Serve) -> None:
    model, recorded = serve(turn, configuration=ITERATIVE)
    model.execute([first(1)])
    model._inference_logging._native.close()
    assert recorded.request()["outcome"] == "client_disconnect"


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_request_that_only_pads_a_batch_has_no_record(serve: Serve, decoupled: bool) -> None:
    model, recorded = serve(send if decoupled else turn, decoupled=decoupled, configuration=ITERATIVE)
    model.execute([request(correlation=0), first(1, last=True), request(correlation="", last=True)])
    assert [one["client_request_id"] for one in recorded.records("request")] == ["r-1"]


@pytest.mark.parametrize(
    ("configuration", "sequences"),
    [
        ({}, None),
        ({"sequence_batching": {"iterative_sequence": True}}, 1),
        ({"sequence_batching": {"direct": {}}, "max_batch_size": 8}, 8),
        ({"sequence_batching": {"oldest": {"max_candidate_sequences": 3}}}, 3),
        ({"sequence_batching": {"oldest": {}}}, DEFAULT_CANDIDATES),
    ],
)
def test_the_configuration_says_how_many_sequences_an_instance_serves(
    configuration: dict[str, Any], sequences: int | None
) -> None:
    assert _sequences(json.loads(arguments(**configuration)["model_config"])) == sequences
