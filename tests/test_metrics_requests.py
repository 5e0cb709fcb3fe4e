"""Counters over all requests, by outcome, and over their tokens: what the segments say, weighted."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from inference_logging.triton import usage
from tests.fake_triton import ok, request
from tests.support import Recorded, answer, body_messages, http_scope, replying
from tests.test_metrics import JSON, collect

REQUESTS = "inference_logging_requests"
TOKENS = "inference_logging_tokens"
TOKEN_LABELS = ("gen_ai_token_type", "gen_ai_operation_name", "gen_ai_request_model")


def shown(recorded: Recorded, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a counter by their labels, which are these and no others."""
    samples = collect(recorded)[name].samples
    assert all(sample.name == f"{name}_total" and set(sample.labels) == set(labels) for sample in samples)
    found = {tuple(sample.labels[label] for label in labels): sample.value for sample in samples}
    assert len(found) == len(samples), "labels that stand twice"
    return found


def sums(counted: Iterable[tuple[tuple[str, ...], float]]) -> dict[tuple[str, ...], float]:
    """Add up what has the same labels."""
    by_labels: dict[tuple[str, ...], float] = defaultdict(float)
    for labels, count in counted:
        by_labels[labels] += count
    return dict(by_labels)


def ask(recorded: Recorded, path: str, content: dict[str, Any], status: int, trace: int) -> None:
    """Let the application answer with this content."""
    headers = [JSON, (b"traceparent", b"00-%032x-00f067aa0ba902b7-01" % trace)]
    recorded.serve(
        replying(*answer(json.dumps(content).encode(), status=status, content_type=b"application/json")),
        http_scope(path, "POST", headers),
        body_messages(b'{"model": "asked"}'),
    )


def test_every_outcome_is_there_from_the_start_and_nothing_else(recorded: Recorded) -> None:
    outcomes = ("ok", "error", "client_disconnect", "timeout", "server_shutdown", "process_died", "aborted")
    assert shown(recorded, REQUESTS, "outcome") == {(outcome,): 0.0 for outcome in outcomes}
    assert shown(recorded, TOKENS, *TOKEN_LABELS) == {}


def test_requests_and_tokens_are_what_the_segments_say_weighted(recording: Callable[..., Recorded]) -> None:
    recorded = recording(sample_ratio=0.4)
    for number in range(120):
        path = ("/v1/chat/completions", "/v1/embeddings", "/items")[number % 3]
        reported = {"prompt_tokens": number, "completion_tokens": 2 * number} if number % 4 else {}
        content = {"model": f"m-{number % 2}", "usage": reported}
        # A model is known by its first successful answer, so the failures come later.
        status = (200, 503, 504)[number % 7 % 3] if number > 30 else 200
        ask(recorded, path, content, status, number * 0x9E3779B97F4A7C15 % (1 << 127) + 1)
    records = recorded.records("request")
    assert 10 < len(records) < 120
    assert {record["adjusted_count"] for record in records} > {1.0}
    by_outcome = sums(((record["outcome"],), record["adjusted_count"]) for record in records)
    assert len(by_outcome) == 3
    assert {labels: count for labels, count in shown(recorded, REQUESTS, "outcome").items() if count} == pytest.approx(
        by_outcome
    )
    by_labels = sums(
        ((kind, operation, record["gen_ai.response.model"]), tokens * record["adjusted_count"])
        for record in records
        for operation in [record.get("gen_ai.operation.name", "_OTHER")]
        for kind in ("input", "output")
        if (tokens := record.get(f"gen_ai.usage.{kind}_tokens"))
    )
    assert {operation for _, operation, _ in by_labels} == {"chat", "embeddings", "_OTHER"}
    assert shown(recorded, TOKENS, *TOKEN_LABELS) == pytest.approx(by_labels)


@pytest.mark.usefixtures("fake_backend")
def test_requests_and_tokens_of_a_model_of_triton_are_counted(serve: Callable[..., tuple[Any, Recorded]]) -> None:
    def execute(self: Any, requests: list[Any]) -> Any:
        usage(requests[0], input_tokens=3, output_tokens=5)
        return [ok() for _ in requests]

    model, recorded = serve(execute)
    model.execute([request(), request()])
    model.execute([request()])
    assert shown(recorded, REQUESTS, "outcome")["ok",] == 3
    expected = {("input", "_OTHER", "m"): 6, ("output", "_OTHER", "m"): 10}
    assert shown(recorded, TOKENS, *TOKEN_LABELS) == expected
