"""A real vLLM as its example says, and with what else its users switch on."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path

import httpx
import pytest

from inference_logging.record.started import configuration_digest
from tests.integrations.vllm_server import (
    ADAPTER,
    MODEL,
    SMALL,
    START_DEADLINE_S,
    VENV,
    VllmServer,
    environment_of,
    require_vllm,
    serving,
)
from tests.kit.books import assert_books_balance
from tests.kit.servers import free_port
from tests.kit.support import PARENT_ID, TRACE_ID, TRACEPARENT, read_records, wait_until
from tests.project.test_docs_blocks import commands

pytestmark = pytest.mark.vllm

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "vllm" / "README.md"
NAME = "Qwen/Qwen3-0.6B"
READ_ONLY = """
import json, sys
from vllm.entrypoints.common.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
print([parser.parse_args(words[2:]).middleware for words in json.load(sys.stdin)])
"""


def test_each_command_of_a_page_has_options_that_vllm_takes() -> None:
    require_vllm()
    shown = [words for _, words in commands() if words[:2] == ("vllm", "serve")]
    assert len(shown) >= 3
    command, text = [str(VENV / "bin" / "python"), "-c", READ_ONLY], json.dumps(shown)
    done = subprocess.run(
        command, env=environment_of(), input=text, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("inference_logging.InferenceLoggingMiddleware") == len(shown)


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", EXAMPLE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@contextlib.contextmanager
def started(script: str, place: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the block that starts the server, with a small model on a port of our own."""
    own = shlex.join([str(MODEL), "--served-model-name", NAME, "--port", str(port), *SMALL])
    command = ["bash", "-ec", script.replace(f"vllm serve {NAME}", f"exec vllm serve {own}")]
    with (place / "said").open("wb") as said:
        process = subprocess.Popen(
            command, cwd=place, env=shell(place), stdout=said, stderr=said, start_new_session=True
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def shell(place: Path) -> dict[str, str]:
    """Return an environment in which the commands of vLLM's own are found, and queues lie in ``place``."""
    path = f"{VENV / 'bin'}:{os.environ['PATH']}"
    return environment_of(PATH=path, INFERENCE_LOGGING_QUEUE_DIRECTORY=str(place / "queues"))


def test_its_blocks_serve_record_and_verify(tmp_path: Path) -> None:
    require_vllm()
    _, start, ask, look = blocks()
    exports = "".join(line for line in start.splitlines(keepends=True) if line.startswith("export "))
    port = free_port()

    def run(script: str) -> str:
        there = script.replace("localhost:8000", f"127.0.0.1:{port}")
        command = ["bash", "-euo", "pipefail", "-c", exports + there]
        done = subprocess.run(
            command, cwd=tmp_path, env=shell(tmp_path), capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with started(start, tmp_path, port) as process:

        def is_ready() -> bool:
            assert process.poll() is None, (tmp_path / "said").read_text(encoding="utf-8")[-8000:]
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
            return False

        wait_until(is_ready, "vLLM to be ready", START_DEADLINE_S)
        # A model that knows nothing may end a text anywhere.
        assert run(ask.replace('"stream"', '"ignore_eos": true, "stream"')).endswith("data: [DONE]\n\n")
        wait_until(lambda: read_records(tmp_path / "logs", "request"), "its record")
        shown = run(look)
    (record,) = read_records(tmp_path / "logs", "request")
    assert (record["client_request_id"], record["outcome"], record["gen_ai.request.model"]) == ("first", "ok", NAME)
    assert (record["gen_ai.usage.output_tokens"], record["usage_source"]) == (16, "engine")
    assert record["engine.e2e_s"] > 0
    assert '"client_request_id": "first"' in shown
    assert "/v1/chat/completions" in shown


KEY = "a-key-that-nobody-should-read"
TOKEN = "hf_canary0123456789"
PASSWORD = "a-password-of-an-argument"
BODY = {"prompt": "hello", "max_tokens": 4}


class Collector(ThreadingHTTPServer):
    """A collector of traces that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiving)
        self.received: list[bytes] = []
        self.endpoint = f"http://127.0.0.1:{self.server_port}/v1/traces"


class Receiving(BaseHTTPRequestHandler):
    """One connection to the collector."""

    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        self.server.received.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    """Collect traces."""
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def flagged(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[VllmServer]:
    """Serve with all of it on."""
    flags = (
        *("--enable-log-requests", "--enable-request-id-headers"),
        *("--otlp-traces-endpoint", collector.endpoint),
        *("--api-key", KEY, "--hf-token", PASSWORD, "--seed", "7"),
        *("--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"adapter={ADAPTER}"),
    )
    variables = {
        "HF_TOKEN": TOKEN,
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    settings = {"wrap_health_path": "/health", "metrics_registry": "default", "server_record": "on"}
    with serving(tmp_path_factory.mktemp("flags"), *flags, environment=variables, **settings) as server:
        server.client.headers["authorization"] = f"Bearer {KEY}"
        yield server
    assert_books_balance(server.config)
    written = [path.read_bytes() for path in server.place.rglob("*") if path.is_file()]
    assert KEY not in server.output
    for secret in (KEY, TOKEN, PASSWORD):
        assert not [True for content in written if secret.encode() in content]


def test_a_request_without_the_key_is_recorded_as_refused(flagged: VllmServer) -> None:
    answer = httpx.post(f"{flagged.url}/v1/completions", json=BODY, headers={"x-request-id": "no-key"}, timeout=120)
    assert flagged.record("no-key")["http.response.status_code"] == answer.status_code == 401


def test_the_record_of_the_start_says_what_runs_and_with_which_arguments(flagged: VllmServer) -> None:
    (record,) = wait_until(lambda: flagged.records("server.started"), "the record of the start")
    assert record["engine.name"] == "vllm"
    versions = {"engine.version": "vllm", "telemetry.distro.version": "inferlog", "server.version": "uvicorn"}
    assert {name: record[name] for name in versions} == {name: installed(one) for name, one in versions.items()}
    names = ("fastapi", "starlette", "torch", "transformers")
    assert {name: record["framework.versions"].get(name) for name in names} == {name: installed(name) for name in names}
    assert (record["server.name"], record["telemetry.distro.name"]) == ("uvicorn", "inferlog")
    assert (record["process.runtime.name"], record["process.runtime.version"]) == ("cpython", platform.python_version())
    assert record["configuration.digest"] == configuration_digest(flagged.config)
    assert (record["model.name"], record["model.dtype"], record["model.max_tokens"]) == (str(MODEL), "float32", 8192)
    assert not {"model.revision", "model.quantization", "model.digest"} & set(record), "this model has none"
    assert record["engine.parallelism"] == {"tensor": 1, "pipeline": 1, "data": 1, "expert": False}
    given = {
        "model_config.max_model_len": 8192,
        "model_config.seed": 7,
        "model_config.enforce_eager": True,
        "scheduler_config.max_num_seqs": 32,
        "lora_config.max_lora_rank": 8,
        "load_config.load_format": "auto",
    }
    assert given.items() <= record["engine.arguments"].items()
    text = json.dumps(record)
    assert not [secret for secret in (KEY, TOKEN, PASSWORD) if secret in text]


def installed(distribution: str) -> str:
    """Return the version that is installed beside vLLM."""
    (found,) = metadata.distributions(name=distribution, path=[str(packages) for packages in VENV.glob("lib/*/*")])
    return found.version


def test_health_keeps_its_meaning_and_reports_our_state(flagged: VllmServer) -> None:
    answer = flagged.client.get("/health")
    assert (answer.status_code, answer.content, answer.headers["inference-logging-state"]) == (200, b"", "ok")


def test_our_metrics_stand_beside_those_of_vllm(flagged: VllmServer) -> None:
    metrics = flagged.client.get("/metrics").text
    assert "inference_logging_records_accepted_total" in metrics
    assert "gen_ai_server_request_duration_seconds_bucket" in metrics
    assert "process_cpu_seconds_total" in metrics
    assert KEY not in metrics


def test_the_name_of_an_adapter_is_the_model_of_its_request(flagged: VllmServer) -> None:
    answer = flagged.post("/v1/completions", "adapter", **BODY, model="adapter")
    record = flagged.record("adapter")
    assert (answer.status_code, record["outcome"]) == (200, "ok"), answer.text
    assert (record["gen_ai.request.model"], record["gen_ai.response.model"]) == ("adapter", "adapter")


def test_the_clients_id_is_on_record_and_in_vllms_own_log(flagged: VllmServer) -> None:
    answer = flagged.post("/v1/completions", "own-id", **BODY)
    assert answer.headers["x-request-id"] == "own-id"
    assert flagged.record("own-id")["gen_ai.response.id"] == "cmpl-own-id"
    wait_until(lambda: "Received request cmpl-own-id" in flagged.output, "vLLM's own line about it")


def test_an_id_that_vllm_invents_for_the_answer_is_not_the_clients(flagged: VllmServer) -> None:
    answer = flagged.client.post("/v1/completions", json={"model": "tiny", **BODY})

    def found() -> list[dict[str, object]]:
        return [record for record in flagged.records() if record.get("gen_ai.response.id") == answer.json()["id"]]

    (record,) = wait_until(found, "its record")
    assert answer.headers["x-request-id"]
    assert "client_request_id" not in record


def test_a_clients_trace_is_that_of_our_record_and_of_vllms_span(flagged: VllmServer, collector: Collector) -> None:
    headers = {"traceparent": TRACEPARENT.decode(), "x-request-id": "traced"}
    flagged.client.post("/v1/completions", json={"model": "tiny", **BODY}, headers=headers)
    record = flagged.record("traced")
    assert (record["trace_id"], record["parent_span_id"]) == (TRACE_ID, PARENT_ID)
    spans = bytes.fromhex(TRACE_ID)
    received = wait_until(lambda: [body for body in collector.received if spans in body], "vLLM's span")
    assert b"llm_request" in received[0]
    assert b"cmpl-traced" in received[0]


def test_without_a_trace_of_the_clients_vllms_span_is_in_that_of_our_record(
    flagged: VllmServer, collector: Collector
) -> None:
    flagged.post("/v1/completions", "untraced", **BODY)
    record = flagged.record("untraced")
    ours = bytes.fromhex(record["trace_id"]), bytes.fromhex(record["span_id"])
    (span,) = wait_until(lambda: [body for body in collector.received if b"cmpl-untraced" in body], "vLLM's span")
    assert all(part in span for part in ours), "the span has our trace, and our span as its parent"
