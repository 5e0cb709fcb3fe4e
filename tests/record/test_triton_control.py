"""A Triton model's requests without a Triton: run-time control, whose they are, and rounds of execution."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Logger, current_request
from inference_logging.record.integrations.triton.requests import DEFAULT_CANDIDATES, _sequences
from inference_logging.record.integrations.triton.started import reported_by
from inference_logging.triton import log_requests, usage
from tests.kit.child import in_child
from tests.kit.command_line import control
from tests.kit.fake_triton import FINAL, RESCHEDULE, SEQUENCE_START, arguments, ok, request, stream
from tests.kit.identity import HEADERS, SECRET, everything
from tests.kit.signatures import Configure, Serve
from tests.kit.support import TRACE_ID, TRACEPARENT, read_records

pytestmark = pytest.mark.usefixtures("fake_backend")

PATH = "/v2/models/{model}/versions/*"
"""What stands for the path of a model's requests."""


def break_off(self: Any, requests: list[Any]) -> None:
    for one in requests:
        for _ in range(3):
            one.get_response_sender().send(ok())
    raise ValueError


def test_a_sampling_ratio_holds_for_the_next_request_of_a_model(serve: Serve) -> None:
    model, recorded = serve(lambda self, requests: [ok()], sample_ratio=0)
    model.execute([request(name="before")])
    control(recorded.config, "sample-ratio", "1")
    model.execute([request(name="while")])
    control(recorded.config, "sample-ratio", "0")
    model.execute([request(name="after")])
    record = recorded.request()
    assert (record["client_request_id"], record["sampled_by"]) == ("while", "head")


def test_a_chunks_mode_holds_for_the_next_stream_of_a_model(serve: Serve) -> None:
    model, recorded = serve(stream, decoupled=True, chunks="off")
    model.execute([request()])
    control(recorded.config, "chunks", "timeline")
    model.execute([request()])
    control(recorded.config, "chunks", "events")
    model.execute([request()])
    off, timeline, events = recorded.records("request")
    assert "chunks" not in off
    assert len(timeline["chunk_gaps_us"]) == 2
    assert (events["chunks"], "chunk_gaps_us" in events) == (3, False)
    chunks = recorded.records("request.chunk")
    assert [(chunk["trace_id"], chunk["chunk"]) for chunk in chunks] == [
        (events["trace_id"], number) for number in (1, 2, 3)
    ]
    assert not any("bytes" in chunk for chunk in chunks)


@pytest.mark.parametrize("target", [("--route", PATH), ("--trace", TRACE_ID)], ids=["route", "trace"])
def test_a_captured_request_of_a_model_is_recorded_whole_whatever_the_sampler_says(
    serve: Serve, target: tuple[str, str]
) -> None:
    model, recorded = serve(stream, decoupled=True, sample_ratio=0, chunks="off")
    control(recorded.config, "capture", *target)
    model.execute([request(traceparent=TRACEPARENT.decode())])
    record = recorded.request()
    assert (record["trace_id"], record["sampled_by"], record["adjusted_count"]) == (TRACE_ID, "forced", 1.0)
    assert [chunk["chunk"] for chunk in recorded.records("request.chunk")] == [1, 2, 3]


def test_the_next_errors_of_a_model_have_their_timeline_and_only_as_many_as_are_wanted(serve: Serve) -> None:
    model, recorded = serve(break_off, decoupled=True, chunks="summary")
    control(recorded.config, "capture", "--errors", "2")
    for _ in range(3):
        with pytest.raises(ValueError):  # noqa: PT011 - that of the model, which says nothing
            model.execute([request()])
    assert ["chunk_gaps_us" in record for record in recorded.records("request")] == [True, True, False]


def test_forwarded_headers_are_recorded_as_headers_are(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(bytes(32))
    model, recorded = serve(
        lambda self, requests: [ok() for _ in requests],
        record_headers=",".join(HEADERS),
        capture_hash_key_file=tmp_path / "key",
    )
    forwarded = {"x-tenant": "acme", "X-Team": "search", "authorization": f"Bearer {SECRET}", "x-other": "no", "n": 7}
    model.execute([request(**forwarded), request()])
    first, second = recorded.records("request")
    assert (first["tenant.id"], first["http.request.header.x-team"]) == ("acme", "search")
    assert first["api_key.hash"].startswith("blake3-keyed:")
    assert not any("other" in name for name in first)
    assert "tenant.id" not in second
    assert SECRET.encode() not in everything(recorded.config.directory)


def test_what_the_model_sets_and_keeps_is_in_the_record(serve: Serve) -> None:
    kept: list[Any] = []

    def execute(_self: Any, requests: list[Any]) -> list[Any]:
        current = current_request()
        assert current is not None
        assert current.set(**{"tenant.id": "of the model"}, room=7)
        current.keep()
        kept.append(current)
        return [ok() for _ in requests]

    model, recorded = serve(execute, record_headers="x-tenant=tenant.id", sample_ratio=0.0)
    model.execute([request(**{"x-tenant": "acme"})])
    record = recorded.request()
    assert (record["tenant.id"], record["attributes"]) == ("of the model", {"room": 7})
    assert record["sampled_by"] == "forced"
    assert kept[0].set(late=1) is False


def test_the_record_of_a_killed_instance_says_whose_request_it_was(configure: Configure) -> None:
    config = configure(record_headers=["x-tenant=tenant.id"])

    class Model:
        def execute(self, _requests: list[Any]) -> list[Any]:
            os.kill(os.getpid(), signal.SIGKILL)
            return []

    def child() -> None:
        os.environ["INFERENCE_LOGGING_DIRECTORY"] = str(config.directory)
        os.environ["INFERENCE_LOGGING_QUEUE_DIRECTORY"] = str(config.queue_directory)
        os.environ["INFERENCE_LOGGING_RECORD_HEADERS"] = "x-tenant=tenant.id"
        model: Any = log_requests(Model)()
        model.initialize(arguments())
        model.execute([request(name="r-1", **{"x-tenant": "acme"})])

    os.waitpid(in_child(child), 0)
    with Logger(config) as logger:
        assert logger.flush()
    (record,) = read_records(config.directory, "request")
    assert (record["outcome"], record["client_request_id"], record["tenant.id"]) == ("process_died", "r-1", "acme")
    assert record["triton.model_name"] == "m"


ARGS = {"model_name": "m", "model_version": "3", "model_instance_kind": "GPU", "model_instance_device_id": "1"}
MODEL = {
    "backend": "python",
    "max_batch_size": 8,
    "instance_group": [{"count": 2, "kind": "KIND_GPU"}, {"kind": "KIND_CPU"}],
    "model_transaction_policy": {"decoupled": True},
    "dynamic_batching": {},
    "parameters": {"password": {"string_value": "canary-parameter"}},
}


def test_a_model_and_its_server_are_described_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_SERVER_VERSION", "2.51.0")
    flags = ["tritonserver", "--model-repository=/canary-path", "--exit-timeout-secs=9", "--rate-limit", "off"]
    flags += ["--strict-readiness", "--backend-config=python,key=canary-flag", "--cache-config", "local,size=canary"]
    command_line = tmp_path / "cmdline"
    command_line.write_bytes(b"".join(flag.encode() + b"\0" for flag in flags))
    reported = reported_by(ARGS, MODEL, command_line)
    assert reported["engine.version"] == "2.51.0"
    assert (reported["model.name"], reported["model.version"]) == ("m", "3")
    assert reported["engine.parallelism"] == {"instances": 3}
    assert reported["engine.arguments"] == {
        "model_config.backend": "python",
        "model_config.max_batch_size": 8,
        "model_config.decoupled": True,
        "model_config.dynamic_batching": True,
        "model_config.sequence_batching": False,
        "model_instance_kind": "GPU",
        "model_instance_device_id": "1",
        "server.exit-timeout-secs": "9",
        "server.rate-limit": "off",
        "server.strict-readiness": "true",
    }
    assert "canary" not in json.dumps(reported)


def test_what_a_server_does_not_say_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRITON_SERVER_VERSION", "NVIDIA_TRITON_SERVER_VERSION"):
        monkeypatch.delenv(name, raising=False)
    reported = reported_by({"model_name": "m", "model_version": "1"}, {}, tmp_path / "missing")
    assert reported == {
        "engine.name": "triton",
        "model.name": "m",
        "model.version": "1",
        "engine.arguments": {
            "model_config.decoupled": False,
            "model_config.dynamic_batching": False,
            "model_config.sequence_batching": False,
        },
    }


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
