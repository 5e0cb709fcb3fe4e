"""A real vLLM: stopped and killed under load, with several processes, measured, and with pooling."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.vllm_server import (
    MODEL,
    SLOW_LONG_ANSWERS,
    VENV,
    WRITTEN,
    VllmServer,
    ask,
    environment_of,
    read_until,
    running,
    serving,
)
from tests.kit.books import assert_books_balance
from tests.kit.sidecars import queue_files
from tests.kit.support import read_lines, wait_until

pytestmark = pytest.mark.vllm

CLIENTS = 4


@contextlib.contextmanager
def load(server: VllmServer, label: str) -> Iterator[tuple[list[str], list[str]]]:
    """Give the names of requests that are answered, and of streams that run."""
    ended, open_ = ([f"{label}-{kind}-{number}" for number in range(CLIENTS)] for kind in ("ended", "open"))
    for name in ended:
        assert server.post("/v1/completions", name, prompt="hello", max_tokens=4).status_code == 200
    with contextlib.ExitStack() as connections:
        for name in open_:
            connection: socket.socket = connections.enter_context(ask(server, "/v1/completions", name, stream=True))
            read_until(connection, WRITTEN)
        yield ended, open_


def outcomes(server: VllmServer, names: list[str]) -> set[str]:
    """Return how the requests of these names ended."""
    return {server.record(name)["outcome"] for name in names}


@pytest.mark.lengthy
def test_whichever_process_dies_the_next_start_says_how_each_request_ended(tmp_path: Path) -> None:
    with serving(tmp_path, *SLOW_LONG_ANSWERS) as killed, load(killed, "killed") as (killed_ended, killed_open):
        killed.kill()
    with serving(tmp_path, *SLOW_LONG_ANSWERS) as stopped:
        assert outcomes(stopped, killed_ended) == {"ok"}
        assert outcomes(stopped, killed_open) == {"process_died"}
        assert all(stopped.record(name)["chunks"] >= 1 for name in killed_open)
        with load(stopped, "stopped") as (stopped_ended, stopped_open):
            stopped.stop()
    assert_books_balance(stopped.config)
    assert outcomes(stopped, stopped_ended) == {"ok"}
    # vLLM ends them, or waits for them until it is killed.
    assert outcomes(stopped, stopped_open) <= {"ok", "error", "client_disconnect", "server_shutdown", "process_died"}


def test_requests_whose_engine_dies_end_as_errors(tmp_path: Path) -> None:
    with (
        serving(tmp_path, *SLOW_LONG_ANSWERS, engine_records="on") as server,
        load(server, "engine") as (ended, open_),
        ask(server, "/v1/chat/completions", "engine-whole", stream=False) as whole,
    ):
        wait_until(lambda: running(server) == CLIENTS + 1, "the engine to work on it")
        (engine,) = server.processes("VLLM::EngineCore")
        os.kill(engine, signal.SIGKILL)
        assert whole.recv(65536).startswith(b"HTTP/1.1 500")
        server.process.wait(60)
    assert_books_balance(server.config)
    assert outcomes(server, ended) == {"ok"}
    assert outcomes(server, [*open_, "engine-whole"]) == {"error"}
    assert server.record("engine-whole")["http.response.status_code"] == 500
    assert {(server.record(name)["error.type"], server.record(name)["error.code"]) for name in open_} == {
        ("InternalServerError", "500")
    }
    for name in open_:
        record = server.record(name)
        assert record["gen_ai.usage.output_tokens"] >= 1, "what the engine had counted"
        assert (record["usage_source"], record["engine.requests"]) == ("engine", 1)


def queues_of(pid: int) -> set[str]:
    """Return the queues that a process has mapped."""
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    return {line.split()[-1] for line in maps if line.endswith(".queue")}


def test_each_api_server_has_a_queue_of_its_own_and_no_other_process_has_one(tmp_path: Path) -> None:
    with serving(tmp_path, "--api-server-count", "2", "--disable-log-stats") as server:
        serving_pids = set(server.processes("VLLM::APIServer"))
        assert len(serving_pids) == 2
        names = post_until_both_answer(server, serving_pids)
        queues = {str(path) for path in queue_files(server.config)}
        others = {server.process.pid, *server.processes("VLLM::EngineCore")}
        assert len(others) == 2
        # The leader of the listeners has the other's mapped, too.
        assert set.union(*(queues_of(pid) for pid in serving_pids)) == queues
        assert len(queues) == 2
        assert [queues_of(pid) for pid in others] == [set(), set()]
        server.stop()
    assert_books_balance(server.config)
    assert {record["client_request_id"] for record in server.records()} == set(names)
    headers = [line for line in read_lines(server.config.directory) if line["event_name"] == "segment.header"]
    assert len({header["boot_id"] for header in headers}) <= 2


def post_until_both_answer(server: VllmServer, pids: set[int]) -> list[str]:
    """Send requests over connections of their own until each process has served one; return their names."""
    names: list[str] = []

    def both_answered() -> bool:
        names.append(f"two-{len(names)}")
        server.client.headers["connection"] = "close"
        assert server.post("/v1/completions", names[-1], prompt="hello", max_tokens=2).status_code == 200
        return {record["pid"] for record in server.records()} == pids

    wait_until(both_answered, "both to have answered")
    return names


REQUESTS, TOKENS = 24, 8
PREFIX = "load-"


def test_the_counts_of_vllm_bench_serve_are_those_of_the_records(vllm: VllmServer, tmp_path: Path) -> None:
    command = [
        *(str(VENV / "bin" / "vllm"), "bench", "serve", "--backend", "openai", "--base-url", vllm.url),
        *("--model", "tiny", "--tokenizer", str(MODEL), "--dataset-name", "random", "--random-input-len", "16"),
        *("--random-output-len", str(TOKENS), "--num-prompts", str(REQUESTS), "--max-concurrency", "4", "--ignore-eos"),
        *("--request-id-prefix", PREFIX, "--save-result", "--result-filename", str(tmp_path / "result.json")),
    ]
    done = subprocess.run(command, env=environment_of(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))

    def found() -> list[dict[str, Any]]:
        own = [record for record in vllm.records() if record.get("client_request_id", "").startswith(PREFIX)]
        return own if len(own) >= REQUESTS else []

    records = wait_until(found, "the records")
    assert (result["completed"], len(records)) == (REQUESTS, REQUESTS)
    assert {record["outcome"] for record in records} == {"ok"}
    assert sum(record["gen_ai.usage.output_tokens"] for record in records) == result["total_output_tokens"]
    assert sum(record["gen_ai.usage.input_tokens"] for record in records) == result["total_input_tokens"]


TEXTS = ["hello world", "tell me a story", "a request"]
ROUTES: dict[str, tuple[dict[str, Any], str | None]] = {
    "/v1/embeddings": ({"input": TEXTS}, "embeddings"),
    "/v2/embed": ({"texts": TEXTS, "embedding_types": ["float"]}, "embeddings"),
    "/pooling": ({"input": TEXTS}, "pooling"),
    "/score": ({"text_1": "hello", "text_2": TEXTS}, "score"),
    "/v1/score": ({"text_1": "hello", "text_2": TEXTS}, "score"),
    "/rerank": ({"query": "hello", "documents": TEXTS}, "rerank"),
    "/v2/rerank": ({"query": "hello", "documents": TEXTS}, "rerank"),
    "/tokenize": ({"prompt": "hello"}, None),
}


@pytest.fixture(scope="module")
def pooling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """Serve the same model as one that embeds."""
    flags = ("--runner", "pooling", "--convert", "embed")
    with serving(tmp_path_factory.mktemp("pooling"), *flags, engine_records="on") as server:
        yield server
    assert_books_balance(server.config)


@pytest.mark.parametrize("path", ROUTES)
def test_an_answer_leaves_one_record_with_its_usage(pooling: VllmServer, path: str) -> None:
    body, operation = ROUTES[path]
    name = f"pool{path.replace('/', '-')}"
    answer = pooling.post(path, name, **body)
    record = pooling.record(name)
    assert (answer.status_code, record["outcome"], record["http.route"]) == (200, "ok", path), answer.text
    assert record.get("gen_ai.operation.name") == operation
    assert record["gen_ai.request.model"] == "tiny"
    usage = answer.json().get("usage", {})
    if path == "/v2/embed":
        usage["prompt_tokens"] = answer.json()["meta"]["billed_units"]["input_tokens"]
    assert record.get("gen_ai.usage.input_tokens") == usage.get("prompt_tokens")
    # A query is one more.
    asked = {None: None, "score": len(TEXTS) + 1, "rerank": len(TEXTS) + 1}
    assert record.get("engine.requests") == asked.get(operation, len(TEXTS))
    assert not pooling.records("engine.request")


def test_a_route_of_another_kind_of_model_is_recorded_as_refused(pooling: VllmServer) -> None:
    answer = pooling.post("/v1/completions", "pool-refused", prompt="hello")
    assert pooling.record("pool-refused")["http.response.status_code"] == answer.status_code >= 400
