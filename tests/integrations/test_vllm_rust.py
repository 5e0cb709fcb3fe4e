"""A real vLLM whose HTTP is served by Rust, without a Python application: what the engine's own process records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.books import assert_books_balance
from tests.integrations.test_vllm_clients_leave import ask, read_until
from tests.integrations.test_vllm_engine import FIXED, SETTINGS, engine_requests
from tests.integrations.vllm_server import VllmServer, require_vllm
from tests.sidecars import queue_files
from tests.support import wait_until

pytestmark = pytest.mark.vllm


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VllmServer]:
    """Serve without the middleware, which vLLM refuses then."""
    require_vllm()
    monkeypatch.setenv("VLLM_USE_RUST_FRONTEND", "1")
    server = VllmServer(tmp_path, **SETTINGS)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()
        if server.process.stdout is not None:
            server.process.stdout.close()
    assert_books_balance(server.config)


def test_where_rust_serves_the_engine_records_its_requests_and_nothing_else_is_opened(server: VllmServer) -> None:
    assert "there are no request records" in server.output
    assert server.post("/v1/completions", "rust", prompt="hi", **FIXED).status_code == 200
    (record,) = wait_until(lambda: engine_requests(server, "cmpl-rust"), "the engine's record")
    assert (record["gen_ai.usage.output_tokens"], record["engine.finish_reasons"]) == (6, ["length"])
    assert record["engine.e2e_s"] > 0.0
    with ask(server, "/v1/chat/completions", "rust-left", stream=True) as connection:
        read_until(connection, b'"delta"')
    (left,) = wait_until(lambda: engine_requests(server, "rust-left"), "the record of the one given up")
    assert left["engine.finish_reasons"] == ["abort"]
    (pid,) = server.processes("VLLM::EngineCore")
    assert {record["pid"], left["pid"]} == {pid}
    assert len(queue_files(server.config)) == 1
    wait_until(lambda: server.records("engine.stats"), "the engine's state")
    assert not server.records()
