"""Requests to a real vLLM: one record each, which says what its clients saw."""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from tests.integrations.vllm_server import BODIES, VllmServer, events, running, written
from tests.kit.support import wait_until
from tests.truth.events import CHUNKS, SSE, Stream
from tests.truth.reference import read
from tests.truth.table import Comparison

pytestmark = pytest.mark.vllm

CHAT = {"messages": [{"role": "user", "content": "tell me a story"}]}
TEXT = {"prompt": "tell me a story"}
EXACTLY = {"max_tokens": 6, "ignore_eos": True}
ROUTES: dict[str, tuple[dict[str, Any], str, str]] = {
    "/v1/completions": ({**TEXT, **EXACTLY}, "text_completion", "cmpl-{}"),
    "/v1/chat/completions": ({**CHAT, **EXACTLY}, "chat", "chatcmpl-{}"),
    "/v1/responses": ({"input": "tell me a story", "max_output_tokens": 6}, "chat", ""),
    "/v1/messages": ({**CHAT, "max_tokens": 6}, "chat", ""),
}
TOOL = {
    "type": "function",
    "function": {
        "name": "switch",
        "parameters": {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]},
    },
}


def name_of(request: pytest.FixtureRequest) -> str:
    return re.sub(r"\W+", "-", request.node.name)


def usage_of(answer: dict[str, Any]) -> tuple[int, int]:
    usage = answer["usage"]
    if "prompt_tokens" in usage:
        return usage["prompt_tokens"], usage["completion_tokens"]
    return usage["input_tokens"], usage["output_tokens"]


@pytest.mark.parametrize("path", ROUTES)
def test_an_answer_leaves_one_record_of_what_was_asked_and_used(
    vllm: VllmServer, path: str, request: pytest.FixtureRequest
) -> None:
    body, operation, engine_id = ROUTES[path]
    name = name_of(request)
    answer = vllm.post(path, name, **body)
    record = vllm.record(name)
    said = answer.json()
    assert (answer.status_code, record["http.response.status_code"], record["outcome"]) == (200, 200, "ok"), said
    assert (record["url.path"], record["http.route"]) == (path, path)
    assert (record["gen_ai.operation.name"], record["gen_ai.request.model"]) == (operation, "tiny")
    assert (record["gen_ai.request.max_tokens"], record["gen_ai.response.model"]) == (6, "tiny")
    assert record["gen_ai.response.id"] == said["id"]
    assert not engine_id or record["engine.request_id"] == said["id"] == engine_id.format(name)
    assert (record["gen_ai.usage.input_tokens"], record["gen_ai.usage.output_tokens"]) == usage_of(said)
    assert record["usage_source"] == "response"
    assert record["http.response.body.size"] == len(answer.content)
    assert "chunks" not in record


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("asked", [True, False], ids=["asked", "unasked"])
def test_a_stream_leaves_its_usage_whether_the_client_asks_for_it_or_not(
    vllm: VllmServer, path: str, request: pytest.FixtureRequest, asked: bool
) -> None:
    body, operation, engine_id = ROUTES[path]
    name = name_of(request)
    options = {"stream_options": {"include_usage": True}} if asked else {}
    answer = vllm.post(path, name, **body, **options, stream=True)
    record = vllm.record(name)
    said = events(answer)
    assert [event["usage"]["completion_tokens"] for event in said if event.get("usage")] == ([6] if asked else [])
    assert (record["outcome"], record["gen_ai.operation.name"]) == ("ok", operation)
    assert record["gen_ai.request.stream"] is True
    assert record["gen_ai.response.id"] == record["engine.request_id"] == said[0]["id"] == engine_id.format(name)
    assert record["gen_ai.usage.output_tokens"] == 6
    assert record["usage_source"] == ("response" if asked else "engine")
    assert record["gen_ai.response.finish_reasons"] == ["length"]
    assert record["chunks"] == len(written(said)) >= 1, "each event with text is a chunk"
    assert record["gen_ai.response.time_per_output_token"] > 0
    assert record["gen_ai.response.time_to_first_chunk"] > 0
    assert len(record["chunk_gaps_us"]) == record["chunks"] - 1
    assert record["http.response.body.size"] == len(answer.content)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_the_streams_of_other_protocols_are_recorded(
    vllm: VllmServer, path: str, request: pytest.FixtureRequest
) -> None:
    body, operation, _ = ROUTES[path]
    name = name_of(request)
    answer = vllm.post(path, name, **body, stream=True)
    record = vllm.record(name)
    said = events(answer)
    first, last = said[0].get("response") or said[0].get("message"), said[-1].get("response") or said[-2]
    assert first is not None
    assert (record["outcome"], record["gen_ai.operation.name"]) == ("ok", operation)
    assert record["gen_ai.response.id"] == first["id"]
    assert record["engine.request_id"].endswith(name if path == "/v1/messages" else first["id"])
    assert record["gen_ai.usage.output_tokens"] == last["usage"]["output_tokens"]
    assert record["chunks"] >= 2
    assert record["http.response.body.size"] == len(answer.content)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_several_prompts_and_choices_are_one_request(
    vllm: VllmServer, request: pytest.FixtureRequest, stream: bool
) -> None:
    name = name_of(request)
    body = {"prompt": ["hello", "world"], "n": 3, "stream": stream}
    vllm.post("/v1/completions", name, **body, **EXACTLY)
    record = vllm.record(name)
    assert (record["gen_ai.request.choice.count"], record["outcome"]) == (3, "ok")
    assert record["gen_ai.usage.output_tokens"] == 6 * 6
    # Of a stream those are reported that are in its last bytes.
    assert set(record["gen_ai.response.finish_reasons"]) == {"length"}
    assert stream or len(record["gen_ai.response.finish_reasons"]) == 6


def test_several_choices_of_a_chat_are_one_request(vllm: VllmServer, request: pytest.FixtureRequest) -> None:
    answer = vllm.post("/v1/chat/completions", name_of(request), **CHAT, **EXACTLY, n=2)
    record = vllm.record(name_of(request))
    assert record["gen_ai.response.finish_reasons"] == ["length"] * 2
    assert record["gen_ai.usage.output_tokens"] == answer.json()["usage"]["completion_tokens"] == 12


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_tool_call_is_reported_by_its_finish_reason(
    vllm: VllmServer, request: pytest.FixtureRequest, stream: bool
) -> None:
    body = {**CHAT, "tools": [TOOL], "tool_choice": "required", "max_tokens": 400, "stream": stream}
    record: dict[str, Any] = {}
    # A model that knows nothing may go on until max_tokens, with a whole call or in the middle of the first.
    for attempt in range(20):
        name = f"{name_of(request)}-{attempt}"
        answer = vllm.post("/v1/chat/completions", name, **body)
        record = vllm.record(name)
        if '"finish_reason":"tool_calls"' in answer.text:
            assert '"name":"switch"' in answer.text
            break
        assert record["gen_ai.response.finish_reasons"] == ["length"]
    assert record["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert record["outcome"] == "ok"


def test_another_name_of_the_model_is_recorded_as_it_was_asked_for(
    vllm: VllmServer, request: pytest.FixtureRequest
) -> None:
    vllm.post("/v1/completions", name_of(request), **TEXT, **EXACTLY, model="alias")
    assert vllm.record(name_of(request))["gen_ai.request.model"] == "alias"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": "hello"}),
        ("/detokenize", {"tokens": [100, 101]}),
        ("/v1/messages/count_tokens", CHAT),
        ("/v1/chat/completions/render", CHAT),
    ],
)
def test_routes_that_generate_nothing_are_recorded_without_usage(
    vllm: VllmServer, request: pytest.FixtureRequest, path: str, body: dict[str, Any]
) -> None:
    answer = vllm.post(path, name_of(request), **body)
    record = vllm.record(name_of(request))
    assert (answer.status_code, record["outcome"], record["http.route"]) == (200, "ok", path)
    assert record["gen_ai.request.model"] == "tiny"
    assert "gen_ai.usage.output_tokens" not in record


def test_the_token_route_is_recorded(vllm: VllmServer, request: pytest.FixtureRequest) -> None:
    sampling = {"max_tokens": 5, "ignore_eos": True}
    body = {"token_ids": [100, 101, 102], "sampling_params": sampling, "request_id": name_of(request)}
    answer = vllm.post("/inference/v1/generate", name_of(request), **body)
    record = vllm.record(name_of(request))
    assert (answer.status_code, record["outcome"]) == (200, "ok"), answer.text
    assert record["http.route"] == "/inference/v1/generate"
    assert (record["gen_ai.usage.input_tokens"], record["gen_ai.usage.output_tokens"]) == (3, 5)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/completions", {**TEXT, "max_tokens": -1}, 400),
        ("/v1/completions", {"max_tokens": 3}, 400),
        ("/v1/chat/completions", {**CHAT, "max_tokens": 50_000}, 400),
        ("/v1/completions", {**TEXT, "model": "nobody"}, 404),
        ("/v1/nothing", TEXT, 404),
    ],
)
def test_a_refused_request_is_recorded_with_its_status(
    vllm: VllmServer, request: pytest.FixtureRequest, path: str, body: dict[str, Any], status: int
) -> None:
    answer = vllm.post(path, name_of(request), **body)
    record = vllm.record(name_of(request))
    assert (answer.status_code, record["http.response.status_code"]) == (status, status), answer.text
    assert "gen_ai.usage.output_tokens" not in record
    # What no route takes is not read either.
    known = path if path != "/v1/nothing" else None
    assert (record.get("http.route"), record.get("gen_ai.request.model")) == (
        known,
        known and body.get("model", "tiny"),
    )


def test_the_asynchronous_openai_client_gets_what_it_asks_for(vllm: VllmServer, request: pytest.FixtureRequest) -> None:
    async def talk(name: str) -> int:
        async with AsyncOpenAI(base_url=f"{vllm.url}/v1", api_key="none", max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="tiny",
                messages=[{"role": "user", "content": "hi"}],
                max_tokens=5,
                stream=True,
                extra_headers={"x-request-id": name},
                extra_body={"ignore_eos": True},
            )
            return len(written([chunk.model_dump() async for chunk in stream]))

    async def talk_all(names: list[str]) -> list[int]:
        return await asyncio.gather(*(talk(name) for name in names))

    names = [f"{name_of(request)}-{number}" for number in range(8)]
    counts = asyncio.run(talk_all(names))
    assert [vllm.record(name)["chunks"] for name in names] == counts


def test_health_is_vllms_own_and_not_recorded(vllm: VllmServer) -> None:
    answer = httpx.get(f"{vllm.url}/health", timeout=120)
    assert (answer.status_code, answer.content) == (200, b"")
    vllm.post("/tokenize", "after-health", prompt="hello")
    vllm.record("after-health")
    assert not [record for record in vllm.records() if record["url.path"] in ("/health", "/metrics")]


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
        # A complete answer of Responses has none.
        facts["gen_ai.response.finish_reasons"] = [why for event in documents for why in reasons(event)] or None
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
        answers = (ask(vllm, path, "plain", leave_after) for _ in range(20))
        # The model may end of itself before, since Messages and Responses know no ignore_eos.
        answer = next(answer for answer in answers if answer.chunks(len(answer.body)) >= leave_after)
        record = vllm.record(answer.name)
        comparison.record(answer, {"outcome": "client_disconnect"}, record, ("outcome",))
        least, recorded = answer.chunks(len(answer.body)), record["chunks"]
        comparison.holds(answer, "chunks", f"from {least}", recorded, recorded >= least)
        # Without the engine's records only the end of an answer says how many tokens it has.
        tokens = record.get("gen_ai.usage.output_tokens")
        comparison.holds(answer, "gen_ai.usage.output_tokens", "absent", tokens, tokens is None)
    wait_until(lambda: running(vllm) == 0, "the engine to give them up")
    comparison.conclude()
