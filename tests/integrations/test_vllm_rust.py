"""A real vLLM whose HTTP is served by Rust, without a Python application: the engine records, and so does a proxy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.integrations.test_vllm_engine import FIXED, SETTINGS, engine_requests
from tests.integrations.vllm_server import (
    LONG,
    SLOW_LONG_ANSWERS,
    WRITTEN,
    VllmServer,
    ask,
    events,
    read_until,
    serving_without,
    written,
)
from tests.kit.books import assert_books_balance
from tests.kit.proxies import Proxy
from tests.kit.sidecars import queue_files
from tests.kit.support import wait_until

pytestmark = pytest.mark.vllm


InFront = Callable[[int], Proxy]
CHAT = "/v1/chat/completions"
# Greedy, and yet not the same token again and again.
GREEDY: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "tell me a story"}],
    "stream": True,
    "temperature": 0,
    "frequency_penalty": 2.0,
    "max_tokens": 24,
    "ignore_eos": True,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """Serve without the middleware, which vLLM refuses then."""
    rust = {"VLLM_USE_RUST_FRONTEND": "1"}
    with serving_without(tmp_path_factory.mktemp("vllm"), *SLOW_LONG_ANSWERS, environment=rust, **SETTINGS) as server:
        yield server
    assert_books_balance(server.config)


def test_where_rust_serves_the_engine_records_its_requests_and_nothing_else_is_opened(server: VllmServer) -> None:
    assert "there are no request records" in server.output
    assert server.post("/v1/completions", "rust", prompt="hi", **FIXED).status_code == 200
    (record,) = wait_until(lambda: engine_requests(server, "cmpl-rust"), "the engine's record")
    assert (record["gen_ai.usage.output_tokens"], record["engine.finish_reasons"]) == (6, ["length"])
    assert record["engine.e2e_s"] > 0.0
    with ask(server, "/v1/chat/completions", "rust-left", stream=True) as connection:
        read_until(connection, WRITTEN)
    (left,) = wait_until(lambda: engine_requests(server, "rust-left"), "the record of the one given up")
    assert left["engine.finish_reasons"] == ["abort"]
    (pid,) = server.processes("VLLM::EngineCore")
    assert {record["pid"], left["pid"]} == {pid}
    assert len(queue_files(server.config)) == 1
    wait_until(lambda: server.records("engine.stats"), "the engine's state")
    assert not server.records()


def text_of(answer: httpx.Response) -> str:
    """Return what the model has written."""
    assert answer.status_code == 200, answer.text
    assert answer.text.endswith("data: [DONE]\n\n")
    return "".join(written(events(answer)))


@pytest.mark.parametrize("front_end", ["rust", "python"])
def test_a_stream_through_the_proxy_is_the_same_and_on_record(
    request: pytest.FixtureRequest, in_front: InFront, front_end: str
) -> None:
    behind: VllmServer = request.getfixturevalue("server" if front_end == "rust" else "vllm")
    proxy = in_front(behind.port)
    body = {**GREEDY, "stream_options": {"include_usage": True}}
    direct, passed = (httpx.post(f"{url}{CHAT}", json=body, timeout=180) for url in (behind.url, proxy.url))
    text = text_of(direct)
    assert len(set(text.split())) > 1, text
    assert text_of(passed) == text
    record = proxy.record()
    assert (record["outcome"], record["http.response.status_code"]) == ("ok", 200)
    assert (record["gen_ai.request.model"], record["gen_ai.response.model"]) == ("tiny", "tiny")
    assert record["http.response.body.size"] == len(passed.content)
    assert record["chunks"] == len(written(events(passed)))
    assert 0 < record["gen_ai.response.time_to_first_chunk"] <= record["duration_s"]
    usage = events(passed)[-1]["usage"]
    assert (usage["completion_tokens"], record["gen_ai.usage.output_tokens"]) == (24, 24)
    assert record["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert (record["usage_source"], record["gen_ai.response.finish_reasons"]) == ("response", ["length"])


def test_an_answer_in_one_piece_through_the_proxy_has_its_tokens(server: VllmServer, in_front: InFront) -> None:
    proxy = in_front(server.port)
    answer = httpx.post(f"{proxy.url}{CHAT}", json={**GREEDY, "stream": False}, timeout=180)
    assert answer.json()["usage"]["completion_tokens"] == 24
    record = proxy.record()
    assert (record["outcome"], record["gen_ai.usage.output_tokens"]) == ("ok", 24)
    assert "chunks" not in record


def test_a_client_of_the_proxy_that_leaves_is_on_record_and_the_engine_gives_up(
    server: VllmServer, in_front: InFront
) -> None:
    proxy = in_front(server.port)
    name = server.names.take("left-the-proxy")
    body, headers = {**GREEDY, "max_tokens": LONG}, {"x-request-id": name}
    with httpx.stream("POST", f"{proxy.url}{CHAT}", json=body, headers=headers, timeout=180) as answer:
        assert next(line for line in answer.iter_lines() if re.search(WRITTEN, line.encode()))
    record = proxy.record()
    assert (record["outcome"], record["client_request_id"]) == ("client_disconnect", name)
    assert 1 <= record["chunks"] < LONG
    (given_up,) = wait_until(lambda: engine_requests(server, name), "the engine's record")
    assert given_up["engine.finish_reasons"] == ["abort"]
    assert given_up["gen_ai.usage.output_tokens"] < LONG
