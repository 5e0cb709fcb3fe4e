"""A real vLLM that embeds, scores and ranks: recorded as its other routes are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.books import assert_books_balance
from tests.integrations.vllm_server import VllmServer, serving

pytestmark = pytest.mark.vllm

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
