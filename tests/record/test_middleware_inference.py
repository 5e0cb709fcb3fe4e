"""Facts of the inference that the listener reads from captured bodies: model, limits, usage, finish reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kit.signatures import Recording
from tests.kit.support import Recorded, answer, body_messages, http_scope, replying

JSON_HEADERS = [(b"content-type", b"application/json; charset=utf-8")]
REQUEST = {"model": "llama-3", "messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 64}
USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 8},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
ABOUT = {"id": "chatcmpl-1", "model": "llama-3-8b"}
COMPLETION = {
    **ABOUT,
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    "usage": USAGE,
}
ABOUT_FACTS = {f"gen_ai.response.{name}": value for name, value in ABOUT.items()}
LAST = {**ABOUT, "choices": [], "usage": USAGE}
"""The last event of a stream."""
USAGE_FACTS = {
    "gen_ai.usage.input_tokens": 11,
    "gen_ai.usage.output_tokens": 7,
    "gen_ai.usage.cache_read.input_tokens": 8,
    "gen_ai.usage.reasoning.output_tokens": 3,
    "usage_source": "response",
}


def facts(recorded: Recorded) -> dict[str, Any]:
    """Return what the bodies say about the inference: all but its times and the operation."""
    record = recorded.request()
    assert record.pop("gen_ai.operation.name", "chat") == "chat"
    for name in ("time_to_first_chunk", "time_per_output_token", "output_tokens_per_second"):
        record.pop(f"gen_ai.response.{name}", None)
    return {key: value for key, value in record.items() if key.startswith("gen_ai.") or key == "usage_source"}


def serve(recorded: Recorded, request: bytes, *response: bytes, content_type: bytes = b"application/json") -> None:
    """Serve one POST whose body arrives in pieces, as from a network."""
    pieces = [request[at : at + 1500] for at in range(0, len(request), 1500)] or [b""]
    app = replying(*answer(*response, content_type=content_type))
    recorded.serve(app, http_scope("/v1/chat/completions", "POST", JSON_HEADERS), body_messages(*pieces))


def sse(*events: dict[str, Any], ending: bytes = b"\n\n") -> list[bytes]:
    """Return the chunks of a stream of server-sent events in the form of OpenAI's."""
    return [b"data: " + json.dumps(event).encode() + ending for event in events] + [b"data: [DONE]" + ending]


def delta(content: str, finish_reason: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish_reason}
    return {**ABOUT, "choices": [choice], **more}


def test_the_request_reports_model_stream_flag_and_limits(recorded: Recorded) -> None:
    more = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "seed": 7}
    serve(recorded, json.dumps({**REQUEST, **more, "n": 2}).encode(), b"{}")
    expected = {"model": "llama-3", "stream": True, "max_tokens": 64, **more, "choice.count": 2}
    assert facts(recorded) == {f"gen_ai.request.{name}": value for name, value in expected.items()}


def test_a_plain_json_answer_reports_id_model_usage_and_finish_reason(recorded: Recorded) -> None:
    serve(recorded, b"{}", json.dumps(COMPLETION).encode())
    assert facts(recorded) == {**ABOUT_FACTS, "gen_ai.response.finish_reasons": ["stop"], **USAGE_FACTS}


@pytest.mark.parametrize("ending", [b"\n\n", b"\r\n\r\n"], ids=["LF", "CRLF"])
def test_a_stream_of_events_reports_id_model_usage_and_finish_reason(recorded: Recorded, ending: bytes) -> None:
    events = [delta("Hel", usage=None), delta("lo", usage=None), delta("", "length", usage=None), LAST]
    serve(recorded, b"{}", *sse(*events, ending=ending), content_type=b"text/event-stream; charset=utf-8")
    assert facts(recorded) == {**ABOUT_FACTS, "gen_ai.response.finish_reasons": ["length"], **USAGE_FACTS}


def test_usage_is_found_at_the_end_of_a_stream_of_any_length(recorded: Recorded) -> None:
    events = [*(delta("word " * 5) for _ in range(2000)), delta("", "stop"), LAST]
    serve(recorded, json.dumps(REQUEST).encode(), *sse(*events), content_type=b"text/event-stream")
    found = facts(recorded)
    assert found == {**found, **USAGE_FACTS, "gen_ai.response.finish_reasons": ["stop"]}


def test_events_that_are_cut_anywhere_between_chunks_report_the_same(recorded: Recorded) -> None:
    whole = b"".join(sse(delta("Hello"), delta("", "stop", usage=USAGE)))
    for size in (1, 7, 64, len(whole)):
        parts = [whole[at : at + size] for at in range(0, len(whole), size)]
        serve(recorded, b"{}", *parts, b"", content_type=b"text/event-stream")
    found = [{key: record.get(key) for key in USAGE_FACTS} for record in recorded.records("request")]
    assert found == [USAGE_FACTS] * 4


@pytest.mark.parametrize("model_first", [True, False])
def test_model_and_limits_are_found_before_and_behind_200_kb_of_messages(recorded: Recorded, model_first: bool) -> None:
    messages = {"messages": [{"role": "user", "content": f"Text {number}: " + "x" * 1000} for number in range(200)]}
    rest = {"model": "llama-3", "stream": False, "max_completion_tokens": 5}
    serve(recorded, json.dumps({**rest, **messages} if model_first else {**messages, **rest}).encode(), b"{}")
    expected = {"model": "llama-3", "stream": False, "max_tokens": 5}
    assert facts(recorded) == {f"gen_ai.request.{name}": value for name, value in expected.items()}


def test_usage_is_found_behind_200_kb_of_answer(recorded: Recorded) -> None:
    long = {"index": 0, "message": {"role": "assistant", "content": "y" * 200_000}, "finish_reason": "stop"}
    serve(recorded, b"{}", json.dumps({**COMPLETION, "choices": [long]}).encode())
    found = facts(recorded)
    assert found == {**found, **USAGE_FACTS, "gen_ai.response.id": "chatcmpl-1"}


@pytest.mark.parametrize("padding", [0, 100_000])
def test_text_that_a_user_sends_cannot_pretend_to_be_a_field(recorded: Recorded, padding: int) -> None:
    fake = '"model":"fake","max_tokens":1,"stream":true,' * 3 + '"}],"model":"fake2"}'
    content = fake + "p" * padding + fake
    body = {"model": "real", "messages": [{"role": "user", "content": content, "model": "nested"}], "max_tokens": 9}
    serve(recorded, json.dumps(body).encode(), b"{}")
    assert facts(recorded) == {"gen_ai.request.model": "real", "gen_ai.request.max_tokens": 9}


def test_text_that_a_model_writes_cannot_pretend_to_be_usage(recorded: Recorded) -> None:
    fake = 'data: {"usage":{"prompt_tokens":999,"completion_tokens":999}}\n\n"usage":{"prompt_tokens":999}'
    events = [delta(fake * 50), delta("", "stop", usage=USAGE)]
    serve(recorded, b"{}", *sse(*events), content_type=b"text/event-stream")
    assert facts(recorded)["gen_ai.usage.input_tokens"] == 11


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe\x00", b'{"model": 7}', b"[" * 100_000, b"\x00" * 5000]
)
def test_a_body_that_is_not_what_it_says_reports_nothing_and_harms_nothing(recorded: Recorded, body: bytes) -> None:
    serve(recorded, body, body)
    record = recorded.request()
    assert (record["outcome"], record["http.request.body.size"]) == ("ok", len(body))
    assert not [key for key in record if key.startswith("gen_ai.usage")]


def test_without_captures_nothing_is_read_from_bodies(recording: Recording) -> None:
    recorded = recording(capture_head_bytes=0, capture_tail_bytes=0)
    serve(recorded, json.dumps(REQUEST).encode(), json.dumps(COMPLETION).encode())
    assert facts(recorded) == {}
    assert recorded.request()["http.response.body.size"] == len(json.dumps(COMPLETION))


def test_the_content_type_is_seen_in_any_kind_of_header_sequence(recorded: Recorded) -> None:
    start, body = answer(json.dumps(COMPLETION).encode(), content_type=b"application/json")
    start["headers"] = tuple(start["headers"])
    recorded.serve(replying(start, body), http_scope("/v1", "POST", JSON_HEADERS), body_messages(b"{}"))
    assert facts(recorded)["gen_ai.usage.input_tokens"] == 11


def test_a_stream_has_rates_of_its_tokens_and_its_end_is_no_chunk(recorded: Recorded) -> None:
    events = sse(delta("a"), delta("b"), delta("c", "stop"), LAST)
    serve(recorded, json.dumps(REQUEST).encode(), *events, content_type=b"text/event-stream")
    record = recorded.request()
    assert (record["chunks"], len(record["chunk_gaps_us"])) == (3, 2)
    # The gaps are whole microseconds.
    chunks_s = sum(record["chunk_gaps_us"]) / 1e6
    assert record["gen_ai.response.time_per_output_token"] == pytest.approx(chunks_s / 6, abs=1e-6)
    assert record["gen_ai.response.output_tokens_per_second"] == pytest.approx(7 / record["duration_s"], abs=1e-3)
