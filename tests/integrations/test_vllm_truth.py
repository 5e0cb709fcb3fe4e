"""A real vLLM: what its clients read, event by event, against what is recorded."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.integrations.test_vllm_engine import BODIES, running
from tests.integrations.test_vllm_requests import TOOL
from tests.integrations.vllm_server import VllmServer
from tests.support import wait_until
from tests.truth.events import CHUNKS, SSE, Stream
from tests.truth.reference import read
from tests.truth.table import Comparison

pytestmark = pytest.mark.vllm

CHAT = {"messages": [{"role": "user", "content": "tell me a story"}]}
TOKENS = 7
USAGE = {"stream_options": {"include_usage": True}}
COUNTED = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
SHAPES: dict[str, dict[str, dict[str, Any]]] = {
    "/v1/completions": {
        "plain": {},
        "usage": USAGE,
        "usage in each event": COUNTED,
        "logprobs": {"logprobs": 2},
        "three choices": {"n": 3, **USAGE},
        "echo": {"echo": True},
    },
    "/v1/chat/completions": {
        "plain": {},
        "usage": USAGE,
        "usage in each event": COUNTED,
        "logprobs": {"logprobs": True, "top_logprobs": 2},
        "three choices": {"n": 3, **USAGE},
        "tool call": {"tools": [TOOL], "tool_choice": "required", "max_tokens": 400, **USAGE},
    },
    "/v1/responses": {"plain": {}},
    "/v1/messages": {"plain": {}},
}
LIMITS: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "tell me a story", "max_tokens": TOKENS},
    "/v1/chat/completions": {**CHAT, "max_tokens": TOKENS},
    "/v1/responses": {"input": "tell me a story", "max_output_tokens": TOKENS},
    "/v1/messages": {**CHAT, "max_tokens": TOKENS},
}
FIELDS = (
    *("outcome", "http.response.body.size", "chunks", "stream.frames", "stream.keep_alives"),
    *("gen_ai.response.id", "gen_ai.response.model", "gen_ai.response.finish_reasons"),
    *("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"),
)
INPUT, OUTPUT = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")


@dataclass
class Answer:
    """A stream as its client has read it, by the client's own clock."""

    name: str
    stream: Stream
    ending: str
    cut: str = "as vLLM sends it"
    body: bytes = b""
    arrivals: list[tuple[float, int]] = field(default_factory=list)

    def documents(self) -> list[dict[str, Any]]:
        """Return the JSON of each event."""
        lines = [line.removeprefix("data: ") for line in self.body.decode().splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]

    def chunks(self, size: int) -> int:
        """Return how many events with text are in the first bytes."""
        return sum(kind in CHUNKS for kind in read(self.body[:size], SSE).order)

    def facts(self) -> dict[str, Any]:
        """Return what the record has to say."""
        documents = self.documents()
        answers = [event.get("response") or event.get("message") or event for event in documents]
        facts = {**read(self.body, SSE).facts(), "http.response.body.size": len(self.body)}
        facts["gen_ai.response.id"] = answers[0]["id"]
        facts["gen_ai.response.model"] = answers[0]["model"]
        facts["gen_ai.response.finish_reasons"] = [reason for event in documents for reason in reasons(event)]
        usages = [answer["usage"] for answer in answers if answer.get("usage")]
        for usage in usages:
            facts["gen_ai.usage.input_tokens"] = next(usage[name] for name in INPUT if name in usage)
            facts["gen_ai.usage.output_tokens"] = next(usage[name] for name in OUTPUT if name in usage)
        return facts


def reasons(event: dict[str, Any]) -> list[str]:
    """Return why choices end with this event."""
    if "choices" in event:
        return [choice["finish_reason"] for choice in event["choices"] if choice["finish_reason"]]
    if event["type"] == "message_delta":
        return [event["delta"]["stop_reason"]]
    details = event.get("response", {}).get("incomplete_details")
    return [details["reason"]] if details else []


def ask(server: VllmServer, path: str, shape: str, leave_after: int | None = None) -> Answer:
    """Read a stream to its end, or until some events with text are there."""
    ending = "whole" if leave_after is None else f"left after {leave_after}"
    name = server.names.take(re.sub(r"\W", "-", f"truth {path} {shape} {ending}"))
    answer = Answer(name, Stream(path, shape, path, ()), ending)
    limits = LIMITS if leave_after is None else BODIES
    body = {"model": "tiny", "stream": True, **limits[path], **SHAPES[path][shape]}
    began = time.monotonic()
    with server.client.stream("POST", path, json=body, headers={"x-request-id": name}) as response:
        assert response.status_code == 200, response.read()
        for part in response.iter_raw():
            answer.body += part
            answer.arrivals.append((time.monotonic() - began, len(answer.body)))
            if leave_after is not None and answer.chunks(len(answer.body)) >= leave_after:
                break
    return answer


@pytest.mark.parametrize("path", SHAPES)
def test_the_record_of_a_stream_is_what_its_client_read(
    vllm: VllmServer, path: str, request: pytest.FixtureRequest
) -> None:
    comparison = Comparison(request.node)
    for shape in SHAPES[path]:
        answer = ask(vllm, path, shape)
        record = vllm.record(answer.name)
        expected = answer.facts()
        written = {"gen_ai.usage.output_tokens": SHAPES[path][shape].get("n", 1) * TOKENS}
        without = () if "gen_ai.usage.output_tokens" in expected else ("gen_ai.usage.input_tokens",)
        fields = tuple(name for name in FIELDS if name not in without)
        comparison.record(answer, {**written, **expected}, record, fields)
        first = next(at for at, size in answer.arrivals if answer.chunks(size))
        times = [record[name] for name in ("time_to_first_byte_s", "gen_ai.response.time_to_first_chunk", "duration_s")]
        true = [0.0, answer.arrivals[0][0], first, answer.arrivals[-1][0]]
        ordered = 0 < times[0] <= true[1] and times[0] <= times[1] <= true[2] and times[1] <= times[2]
        comparison.holds(answer, "times", f"up to {true}", times, ordered)
    comparison.conclude()


@pytest.mark.parametrize("path", SHAPES)
def test_the_record_of_a_stream_that_was_left_has_what_its_client_read(
    vllm: VllmServer, path: str, request: pytest.FixtureRequest
) -> None:
    comparison = Comparison(request.node)
    for leave_after in (1, 3, 9):
        answer = ask(vllm, path, "plain", leave_after)
        record = vllm.record(answer.name)
        comparison.record(answer, {"outcome": "client_disconnect"}, record, ("outcome",))
        least, recorded = answer.chunks(len(answer.body)), record["chunks"]
        comparison.holds(answer, "chunks", f"from {least}", recorded, recorded >= least)
        # Without the engine's records only the end of an answer says how many tokens it has.
        tokens = record.get("gen_ai.usage.output_tokens")
        comparison.holds(answer, "gen_ai.usage.output_tokens", "absent", tokens, tokens is None)
    wait_until(lambda: running(vllm) == 0, "the engine to give them up")
    comparison.conclude()
