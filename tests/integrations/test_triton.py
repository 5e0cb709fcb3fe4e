"""Requests to models of a real Triton: one record each, whatever they come to."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from inference_logging.record.started import configuration_digest
from tests.integrations.triton_server import (
    EXIT_TIMEOUT_S,
    INSTANCES,
    VENV,
    TritonServer,
    assert_books_balance,
    serving,
)
from tests.kit.support import PARENT_ID, TRACE_ID, TRACEPARENT

pytestmark = pytest.mark.triton

KEY = "sk-canary-of-triton"
TOKEN = "hf_canary0123456789"
EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "triton" / "model_repository"


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Serve all models; at its end all books must balance."""
    place = tmp_path_factory.mktemp("triton")
    (place / "key").write_bytes(bytes(32))
    settings: dict[str, Any] = {
        "triton_parameters": "do,user",
        "triton_metrics": "on",
        "server_record": "on",
        "record_headers": ["x-tenant=tenant.id", "authorization:hash=api_key.hash"],
        "capture_hash_key_file": place / "key",
    }
    forwarded = "--http-header-forward-pattern=(?i)traceparent|x-.*|authorization"
    with serving(place, forwarded, environment={"HF_TOKEN": TOKEN}, **settings) as server:
        yield server
        assert server.stops()
    assert_books_balance(server)
    written = b"".join(path.read_bytes() for path in server.config.directory.rglob("*") if path.is_file())
    assert not [secret for secret in (KEY, TOKEN, "canary") if secret.encode() in written]


def test_a_request_over_http_is_on_record(triton: TritonServer) -> None:
    answer = triton.echo("plain", 1.5, 2.5, text="héllo", user="u-1", secret="s")
    assert answer.json()["outputs"][0]["data"] == [1.5, 2.5]
    record = triton.record("plain")
    assert record["outcome"] == "ok"
    assert record["severity_text"] == "INFO"
    assert record["triton.model_version"] == "1"
    assert record["triton.model_instance_name"] in {"echo_0_0", "echo_0_1"}
    assert (record["triton.batch_size"], record["triton.batch_position"]) == (1, 0)
    assert record["triton.parameters"] == {"user": "u-1"}
    assert record["triton.inputs"] == [
        {"name": "X", "datatype": "FP32", "shape": [1, 2], "bytes": 8},
        {"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "bytes": 4 + len("héllo".encode())},
    ]
    assert record["triton.outputs"] == [{"name": "Y", "datatype": "FP32", "shape": [1, 2], "bytes": 8}]
    assert 0 < record["duration_s"] < 60
    assert not {name for name in record if name.startswith(("http.", "url.", "chunk"))}


def test_triton_shows_the_counts_of_its_instances(triton: TritonServer) -> None:
    triton.echo("shown", 1.0)
    instance = triton.record("shown")["triton.model_instance_name"]
    metrics = httpx.get(f"http://127.0.0.1:{triton.metrics}/metrics", timeout=120).text
    assert f'inference_logging_records_accepted_total{{producer="{instance}"}}' in metrics


def test_a_request_over_grpc_is_on_record(triton: TritonServer) -> None:
    assert triton.ask_by_grpc("infer", "by-grpc", 1, 2, 3) == [1.0, 2.0, 3.0]
    assert triton.record("by-grpc")["triton.inputs"][0]["shape"] == [1, 3]


def test_the_trace_of_a_forwarded_header_goes_on(triton: TritonServer) -> None:
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}], "id": "traced"}
    triton.client.post("/v2/models/echo/infer", json=body, headers={"traceparent": TRACEPARENT.decode()})
    record = triton.record("traced")
    assert (record["trace_id"], record["parent_span_id"]) == (TRACE_ID, PARENT_ID)


def test_forwarded_headers_say_whose_request_it_was(triton: TritonServer) -> None:
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}], "id": "identified"}
    headers = {"X-Tenant": "acme", "x-other": "no", "Authorization": f"Bearer {KEY}"}
    triton.client.post("/v2/models/echo/infer", json=body, headers=headers)
    record = triton.record("identified")
    assert record["tenant.id"] == "acme"
    assert record["api_key.hash"].startswith("blake3-keyed:")
    assert not [name for name in record if "other" in name]


def test_each_instance_says_at_its_start_what_it_runs(triton: TritonServer) -> None:
    records = triton.wait_for(INSTANCES, "server.started")
    assert len(records) == INSTANCES
    echo = [record for record in records if record["model.name"] == "echo"]
    assert len(echo) == 2
    for record in echo:
        assert (record["engine.name"], record["model.version"]) == ("triton", "1")
        assert record["engine.parallelism"] == {"instances": 2}
        assert record["configuration.digest"] == configuration_digest(triton.config)
        assert record["process.runtime.version"] == platform.python_version()
        arguments = record["engine.arguments"]
        assert arguments["model_config.backend"] == "python"
        assert (arguments["model_config.max_batch_size"], arguments["model_config.dynamic_batching"]) == (8, True)
        assert arguments["model_config.decoupled"] is False
        assert arguments["model_instance_kind"] == "CPU"
        assert (arguments["server.exit-timeout-secs"], arguments["server.disable-auto-complete-config"]) == (
            str(EXIT_TIMEOUT_S),
            "true",
        )
        assert not {"engine.version", "model.digest"} & set(record), "this Triton has neither"


def test_requests_of_a_batch_are_on_record_one_by_one(triton: TritonServer) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: triton.echo(f"batch-{number}", float(number)), range(8)))
    records = [triton.record(f"batch-{number}") for number in range(8)]
    assert max(record["triton.batch_size"] for record in records) > 1
    assert all(record["triton.batch_position"] < record["triton.batch_size"] for record in records)
    whole = [record for record in records if record["triton.batch_size"] > 1]
    assert {record["triton.batch_position"] for record in whole} >= {0, 1}


def test_an_exception_is_on_record_and_reaches_the_client(triton: TritonServer) -> None:
    answer = triton.echo("raised", 1.0, do="raise")
    assert answer.status_code == 500
    assert "RuntimeError: as asked" in answer.text
    record = triton.record("raised")
    assert (record["outcome"], record["error.type"]) == ("error", "RuntimeError")
    assert "triton.outputs" not in record
    (log,) = triton.wait_for(event="log", message="execute raised", severity_text="ERROR", pid=record["pid"])
    reported = log["attributes"]
    assert (reported["exception.type"], reported["exception.message"]) == ("RuntimeError", "as asked")
    assert "in answer" in reported["exception.stacktrace"]


@pytest.mark.parametrize(
    ("code", "outcome"), [("INVALID_ARG", "error"), ("UNAVAILABLE", "error"), ("CANCELLED", "client_disconnect")]
)
def test_a_response_with_an_error_is_on_record_with_its_code(triton: TritonServer, code: str, outcome: str) -> None:
    answer = triton.echo(f"refused-{code}", 1.0, do="refuse", code=code)
    assert answer.status_code >= 400
    assert "as asked" in answer.text
    record = triton.record(f"refused-{code}")
    assert (record["outcome"], record["error.type"]) == (outcome, code)


def test_what_the_model_logs_and_counts_belongs_to_its_request(triton: TritonServer) -> None:
    triton.echo("logged", 1.0, do="log")
    triton.echo("counted", 1.0, do="count")
    record = triton.record("logged")
    (log,) = triton.wait_for(event="log", request_id=record["request_id"])
    assert (log["message"], log["trace_id"]) == ("here", record["trace_id"])
    counted = triton.record("counted")
    assert (counted["gen_ai.usage.input_tokens"], counted["gen_ai.usage.output_tokens"]) == (3, 7)
    assert counted["usage_source"] == "model"
    assert "usage_source" not in record


def test_a_request_of_a_request_is_in_its_trace(triton: TritonServer) -> None:
    inputs = [{"name": "X", "datatype": "FP32", "shape": [2], "data": [1.0, 2.0]}]
    answer = triton.post("models/relay/infer", id="relayed", inputs=inputs)
    assert answer.json()["outputs"][0]["data"] == [1.0, 2.0]
    outer, inner = triton.record("relayed", "relay"), triton.record("relayed", "echo")
    assert inner["trace_id"] == outer["trace_id"]
    assert inner["parent_span_id"] == outer["span_id"]


# --- decoupled models ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["stream", "drowsy"])
def test_each_response_of_a_stream_is_a_chunk(triton: TritonServer, model: str) -> None:
    before = len([record for record in triton.records() if record["triton.model_name"] == model])
    words = triton.stream(model, 5)
    assert words[:5] == [f"word{number}" for number in range(5)]
    record = triton.wait_for(before + 1, model=model)[-1]
    assert (record["outcome"], record["chunks"]) == ("ok", 5)
    assert record["gen_ai.response.time_to_first_chunk"] <= record["duration_s"]
    assert len(record["chunk_gaps_us"]) == 4
    assert record["triton.outputs"] == [{"name": "TOKEN", "datatype": "BYTES", "shape": [1], "bytes": 4 + len("word0")}]


def test_a_stream_over_grpc_without_responses_has_ended(triton: TritonServer) -> None:
    assert triton.ask_by_grpc("stream", "none", 0) == []
    record = triton.record("none", "stream")
    assert record["outcome"] == "ok"
    assert "chunks" not in record


def test_what_a_coroutine_logs_belongs_to_its_request(triton: TritonServer) -> None:
    triton.stream("drowsy", 3)
    record = triton.wait_for(model="drowsy", outcome="ok", chunks=3)[0]
    assert len(triton.wait_for(3, "log", request_id=record["request_id"])) == 3


def test_a_client_that_cancels_is_on_record(triton: TritonServer) -> None:
    assert triton.ask_by_grpc("stream", "cancelled", 500, 3, 20)[:3] == ["word0", "word1", "word2"]
    record = triton.record("cancelled", "stream")
    assert record["outcome"] == "client_disconnect"
    assert 3 <= record["chunks"] < 500


def test_an_exception_of_a_decoupled_model_is_on_record(triton: TritonServer) -> None:
    triton.post("models/stream/generate_stream", N=1, parameters={"do": "raise"})
    (record,) = triton.wait_for(model="stream", outcome="error")
    assert record["error.type"] == "ValueError"
    assert record["triton.parameters"] == {"do": "raise"}


# --- the server itself -----------------------------------------------------------------------------------------------


def test_the_ids_are_those_of_tritons_own_spans(tmp_path: Path) -> None:
    flags = ["--trace-config=mode=opentelemetry", "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1"]
    flags += ["--trace-config=opentelemetry,url=127.0.0.1:9/v1/traces"]
    with serving(tmp_path, *flags, sample_ratio=1.0) as server:
        body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}], "id": "spans"}
        server.client.post("/v2/models/echo/infer", json=body, headers={"traceparent": TRACEPARENT.decode()})
        record = server.record("spans")
    assert record["trace_id"] == TRACE_ID
    assert record["parent_span_id"] not in {PARENT_ID, None}


def test_a_wrong_configuration_refuses_the_model_by_name(tmp_path: Path) -> None:
    server = TritonServer(tmp_path, environment={"INFERENCE_LOGGING_QUEUE_BYTES": "many"})
    try:
        assert server.process.wait(60) != 0
        assert "queue_bytes='many'" in server.output
    finally:
        server.kill()


def test_a_model_with_an_execution_environment_of_its_own_is_on_record(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "scale", tmp_path / "repository" / "scale")
    with (tmp_path / "repository" / "scale" / "config.pbtxt").open("a") as described:
        described.write(f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{VENV}" }} }}')
    # The Python that comes first on the server's own path knows nothing of us.
    server = TritonServer(
        tmp_path, repository=tmp_path / "repository", environment={"PATH": os.environ["PATH"], "VIRTUAL_ENV": ""}
    )
    try:
        server.wait_until_ready()
        inputs = [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}]
        server.post("models/scale/infer", id="elsewhere", inputs=inputs)
        assert server.record("elsewhere", "scale")["outcome"] == "ok"
    finally:
        server.stop()
    assert_books_balance(server)


def test_the_example_repository_is_on_record(tmp_path: Path) -> None:
    server = TritonServer(tmp_path, repository=EXAMPLES)
    try:
        server.wait_until_ready()
        inputs = [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.5]}]
        answer = server.post("models/scale/infer", id="scaled", inputs=inputs)
        assert answer.json()["outputs"][0]["data"] == [2.0, 5.0]
        streamed = server.post("models/words/generate_stream", TEXT="one two three")
        assert streamed.text.count('"WORD"') >= 3
        assert server.record("scaled", "scale")["outcome"] == "ok"
        (words,) = server.wait_for(model="words")
        assert (words["chunks"], words["gen_ai.usage.output_tokens"]) == (3, 3)
    finally:
        server.stop()
    assert_books_balance(server)
