"""What is read of a Triton model's requests, and when: each call of Triton's classes takes time; without a Triton."""

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

from inference_logging import Config
from inference_logging.triton import RequestLog
from tests import fake_triton
from tests.fake_triton import FINAL, Code, InferenceResponse, Tensor, TritonError, arguments, ok, request
from tests.support import Recorded
from tests.test_control import control

pytestmark = pytest.mark.usefixtures("fake_backend")
Serve = Callable[..., tuple[Any, Recorded]]

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


def test_explicit_calls_record_the_inputs_of_a_request_that_fails_though_it_is_left_out(
    recording: Callable[..., Recorded],
) -> None:
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


def test_a_config_that_is_off_reads_nothing(calls: Counter[str], configure: Callable[..., Config]) -> None:
    log = RequestLog(arguments(), configure(enabled="off"))
    log.end(log.begin([request(x())]), [ok()])
    assert not calls
    log.close()
