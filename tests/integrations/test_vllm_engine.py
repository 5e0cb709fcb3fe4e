"""Requests to a real vLLM as its engine has them: answers, clients that leave, and what is aborted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integrations.vllm_server import (
    BODIES,
    LONG,
    SLOW_LONG_ANSWERS,
    WRITTEN,
    VllmServer,
    ask,
    read_until,
    running,
    serving,
)
from tests.kit.books import assert_books_balance
from tests.kit.command_line import run
from tests.kit.support import wait_until

pytestmark = pytest.mark.vllm


def leave(server: VllmServer, path: str, name: str, *, stream: bool) -> dict[str, Any]:
    """Ask and leave before the answer is whole; return the record of that."""
    with ask(server, path, name, stream=stream) as connection:
        if stream:
            read_until(connection, WRITTEN)
        else:
            wait_until(lambda: running(server) == 1, "the engine to work on it")
    return server.record(name)


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_that_its_client_leaves_is_recorded_with_what_it_got(vllm: VllmServer, path: str) -> None:
    record = leave(vllm, path, f"left-stream{path.replace('/', '-')}", stream=True)
    assert (record["outcome"], record["http.response.status_code"]) == ("client_disconnect", 200)
    assert 1 <= record["chunks"] < LONG
    wait_until(lambda: running(vllm) == 0, "the engine to give it up")


@pytest.mark.parametrize("path", BODIES)
def test_an_answer_that_its_client_does_not_wait_for_is_no_success(vllm: VllmServer, path: str) -> None:
    record = leave(vllm, path, f"left-whole{path.replace('/', '-')}", stream=False)
    assert record["outcome"] == "client_disconnect"
    assert "chunks" not in record
    wait_until(lambda: running(vllm) == 0, "the engine to give it up")


def test_of_clients_that_leave_at_once_each_has_a_record(vllm: VllmServer) -> None:
    names = [f"left-at-once-{number}" for number in range(8)]
    for name in names:
        ask(vllm, "/v1/chat/completions", name, stream=name.endswith(("0", "2", "4", "6"))).close()
    outcomes = [vllm.record(name)["outcome"] for name in names]
    assert set(outcomes) <= {"client_disconnect", "ok"}, outcomes


SETTINGS: dict[str, Any] = {"engine_records": "on", "engine_stats_interval_s": 0.3}
FIXED: dict[str, Any] = {"max_tokens": 6, "ignore_eos": True}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """Serve with engine records, which need none of vLLM's own statistics."""
    flags = ("--disable-log-stats", "--enable-scale-out", *SLOW_LONG_ANSWERS)
    # With the routes that pause and abort.
    development = {"VLLM_SERVER_DEV_MODE": "1"}
    with serving(tmp_path_factory.mktemp("vllm"), *flags, environment=development, **SETTINGS) as server:
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


# The begin of a stream of Messages says that it has no tokens, which is no usage.
@pytest.mark.parametrize("path", sorted(BODIES))
def test_a_stream_that_its_client_leaves_has_its_tokens_so_far(engine: VllmServer, path: str) -> None:
    name = f"left-stream{path.replace('/', '-')}"
    with ask(engine, path, name, stream=True) as connection:
        read_until(connection, WRITTEN)
    record = engine.record(name)
    assert (record["outcome"], record["engine.finish_reasons"]) == ("client_disconnect", ["abort"])
    assert (record["usage_source"], record["engine.requests"]) == ("engine", 1)
    assert 1 <= record["gen_ai.usage.output_tokens"] < LONG
    assert not [one for one in engine.records("engine.request") if one.get("request_id") == record["request_id"]]


def test_an_answer_that_its_client_does_not_wait_for_has_its_numbers_up_to_then(engine: VllmServer) -> None:
    with ask(engine, "/v1/completions", "left-whole", stream=False):
        wait_until(lambda: running(engine) == 1, "the engine to work on it")
    record = engine.record("left-whole")
    assert (record["outcome"], record["engine.requests"]) == ("client_disconnect", 1)
    assert (record["gen_ai.usage.input_tokens"], record["usage_source"]) == (5, "engine")
    assert record["gen_ai.usage.output_tokens"] < LONG
    wait_until(lambda: running(engine) == 0, "the engine to give it up")
    assert not engine_requests(engine, "left-whole")


@pytest.mark.parametrize(
    ("path", "body", "requests", "tokens"),
    [
        # The prompt, and then two beams for each further token.
        ("/v1/completions", {"prompt": "hi", "use_beam_search": True, "n": 2, "max_tokens": 3}, 5, 6),
        ("/v1/chat/completions/batch", {"messages": [[{"role": "user", "content": "hi"}]] * 3, **FIXED}, 3, 18),
        ("/generative_scoring", {"query": "is it?", "items": ["yes", "no"], "label_token_ids": [9, 10]}, 2, 2),
    ],
    ids=["beams", "batch", "scores"],
)
def test_requests_that_vllm_gives_names_of_its_own_are_joined(
    engine: VllmServer, path: str, body: dict[str, Any], requests: int, tokens: int
) -> None:
    name = f"joined{path.replace('/', '-')}"
    answer = engine.post(path, name, **body)
    assert answer.status_code == 200, answer.text
    record, usage = engine.record(name), answer.json()["usage"]
    assert record["engine.requests"] == requests
    assert (record["gen_ai.usage.input_tokens"], record["gen_ai.usage.output_tokens"]) == (
        usage["prompt_tokens"],
        usage["completion_tokens"],
    )
    assert usage["completion_tokens"] == tokens
    assert record.get("gen_ai.usage.cache_read.input_tokens", 0) <= usage["prompt_tokens"]
    assert not [one for one in engine.records("engine.request") if one.get("request_id") == record["request_id"]]


def test_a_retry_with_the_id_of_a_refused_request_has_its_own_numbers(engine: VllmServer) -> None:
    assert engine.post("/v1/completions", "retry", prompt="hi", logprobs=1000, **FIXED).status_code == 400
    assert "engine.requests" not in engine.record("retry")
    assert engine.post("/v1/completions", "retry", prompt="hi", **FIXED).status_code == 200
    record = engine.record("retry")
    assert (record["engine.requests"], record["engine.finish_reasons"]) == (1, ["length"])
    assert not engine_requests(engine, "retry")


@pytest.mark.parametrize("other", ["same-at-once", "at-once-0"])
def test_requests_whose_ids_are_alike_have_each_its_own_numbers(engine: VllmServer, other: str) -> None:
    name = other.removesuffix("-0")
    with ask(engine, "/v1/completions", other, stream=True) as connection:
        read_until(connection, WRITTEN)
        assert engine.post("/v1/completions", name, prompt="hi", **FIXED).status_code == 200

    def ended() -> list[dict[str, Any]] | None:
        found = [record for record in engine.records() if record.get("client_request_id") in {name, other}]
        return found if len(found) == 2 else None

    short, left = wait_until(ended, "the records of both")
    assert (short["engine.requests"], short["engine.finish_reasons"]) == (1, ["length"])
    assert (left["engine.requests"], left["engine.finish_reasons"]) == (1, ["abort"])
    assert (short["gen_ai.usage.input_tokens"], left["gen_ai.usage.input_tokens"]) == (2, 5)
    assert not engine_requests(engine, name)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("by", ["/inference/v1/abort_requests", "/abort_requests", "/pause"])
def test_a_request_that_an_operator_has_the_engine_give_up_is_aborted(
    engine: VllmServer, by: str, stream: bool
) -> None:
    name = f"aborted-{stream}{by.replace('/', '-')}"
    wait_until(lambda: running(engine) == 0, "the engine to have given up the one before")
    with ask(engine, "/v1/completions", name, stream=stream) as connection:
        wait_until(lambda: running(engine) == 1, "the engine to work on it")
        if by == "/pause":
            assert engine.client.post(by, params={"mode": "abort"}).status_code == 200
            assert engine.client.post("/resume").status_code == 200
        else:
            names = [] if by == "/abort_requests" else [f"cmpl-{name}-0"]
            assert engine.client.post(by, json={"request_ids": names}).status_code == 200
        read_until(connection, b'"finish_reason":"abort"')
    record = engine.record(name)
    assert (record["outcome"], record["error.type"], record["severity_text"]) == ("aborted", "engine_abort", "WARN")
    assert record["engine.finish_reasons"] == ["abort"]
    assert 0 <= record["gen_ai.usage.output_tokens"] < LONG


def test_a_request_that_begins_while_recording_is_off_leaves_nothing(engine: VllmServer) -> None:
    def ctl(*words: str) -> None:
        assert run("ctl", "--queue-directory", str(engine.config.resolved_queue_directory), *words).code == 0

    ctl("disable", "--for", "10m")
    assert engine.post("/v1/completions", "off-whole", prompt="hi", **FIXED).status_code == 200
    with ask(engine, "/v1/completions", "off-left", stream=True) as connection:
        read_until(connection, WRITTEN)
        ctl("enable")
    wait_until(lambda: running(engine) == 0, "the engine to give it up")
    assert engine.post("/v1/completions", "on-again", prompt="hi", **FIXED).status_code == 200
    assert engine.record("on-again")["engine.requests"] == 1
    assert not engine_requests(engine, "off-")
    assert not [True for record in engine.records() if "off-" in record.get("client_request_id", "")]


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
