"""The records of a Triton model's requests, whatever the model does; without a Triton."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference_logging import Logger, get_logger
from inference_logging.record.integrations.triton.requests import server_traces
from inference_logging.triton import RequestLog, log_requests, outgoing, usage
from tests.kit.child import in_child
from tests.kit.fake_triton import Code, InferenceResponse, Tensor, TritonError, arguments, ok, request
from tests.kit.signatures import Configure, Serve
from tests.kit.support import PARENT_ID, TRACE_ID, TRACEPARENT, Recorded, read_records, wait_until

pytestmark = pytest.mark.usefixtures("fake_backend")


def test_a_request_has_a_record_of_what_the_model_saw(serve: Serve) -> None:
    model, recorded = serve(lambda self, requests: [ok() for _ in requests], triton_parameters="user,missing")
    x, s = Tensor("X", np.zeros((2, 3), np.float32)), Tensor("S", np.array([[b"ab", "é"]], dtype=object))
    answers = model.execute([request(x, s, name="r-1", correlation=7, user="u", other="o"), request(name="r-2")])
    assert [answer.output_tensors()[0].name() for answer in answers] == ["Y", "Y"]
    first, second = recorded.records("request")
    assert first["client_request_id"] == "r-1"
    assert (first["outcome"], first["triton.model_name"], first["triton.model_version"]) == ("ok", "m", "3")
    assert (first["triton.batch_size"], first["triton.batch_position"], first["triton.correlation_id"]) == (2, 0, 7)
    assert first["triton.parameters"] == {"user": "u"}
    assert first["triton.inputs"] == [
        {"name": "X", "datatype": "FP32", "shape": [2, 3], "bytes": 24},
        {"name": "S", "datatype": "BYTES", "shape": [1, 2], "bytes": 2 * 4 + 2 + 2},
    ]
    assert first["triton.outputs"] == [{"name": "Y", "datatype": "INT64", "shape": [1, 2], "bytes": 16}]
    assert (second["triton.batch_position"], second["triton.inputs"]) == (1, [])
    assert "triton.correlation_id" not in second
    assert "triton.parameters" not in second


@pytest.mark.parametrize(("correlation", "expected"), [("", None), ("seq", "seq"), (0, None), (2**63, 2**63)])
def test_a_correlation_id_is_a_number_or_a_text(serve: Serve, correlation: Any, expected: Any) -> None:
    model, recorded = serve(lambda self, requests: [ok()])
    model.execute([request(correlation=correlation)])
    assert recorded.request().get("triton.correlation_id") == expected


def test_a_tensor_that_the_configuration_does_not_know_has_name_and_shape(serve: Serve) -> None:
    model, recorded = serve(lambda self, requests: [ok()])
    model.execute([request(Tensor("Z", [1.0]))])
    assert recorded.request()["triton.inputs"] == [{"name": "Z", "shape": [1]}]


def test_tensors_are_left_out_where_they_are_not_wanted(serve: Serve) -> None:
    model, recorded = serve(lambda self, requests: [ok()], triton_tensors="off")
    model.execute([request(Tensor("X", [1.0]))])
    assert recorded.request()["outcome"] == "ok"
    assert not {"triton.inputs", "triton.outputs"} & recorded.request().keys()


def test_very_many_tensors_and_parameters_are_cut_and_the_record_is_there(serve: Serve) -> None:
    model, recorded = serve(lambda self, requests: [ok()], triton_parameters="a,b")
    tensors = [Tensor(f"tensor-{number}", np.zeros((1, 2, 3))) for number in range(500)]
    model.execute([request(*tensors, name="r", a="1", b="2" * 5000)])
    record = recorded.request()
    assert 5 < len(record["triton.inputs"]) < 100
    assert record["triton.inputs"][3] == {"name": "tensor-3", "shape": [1, 2, 3]}
    assert record["triton.parameters"] == {"a": "1"}


@pytest.mark.parametrize("way", ["trace", "parameters"])
def test_the_trace_goes_on(serve: Serve, way: str) -> None:
    model, recorded = serve(lambda self, requests: [ok()])
    header = TRACEPARENT.decode()
    given = {"context": f'{{"traceparent": "{header}"}}'} if way == "trace" else {"traceparent": header}
    model.execute([request(**given)])
    record = recorded.request()
    assert (record["trace_id"], record["parent_span_id"]) == (TRACE_ID, PARENT_ID)


@pytest.mark.parametrize("context", ["", "{}", '{"traceparent"', '{"traceparent":7}', '{"traceparent":"00-zz"}'])
def test_a_trace_that_cannot_be_read_is_none(serve: Serve, context: str) -> None:
    model, recorded = serve(lambda self, requests: [ok()])
    model.execute([request(context=context)])
    record = recorded.request()
    assert record["outcome"] == "ok"
    assert "parent_span_id" not in record


def test_an_exception_is_raised_unchanged_and_the_whole_batch_has_it(serve: Serve) -> None:
    error = KeyError("x")

    def execute(self: Any, requests: list[Any]) -> Any:
        raise error

    model, recorded = serve(execute)
    with pytest.raises(KeyError) as raised:
        model.execute([request(), request()])
    assert raised.value is error
    records = recorded.records("request")
    assert [(one["outcome"], one["error.type"]) for one in records] == [("error", "KeyError")] * 2
    for one in records:
        assert (one["exception.type"], one["exception.message"]) == ("KeyError", "'x'")
        assert one["exception.stacktrace"].endswith("in execute\n    raise error\nKeyError: 'x'")
    (log,) = recorded.records("log")
    assert (log["severity_text"], log["attributes"]["exception.type"]) == ("ERROR", "KeyError")


@pytest.mark.parametrize(("code", "outcome"), [(Code.INVALID_ARG, "error"), (Code.CANCELLED, "client_disconnect")])
def test_a_response_with_an_error_is_returned_unchanged_and_recorded(serve: Serve, code: Code, outcome: str) -> None:
    response = InferenceResponse(error=TritonError("no", code))
    model, recorded = serve(lambda self, requests: [response])
    assert model.execute([request()]) == [response]
    assert (recorded.request()["outcome"], recorded.request()["error.type"]) == (outcome, code.name)


@pytest.mark.parametrize("responses", [None, []], ids=["nothing", "too few"])
def test_a_model_that_does_not_answer_is_on_record(serve: Serve, responses: Any) -> None:
    model, recorded = serve(lambda self, requests: responses)
    assert model.execute([request()]) == responses
    assert (recorded.request()["outcome"], recorded.request()["error.type"]) == ("error", "response_incomplete")


def test_responses_that_come_one_by_one_reach_triton(serve: Serve) -> None:
    model, recorded = serve(lambda self, requests: (ok() for _ in requests))
    assert len(list(model.execute([request(), request()]))) == 2
    assert [record["outcome"] for record in recorded.records("request")] == ["ok", "ok"]


def test_a_generator_that_raises_is_on_record(serve: Serve) -> None:
    def execute(self: Any, requests: list[Any]) -> Any:
        yield ok()
        raise KeyError("later")

    model, recorded = serve(execute)
    with pytest.raises(KeyError):
        model.execute([request(), request()])
    assert [record["error.type"] for record in recorded.records("request")] == ["KeyError"] * 2


def test_what_is_no_response_of_triton_is_returned_and_reported_once(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    model, recorded = serve(lambda self, requests: ["no response"])
    assert model.execute([request()]) == ["no response"]
    assert model.execute([request()]) == ["no response"]
    assert len(recorded.records("request")) == 2
    assert capsys.readouterr().err.count("there are requests without a record") == 1


def test_requests_that_cannot_be_read_are_served(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    model, recorded = serve(lambda self, requests: [ok() for _ in requests])
    assert len(model.execute([object()])) == 1
    assert "there are requests without a record" in capsys.readouterr().err
    model.execute([request()])
    assert recorded.request()["outcome"] == "ok"


def test_tokens_that_the_model_reports_are_on_the_record(serve: Serve) -> None:
    def execute(self: Any, requests: list[Any]) -> Any:
        usage(requests[0], input_tokens=3)
        usage(requests[0], output_tokens=5)
        return [ok() for _ in requests]

    model, recorded = serve(execute)
    one, two = request(), request()
    model.execute([one, two])
    usage(one, input_tokens=9)  # too late
    first, second = recorded.records("request")
    assert (first["gen_ai.usage.input_tokens"], first["gen_ai.usage.output_tokens"]) == (3, 5)
    assert first["usage_source"] == "model"
    assert "usage_source" not in second


@pytest.mark.parametrize("tokens", [-1, "three", 2**64, 1.5])
def test_what_is_no_number_of_tokens_is_reported_and_the_request_goes_on(serve: Serve, tokens: Any) -> None:
    def execute(self: Any, requests: list[Any]) -> Any:
        usage(requests[0], output_tokens=tokens)
        return [ok()]

    model, recorded = serve(execute)
    assert len(model.execute([request()])) == 1
    assert "gen_ai.usage.output_tokens" not in recorded.request()
    (log,) = recorded.records("log")
    assert f"output_tokens={tokens!r}" in log["message"]


def test_what_the_model_logs_belongs_to_its_only_request(serve: Serve) -> None:
    def execute(self: Any, requests: list[Any]) -> Any:
        get_logger("m").info("here")
        return [ok() for _ in requests]

    model, recorded = serve(execute)
    model.execute([request()])
    model.execute([request(), request()])
    one, two = recorded.records("log")
    assert one["request_id"] == recorded.records("request")[0]["request_id"]
    assert "request_id" not in two


def test_a_request_to_another_model_is_in_the_trace(serve: Serve) -> None:
    made: list[dict[str, Any]] = []

    def execute(self: Any, requests: list[Any]) -> Any:
        made.append(outgoing(requests[0]))
        return [ok()]

    model, recorded = serve(execute)
    model.execute([request(name="r")])
    record = recorded.request()
    assert made[0]["request_id"] == "r"
    assert made[0]["parameters"]["traceparent"] == f"00-{record['trace_id']}-{record['span_id']}-03"


def test_a_request_to_another_model_has_the_models_own_parameters_beside_the_trace(serve: Serve) -> None:
    made: list[dict[str, Any]] = []

    def execute(self: Any, requests: list[Any]) -> Any:
        made.append(outgoing(requests[0], {"beam": 4}))
        return [ok()]

    model, _ = serve(execute)
    one = request()
    model.execute([one])
    assert (made[0]["parameters"]["beam"], made[0]["parameters"].keys() >= {"beam", "traceparent"}) == (4, True)
    assert outgoing(one, {"beam": 4})["parameters"] == {"beam": 4}, "a request that has ended has no trace to go on"


def test_sampling_is_by_trace_id_and_by_the_path_of_the_protocol(serve: Serve) -> None:
    model, recorded = serve(lambda self, requests: [ok() for _ in requests], sample_routes="/v2/models/m/*=0")
    for _ in range(10):
        model.execute([request()])
    assert recorded.records("request") == []


def test_a_failure_is_recorded_though_its_trace_is_not_sampled(serve: Serve) -> None:
    model, recorded = serve(lambda self, requests: 1 / 0, sample_ratio=0.0)
    with pytest.raises(ZeroDivisionError):
        model.execute([request()])
    assert recorded.request()["sampled_by"] == "error"


def test_triton_gets_the_counts_of_an_instance_where_that_is_wanted(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference_logging.record.integrations.triton.metrics.INTERVAL_S", 0.0)
    model, _ = serve(lambda self, requests: [ok() for _ in requests], triton_metrics="on")
    model.execute([request(), request()])
    model.execute([request()])
    made = sys.modules["triton_python_backend_utils"].MetricFamily.made
    assert {metric.labels["producer"] for metric in made.values()} == {"m_0_0"}
    assert made["inference_logging_records_accepted_total"].value == 3
    assert made["inference_logging_records_dropped_total"].value == 0


def test_a_metric_that_triton_refuses_is_reported_once_and_requests_go_on(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, recorded = serve(lambda self, requests: [ok()], triton_metrics="on")
    monkeypatch.delattr("tests.kit.fake_triton.Metric.increment")
    for _ in range(2):
        model.execute([request()])
    assert len(recorded.records("request")) == 2
    assert capsys.readouterr().err.count("AttributeError") == 1


# --- the model itself and its process ---------------------------------------------------------------------------------


def test_a_model_that_is_killed_leaves_a_record_of_each_request_that_it_had(configure: Configure) -> None:
    config = configure()

    def child() -> None:
        log = RequestLog(arguments(decoupled=True), config)
        requests = [request(name="a", correlation=5), request(name="b")]
        (stream_begun, _) = log.begin(requests)
        assert stream_begun is not None
        stream_begun.sending(ok(), 0)
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(in_child(child), 0)
    with Logger(config) as logger:
        wait_until(lambda: len(read_records(config.directory, "process.ended")) == 1, "the end to be reported")
        # The note follows the record.
        wait_until(lambda: logger.service.dead_producers() == ["m_0_0"], "its name among the dead")
    first, second = sorted(read_records(config.directory, "request"), key=lambda one: str(one["client_request_id"]))
    assert first["outcome"] == second["outcome"] == "process_died"
    assert (first["triton.model_name"], first["triton.model_version"]) == ("m", "3")
    assert (first["triton.model_instance_name"], first["triton.correlation_id"]) == ("m_0_0", 5)
    assert (second["triton.batch_size"], second["triton.batch_position"]) == (2, 1)
    assert first["chunks"] == 1
    assert not {name for name in first if name.startswith(("http.", "url.", "gen_ai.operation"))}
    (ended,) = read_records(config.directory, "process.ended")
    assert ended["producer_name"] == "m_0_0"


@pytest.mark.parametrize(
    ("command", "traces"),
    [
        (b"/opt/tritonserver/bin/tritonserver\0--model-repository=/m\0", False),
        (b"tritonserver\0--trace-config=mode=opentelemetry\0", True),
        (b"tritonserver\0--trace-config\0mode=opentelemetry\0", True),
        (b"python3\0serve.py\0", True),
        (None, True),
    ],
)
def test_a_trace_is_asked_for_where_the_server_may_make_some(
    tmp_path: Path, command: bytes | None, traces: bool
) -> None:
    path = tmp_path / "cmdline"
    if command is not None:
        path.write_bytes(command)
    assert server_traces(path) is traces


def test_the_class_stays_the_same_and_its_own_methods_are_called(configure: Configure) -> None:
    called: list[str] = []

    class TritonPythonModel:
        """Mine."""

        def initialize(self, args: dict[str, str]) -> None:
            """Begin."""
            called.append(f"initialize {args['model_name']}")

        def execute(self, requests: list[Any]) -> list[Any]:
            called.append("execute")
            return [ok() for _ in requests]

        def finalize(self) -> None:
            called.append("finalize")

    decorated = log_requests(TritonPythonModel)
    assert decorated is TritonPythonModel
    assert decorated.initialize.__doc__ == "Begin."
    config = configure()
    with pytest.MonkeyPatch.context() as patch:
        for name in config.model_fields_set:
            patch.setenv(f"INFERENCE_LOGGING_{name.upper()}", str(getattr(config, name)))
        model = decorated()
        model.initialize(arguments())
        model.execute([request()])
        model.finalize()
    assert called == ["initialize m", "execute", "finalize"]


def test_explicit_calls_do_the_same(recorded: Recorded) -> None:
    log = RequestLog(arguments(), recorded.config)
    begun = log.begin([request(name="r")])
    log.end(begun, [ok()])
    assert recorded.request()["client_request_id"] == "r"
    assert log.close()
    assert log.close()


def test_seconds_of_the_hot_path_are_those_of_begin_and_of_end(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_s, requests = 0.001, 64

    def has_error(_: InferenceResponse) -> bool:
        time.sleep(slow_s)
        return False

    monkeypatch.setattr(InferenceResponse, "has_error", has_error)
    log = RequestLog(arguments(), recorded.config)
    for _ in range(requests):
        log.end(log.begin([request()]), [ok()])
    # One of them was timed, and counts for all.
    assert recorded.logger.service.totals()["hot_path_s"] >= requests * slow_s
    assert log.close()
