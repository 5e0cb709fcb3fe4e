"""What a Triton model reads and sends, as the records of its requests; without a Triton."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from inference_logging import get_logger
from inference_logging.triton import RequestLog
from tests.kit import fake_triton
from tests.kit.command_line import control
from tests.kit.fake_triton import FINAL, Code, InferenceResponse, Tensor, TritonError, arguments, ok, request, stream
from tests.kit.signatures import Configure, Recording, Serve
from tests.kit.support import Recorded, read_records

pytestmark = pytest.mark.usefixtures("fake_backend")


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


ABOUT_ALL = ("request_id", "correlation_id", "trace", "parameters", "has_error")
OF_TENSORS = {"inputs", "output_tensors", "name", "shape", "as_numpy"}
INPUTS = [{"name": "X", "datatype": "FP32", "shape": [1], "bytes": 4}]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, fake_backend: None) -> Counter[str]:
    """Count the calls of Triton's methods; before `serve`, which looks them up."""
    counts: Counter[str] = Counter()
    for kind in (sys.modules["triton_python_backend_utils"].InferenceRequest, InferenceResponse, Tensor):
        for name in {*ABOUT_ALL, *OF_TENSORS} & vars(kind).keys():
            monkeypatch.setattr(kind, name, _counted(name, getattr(kind, name), counts))
    return counts


def _counted(name: str, method: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    def counted(*given: Any) -> Any:
        counts[name] += 1
        return method(*given)

    return counted


def x() -> Tensor:
    return Tensor("X", [1.0])


def test_a_request_that_the_sampler_leaves_out_has_no_tensor_read(calls: Counter[str], serve: Serve) -> None:
    model, recorded = serve(lambda self, requests: [ok() for _ in requests], sample_ratio=0)
    model.execute([request(x()) for _ in range(3)])
    assert calls == dict.fromkeys(ABOUT_ALL, 3)
    assert recorded.records("request") == []


def test_each_field_of_a_request_is_read_once(calls: Counter[str], serve: Serve) -> None:
    model, recorded = serve(lambda self, requests: [ok() for _ in requests])
    model.execute([request(x()) for _ in range(3)])
    assert calls == {**dict.fromkeys((*ABOUT_ALL, "inputs", "output_tensors"), 3), "name": 6, "shape": 6}
    assert len(recorded.records("request")) == 3


def incomplete(self: Any, requests: list[Any]) -> list[Any]:
    return []


def broken(self: Any, requests: list[Any]) -> list[Any]:
    raise ValueError


def erroneous(self: Any, requests: list[Any]) -> list[Any]:
    return [InferenceResponse(error=TritonError("no"))]


def cancelled(self: Any, requests: list[Any]) -> list[Any]:
    return [InferenceResponse(error=TritonError("no", Code.CANCELLED))]


def one_by_one(self: Any, requests: list[Any]) -> Iterator[Any]:
    yield InferenceResponse(error=TritonError("no"))


@pytest.mark.parametrize("execute", [incomplete, broken, erroneous, cancelled, one_by_one])
def test_a_request_that_fails_though_it_is_left_out_is_recorded_with_its_inputs(
    serve: Serve, execute: Callable[..., Any]
) -> None:
    model, recorded = serve(execute, sample_ratio=0)
    try:
        model.execute([request(x())])
    except ValueError:
        assert execute is broken
    assert recorded.request()["triton.inputs"] == INPUTS


@pytest.mark.parametrize(("by", "slow_s"), [("slow", 1e-9), ("forced", 0)])
def test_a_request_that_is_slow_or_captured_though_it_is_left_out_is_recorded_with_its_tensors(
    serve: Serve, by: str, slow_s: float
) -> None:
    model, recorded = serve(lambda self, requests: [ok()], sample_ratio=0, slow_s=slow_s)
    if by == "forced":
        control(recorded.config, "capture", "--route", "/v2/models/{model}/versions/*")
    model.execute([request(x())])
    record = recorded.request()
    assert (record["sampled_by"], record["triton.inputs"]) == (by, INPUTS)
    assert len(record["triton.outputs"]) == 1


def test_a_request_that_its_client_cancels_is_recorded_with_its_tensors(serve: Serve) -> None:
    def execute(self: Any, requests: list[Any]) -> list[Any]:
        assert requests[0].is_cancelled()
        return [ok()]

    model, recorded = serve(execute, sample_ratio=0)
    one = request(x())
    one.sender.cancelled = True
    model.execute([one])
    record = recorded.request()
    assert (record["outcome"], record["triton.inputs"]) == ("client_disconnect", INPUTS)
    assert len(record["triton.outputs"]) == 1


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_stream_that_fails_after_execute_though_it_is_left_out_is_recorded_with_its_tensors(
    serve: Serve, is_coroutine: bool
) -> None:
    senders: list[Any] = []

    def execute(self: Any, requests: list[Any]) -> Any:
        senders.append(requests[0].get_response_sender())
        return asyncio.sleep(0) if is_coroutine else None

    model, recorded = serve(execute, decoupled=True, sample_ratio=0)
    one = request(x())
    awaited = model.execute([one])
    if awaited is not None:
        asyncio.run(awaited)
    seen = weakref.ref(one)
    del one
    gc.collect()
    assert seen() is None  # Triton gets its memory back
    senders[0].send(ok())
    senders[0].send(InferenceResponse(error=TritonError("no")), FINAL)
    record = recorded.request()
    assert (record["error.type"], record["triton.inputs"]) == ("INVALID_ARG", INPUTS)
    assert len(record["triton.outputs"]) == 1


def test_inputs_that_cannot_be_read_at_the_end_are_reported_and_the_record_is_there(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Tensor, "shape", lambda _self: 1 / 0)
    model, recorded = serve(broken, sample_ratio=0)
    with pytest.raises(ValueError):  # noqa: PT011 - that of the model, which says nothing
        model.execute([request(x())])
    assert recorded.request()["error.type"] == "ValueError"
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_explicit_calls_record_the_inputs_of_a_request_that_fails_though_it_is_left_out(recording: Recording) -> None:
    recorded = recording(sample_ratio=0)
    log = RequestLog(arguments(), recorded.config)
    begun = log.begin([request(x())])
    log.fail(begun, ValueError())
    assert recorded.request()["triton.inputs"] == INPUTS
    assert log.close()


@pytest.mark.parametrize(("added", "names"), [({}, 0), ({"sequence_batching": {"x": 1}}, 1)])
def test_the_name_of_the_only_input_of_a_model_is_not_asked_for(
    calls: Counter[str], recorded: Recorded, added: dict[str, Any], names: int
) -> None:
    described = {"name": "m", "input": [{"name": "X", "data_type": "TYPE_FP32"}], **added}
    log = RequestLog({**arguments(), "model_config": json.dumps(described)}, recorded.config)
    log.end(log.begin([request(x(), correlation=1)]), [InferenceResponse()])
    assert (calls["name"], calls["shape"]) == (names, 1)
    assert recorded.request()["triton.inputs"] == INPUTS
    assert log.close()


def test_tensors_of_many_shapes_are_each_described_by_their_own(serve: Serve) -> None:
    model, recorded = serve(lambda self, requests: [ok() for _ in requests])
    shapes = [(size,) * rank for size in range(1, 9) for rank in range(1, 5)] * 2 + [(1,) * 12]
    tensors = [Tensor(name, np.zeros(shape, np.float32)) for shape in shapes for name in ("X", "Z" * 300, "é\n")]
    model.execute([request(tensor) for tensor in tensors])
    for tensor, record in zip(tensors, recorded.records("request"), strict=True):
        (described,) = record["triton.inputs"]
        assert (described["name"], described["shape"]) == (tensor.name(), tensor.shape())
        assert described.get("bytes") == (4 * tensor.as_numpy().size if tensor.name() == "X" else None)


def test_texts_of_one_shape_are_measured_each_time(serve: Serve) -> None:
    model, recorded = serve(lambda self, requests: [ok() for _ in requests])
    model.execute([request(Tensor("S", np.array([text], dtype=object))) for text in (b"a", b"abc")])
    assert [record["triton.inputs"][0]["bytes"] for record in recorded.records("request")] == [5, 7]


def test_a_method_that_keeps_its_arguments_finds_them_unchanged(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[tuple[Any, ...]] = []

    def name(*given: Any) -> str:
        kept.append(given)
        return str(given[0]._name)

    monkeypatch.setattr(fake_triton.Tensor, "name", name)
    model, recorded = serve(lambda self, requests: [ok() for _ in requests])
    model.execute([request(x(), Tensor("S", np.array([b"a"], dtype=object))) for _ in range(2)])
    assert [given[0]._name for given in kept] == ["X", "S", "X", "S", "Y", "Y"]
    assert len(recorded.records("request")) == 2


def test_a_request_without_parameters_may_say_so_with_nothing(serve: Serve) -> None:
    model, recorded = serve(lambda self, requests: [ok()])
    one = request()
    one._parameters = ""
    model.execute([one])
    assert recorded.request()["outcome"] == "ok"


def test_a_config_that_is_off_reads_nothing(calls: Counter[str], configure: Configure) -> None:
    log = RequestLog(arguments(), configure(enabled="off"))
    log.end(log.begin([request(x())]), [ok()])
    assert not calls
    log.close()
