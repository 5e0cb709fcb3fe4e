"""A real vLLM with our package installed: asked for nothing it opens nothing, and answers are the same with us."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integrations.vllm_server import WRITING, VllmServer, events, serving_without

pytestmark = pytest.mark.vllm

CHAT = {"messages": [{"role": "user", "content": "tell me a story"}]}
# The same words from both.
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "hello", "max_tokens": 8, "temperature": 0, "ignore_eos": True},
    "/v1/chat/completions": {**CHAT, "max_tokens": 8, "temperature": 0, "ignore_eos": True},
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """Serve without the middleware."""
    with serving_without(tmp_path_factory.mktemp("bare"), *WRITING) as server:
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


def said(answer: httpx.Response) -> tuple[str, set[str]]:
    """Return the text of a stream and the forms of its events; how many tokens an event has is a matter of time."""
    choices = [choice for event in events(answer) for choice in event["choices"]]
    text = "".join(choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices)
    return text, {json.dumps(sorted(event)) for event in events(answer)}
