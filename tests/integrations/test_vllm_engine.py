"""A real vLLM with `engine_records`: the engine's numbers in each request's record, or in one of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.books import assert_books_balance
from tests.integrations.test_vllm_clients_leave import LONG, ask, read_until, running
from tests.integrations.vllm_server import SLOW_LONG_ANSWERS, VllmServer, serving
from tests.support import wait_until

pytestmark = pytest.mark.vllm

SETTINGS: dict[str, Any] = {"engine_records": "on", "engine_stats_interval_s": 0.3}
FIXED: dict[str, Any] = {"max_tokens": 6, "ignore_eos": True}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """Serve with engine records, which need none of vLLM's own statistics."""
    with serving(tmp_path_factory.mktemp("vllm"), "--disable-log-stats", *SLOW_LONG_ANSWERS, **SETTINGS) as server:
        yield server
    assert_books_balance(server.config)


def engine_requests(server: VllmServer, name: str) -> list[dict[str, Any]]:
    """Return the records of engine requests of their own whose id has ``name`` in it."""
    return [record for record in server.records("engine.request") if name in record["engine.request_id"]]


@pytest.mark.parametrize(
    ("path", "body", "requests", "tokens"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}, 1, 6),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "n": 3}, 3, 18),
        ("/v1/completions", {"prompt": "hi"}, 1, 6),
        ("/v1/completions", {"prompt": ["hi", "hello world"], "n": 2}, 4, 24),
    ],
    ids=["chat", "chat-3-choices", "completion", "completions-2-prompts-2-choices"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_requests_record_has_the_numbers_of_all_its_engine_requests(
    engine: VllmServer, path: str, body: dict[str, Any], requests: int, tokens: int, stream: bool
) -> None:
    name = f"numbers-{requests}-{tokens}-{stream}{path.replace('/', '-')}"
    assert engine.post(path, name, stream=stream, **FIXED, **body).status_code == 200
    record = engine.record(name)
    assert record["engine.requests"] == requests
    assert record["engine.finish_reasons"] == ["length"] * requests
    assert record["gen_ai.usage.output_tokens"] == tokens
    assert record["usage_source"] == ("engine" if stream else "response")
    assert record["engine.queued_s"] + record["engine.prefill_s"] + record["engine.decode_s"] > 0
    assert record["engine.e2e_s"] <= record["duration_s"] + 0.1
    assert not engine_requests(engine, name)


def test_a_prompt_that_was_seen_before_is_read_from_the_cache(engine: VllmServer) -> None:
    prompt = "the quick brown fox jumps over the lazy dog " * 20
    for name in ("cache-1", "cache-2"):
        assert engine.post("/v1/completions", name, prompt=prompt, **FIXED).status_code == 200
    found = [engine.record(name)["gen_ai.usage.cache_read.input_tokens"] for name in ("cache-1", "cache-2")]
    assert found[0] == 0
    assert found[1] > 0


def test_a_stream_that_its_client_leaves_has_its_tokens_so_far(engine: VllmServer) -> None:
    with ask(engine, "/v1/chat/completions", "left-stream", stream=True) as connection:
        read_until(connection, b'"finish_reason":null')
    record = engine.record("left-stream")
    assert (record["outcome"], record["engine.finish_reasons"]) == ("client_disconnect", ["abort"])
    assert 1 <= record["gen_ai.usage.output_tokens"] < LONG
    assert not engine_requests(engine, "left-stream")


def test_an_answer_that_its_client_does_not_wait_for_has_its_numbers_beside_it(engine: VllmServer) -> None:
    with ask(engine, "/v1/completions", "left-whole", stream=False):
        wait_until(lambda: running(engine) == 1, "the engine to work on it")
    record = engine.record("left-whole")
    (beside,) = wait_until(lambda: engine_requests(engine, "left-whole"), "the engine's record of it")
    assert (beside["request_id"], beside["trace_id"]) == (record["request_id"], record["trace_id"])
    assert beside["engine.request_id"] == f"{record['engine.request_id']}-0"
    assert beside["engine.finish_reasons"] == ["abort"]
    assert beside["gen_ai.usage.output_tokens"] < LONG


def test_a_stop_text_is_a_stop(engine: VllmServer) -> None:
    letters = list("aeiou nst")
    answer = engine.post("/v1/completions", "stop", prompt="hi", max_tokens=200, ignore_eos=True, stop=letters[:4])
    assert engine.record("stop")["engine.finish_reasons"] == [answer.json()["choices"][0]["finish_reason"]]


def test_the_engines_state_is_recorded_while_it_works_and_ends_with_nothing_running(engine: VllmServer) -> None:
    # More tokens than the engine may still have to report of the tests before.
    tokens = 600
    before = len(engine.records("engine.stats"))
    answer = engine.post("/v1/completions", "state", prompt="hello", max_tokens=tokens, ignore_eos=True)
    assert answer.status_code == 200

    def states() -> list[dict[str, Any]]:
        return engine.records("engine.stats")[before:]

    wait_until(lambda: sum(state["engine.generation_tokens"] for state in states()) >= tokens, "all of its tokens")
    wait_until(lambda: states()[-1]["engine.running"] == 0, "the record of an engine at rest")
    assert sum(state["engine.finished"] for state in states()) >= 1
