"""What a Triton model sends by response senders, as the records of its requests; without a Triton."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from inference_logging import get_logger
from tests.fake_triton import FINAL, InferenceResponse, TritonError, ok, request
from tests.support import Recorded, read_records

pytestmark = pytest.mark.usefixtures("fake_backend")
Serve = Callable[..., tuple[Any, Recorded]]


def stream(self: Any, requests: list[Any]) -> None:
    for one in requests:
        sender = one.get_response_sender()
        for _ in range(3):
            sender.send(ok())
        sender.send(flags=FINAL)


def test_each_response_of_a_sender_is_a_chunk(serve: Serve) -> None:
    model, recorded = serve(stream, decoupled=True)
    one = request()
    assert model.execute([one]) is None
    assert [response is None for response in one.sender.sent] == [False, False, False, True]
    record = recorded.request()
    assert (record["outcome"], record["chunks"]) == ("ok", 3)
    assert record["triton.outputs"] == [{"name": "Y", "datatype": "INT64", "shape": [1, 2], "bytes": 16}]


def test_a_last_response_may_carry_the_end(serve: Serve) -> None:
    model, recorded = serve(lambda self, requests: requests[0].get_response_sender().send(ok(), FINAL), decoupled=True)
    model.execute([request()])
    assert recorded.request()["chunks"] == 1


def test_a_model_may_answer_some_of_a_batch_later(serve: Serve) -> None:
    later: list[Any] = []

    def execute(self: Any, requests: list[Any]) -> Any:
        later.append(requests[1].get_response_sender())
        return [ok(), None]

    model, recorded = serve(execute)
    model.execute([request(name="now"), request(name="later")])
    assert [record["client_request_id"] for record in recorded.records("request")] == ["now"]
    later[0].send(ok(), flags=FINAL)
    assert [record["client_request_id"] for record in recorded.records("request")] == ["now", "later"]


@pytest.mark.parametrize("asks", ["request", "sender"])
def test_a_cancelled_stream_is_the_clients_end(serve: Serve, asks: str) -> None:
    def execute(self: Any, requests: list[Any]) -> None:
        sender = requests[0].get_response_sender()
        sender.send(ok())
        assert (requests[0] if asks == "request" else sender).is_cancelled()
        sender.send(flags=FINAL)

    model, recorded = serve(execute, decoupled=True)
    one = request()
    one.sender.cancelled = True
    model.execute([one])
    assert (recorded.request()["outcome"], recorded.request()["chunks"]) == ("client_disconnect", 1)


def test_a_sender_that_fails_raises_as_triton_does_and_the_record_says_so(serve: Serve) -> None:
    def execute(self: Any, requests: list[Any]) -> None:
        sender = requests[0].get_response_sender()
        requests[0].sender.closed = True
        with pytest.raises(RuntimeError, match="has been closed"):
            sender.send(ok())

    model, recorded = serve(execute, decoupled=True)
    model.execute([request()])
    assert (recorded.request()["outcome"], recorded.request()["error.type"]) == ("error", "RuntimeError")


def test_a_stream_that_ends_with_an_error_has_its_code(serve: Serve) -> None:
    def execute(self: Any, requests: list[Any]) -> None:
        sender = requests[0].get_response_sender()
        sender.send(ok())
        sender.send(InferenceResponse(error=TritonError("no")), flags=FINAL)

    model, recorded = serve(execute, decoupled=True)
    model.execute([request()])
    record = recorded.request()
    assert (record["outcome"], record["error.type"], record["chunks"]) == ("error", "INVALID_ARG", 1)


@pytest.mark.parametrize("takes_sender", [True, False])
def test_a_request_that_is_thrown_away_without_an_end_is_an_error_at_once(serve: Serve, takes_sender: bool) -> None:
    def execute(self: Any, requests: list[Any]) -> None:
        if takes_sender:
            requests[0].get_response_sender().send(ok())

    model, recorded = serve(execute, decoupled=True)
    model.execute([request(name="abandoned")])
    record = recorded.request()
    assert (record["client_request_id"], record["outcome"]) == ("abandoned", "error")
    assert (record["error.type"], record["triton.model_name"]) == ("response_incomplete", "m")
    assert record.get("chunks") == (1 if takes_sender else None)


@pytest.mark.parametrize("keeps", ["request", "sender"])
def test_a_request_that_the_model_keeps_is_open_until_the_model_is_unloaded(serve: Serve, keeps: str) -> None:
    kept: list[Any] = []

    def execute(self: Any, requests: list[Any]) -> None:
        kept.append(requests[0] if keeps == "request" else requests[0].get_response_sender())

    model, recorded = serve(execute, decoupled=True)
    model.execute([request(name="kept")])
    assert recorded.records("request") == []
    model.finalize()
    recorded.close()
    (record,) = read_records(recorded.config.directory, "request")
    assert (record["outcome"], record["error.type"]) == ("error", "response_incomplete")


def test_a_coroutine_is_awaited_and_its_records_are_its_requests(serve: Serve) -> None:
    async def execute(self: Any, requests: list[Any]) -> None:
        for one in requests:
            sender = one.get_response_sender()
            for _ in range(2):
                await asyncio.sleep(0)
                get_logger("m").info("word")
                sender.send(ok())
            sender.send(flags=FINAL)

    model, recorded = serve(execute, decoupled=True)

    async def both() -> None:
        await asyncio.gather(model.execute([request(name="a")]), model.execute([request(name="b")]))

    asyncio.run(both())
    by_id = {record["request_id"]: record for record in recorded.records("request")}
    assert {record["chunks"] for record in by_id.values()} == {2}
    logs = [record["request_id"] for record in recorded.records("log")]
    assert sorted(logs) == sorted([*by_id, *by_id])


def test_a_coroutine_that_fails_is_on_record(serve: Serve) -> None:
    async def execute(self: Any, requests: list[Any]) -> None:
        raise ZeroDivisionError

    model, recorded = serve(execute, decoupled=True)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(model.execute([request()]))
    assert recorded.request()["error.type"] == "ZeroDivisionError"
