"""A real vLLM with our package installed: asked for nothing it opens nothing, and answers are the same with us.

Its own log of requests is on, which changes no answer: what docs/comparison.md says of it is tried here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integrations.vllm_server import WRITING, WRITTEN, VllmServer, ask, events, read_until, serving_without
from tests.kit.shown import comparison_row
from tests.kit.support import wait_until

pytestmark = pytest.mark.vllm

CHAT = {"messages": [{"role": "user", "content": "tell me a story"}]}
OWN_LOG = ("--enable-log-requests", "--enable-log-outputs")
# The same words from both.
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "hello", "max_tokens": 8, "temperature": 0, "ignore_eos": True},
    "/v1/chat/completions": {**CHAT, "max_tokens": 8, "temperature": 0, "ignore_eos": True},
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """Serve without the middleware."""
    with serving_without(tmp_path_factory.mktemp("bare"), *WRITING, *OWN_LOG) as server:
        yield server
        assert not server.config.resolved_queue_directory.exists()
        assert not server.config.directory.exists()
        assert "inference_logging" not in server.output.replace("INFERENCE_LOGGING_", "")


def without_time(text: str) -> str:
    """Leave out what is another at another time and of another process."""
    return re.sub(r'"(created|system_fingerprint)":[^,]*', r'"\1":0', text)


def headers_of(answer: httpx.Response) -> list[tuple[str, str]]:
    return [(name, value) for name, value in answer.headers.multi_items() if name != "date"]


@pytest.mark.parametrize("path", BODIES)
def test_an_answer_is_byte_for_byte_what_it_is_without_us(vllm: VllmServer, bare: VllmServer, path: str) -> None:
    with_us, without = (server.post(path, f"same{path.replace('/', '-')}", **BODIES[path]) for server in (vllm, bare))
    assert without_time(with_us.text) == without_time(without.text)
    assert headers_of(with_us) == headers_of(without)


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_has_the_words_and_the_form_that_it_has_without_us(
    vllm: VllmServer, bare: VllmServer, path: str
) -> None:
    name = f"same-stream{path.replace('/', '-')}"
    with_us, without = (server.post(path, name, **BODIES[path], stream=True) for server in (vllm, bare))
    assert said(with_us) == said(without)
    assert headers_of(with_us) == headers_of(without)
    assert with_us.text.endswith("data: [DONE]\n\n")
    assert '"usage"' not in with_us.text


def test_a_refusal_is_byte_for_byte_what_it_is_without_us(vllm: VllmServer, bare: VllmServer) -> None:
    answers = [server.post("/v1/completions", "same-no", prompt="hello", model="nobody") for server in (vllm, bare)]
    assert answers[0].content == answers[1].content
    assert headers_of(answers[0]) == headers_of(answers[1])


def test_its_own_log_has_arguments_and_outputs_while_it_serves(bare: VllmServer) -> None:
    record, kept, full, where = comparison_row("vLLM's own log")
    assert record == "arguments, outputs and aborts, with flags; no times"
    assert (kept, full, where) == ("what was written stays", "it has no queue", "in the call")
    answer = bare.post("/v1/chat/completions", "own-log", **BODIES["/v1/chat/completions"]).json()
    wait_until(lambda: f"Generated response {answer['id']}" in bare.output, "its line about the answer")
    of_it = [line for line in bare.output.splitlines() if answer["id"] in line]
    (received,) = (line for line in of_it if "Received request" in line)
    (generated,) = (line for line in of_it if "Generated response" in line)
    assert "max_tokens=8" in received
    assert repr(answer["choices"][0]["message"]["content"]) in generated
    assert CHAT["messages"][0]["content"] not in bare.output
    assert not re.search("duration|time|second", received + generated.partition("output: ")[0])


def test_its_own_log_has_a_stream_that_its_client_left(bare: VllmServer) -> None:
    with ask(bare, "/v1/completions", "own-left", stream=True) as connection:
        read_until(connection, WRITTEN)
    wait_until(lambda: re.search(r"Request cmpl-own-left\S* aborted", bare.output), "its line about the abort")


def said(answer: httpx.Response) -> tuple[str, set[str]]:
    """Return the text of a stream and the forms of its events; how many tokens an event has is a matter of time."""
    choices = [choice for event in events(answer) for choice in event["choices"]]
    text = "".join(choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices)
    return text, {json.dumps(sorted(event)) for event in events(answer)}
