"""A real vLLM that is stopped and killed under load: nothing is lost, and each request has one terminal record."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.books import assert_books_balance
from tests.integrations.test_vllm_clients_leave import WRITTEN, ask, read_until, running
from tests.integrations.vllm_server import SLOW_LONG_ANSWERS, VllmServer, serving
from tests.support import wait_until

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
