"""Spans of request records: valid and stable whatever a record holds, and the mapping that docs/spans.md describes."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_logging.read.times import unix_nano
from inference_logging.ship.line import Line
from inference_logging.ship.otlp_messages import Traces
from inference_logging.ship.spans import ERROR, INTERNAL, PHASES, SERVER, UNSET, Span, spans_of
from tests.kit.segment_files import request

TRACE, SPAN, PARENT, TRACER = (
    "4bf92f3577b34da6a3ce929d0e0e4736",
    "00f067aa0ba902b7",
    "00f067aa0ba902b8",
    "b7ad6b7169203331",
)
IDS = {"trace_id": TRACE, "span_id": SPAN, "request_id": SPAN, "trace_flags": "03"}


def line(record: dict[str, Any], offset: int = 0) -> Line:
    raw = orjson.dumps(record)
    return Line("svc", "svc-1.jsonl", offset, raw, orjson.loads(raw), {"service.name": "svc"})


def of(**fields: Any) -> Span:
    """Return the span of a request that has these fields."""
    return spans_of(line(request(2.0, **{**IDS, **fields})))[0]


# --- whatever a record holds -----------------------------------------------------------------------------------------

NUMBERS = st.one_of(st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text())
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3))
)
IDENTITY = st.one_of(st.text("0123456789abcdefABCDEFg ", max_size=34), st.sampled_from([TRACE, SPAN, PARENT, "0" * 16]))
SECONDS = st.one_of(st.floats(0, 1e6), st.sampled_from([-1, "NaN", 1e300, 2**64 - 1, True]), ANYTHING)
PARTS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "tool_call", "tool_call_response", "blob", "uri"])},
        optional=dict.fromkeys(("content", "id", "name", "arguments", "response", "modality", "uri"), ANYTHING),
    ),
    max_size=3,
)
MESSAGES = st.one_of(
    st.lists(st.fixed_dictionaries({"role": SCALARS, "parts": st.one_of(PARTS, ANYTHING)}), max_size=3), ANYTHING
)
OTHERS = {
    "timestamp": st.one_of(st.sampled_from(["0001-01-01T00:00:00.1Z", "9999-01-01T00:00:00.1Z"]), ANYTHING),
    **dict.fromkeys(("trace_id", "span_id", "parent_span_id", "request_id", "trace_flags"), IDENTITY),
    **dict.fromkeys(("duration_s", "after_response_s", "gen_ai.response.time_to_first_chunk"), SECONDS),
    **dict.fromkeys(PHASES.values(), SECONDS),
    "adjusted_count": st.one_of(st.floats(1, 2**56), NUMBERS, ANYTHING),
    "http.response.status_code": st.one_of(st.integers(100, 599), ANYTHING),
    "outcome": st.one_of(st.sampled_from(["ok", "error", "timeout", "client_disconnect", "process_died"]), ANYTHING),
    "gen_ai.operation.name": st.one_of(st.sampled_from(["chat", "embeddings", "rerank"]), ANYTHING),
    **dict.fromkeys(("gen_ai.input.messages", "gen_ai.output.messages"), MESSAGES),
    "gen_ai.system_instructions": st.one_of(PARTS, ANYTHING),
    **dict.fromkeys(("exception.type", "exception.message", "error.type", "gen_ai.usage.input_tokens"), ANYTHING),
}
RECORDS = st.builds(
    lambda known, unknown: {**unknown, **request(2.0), **known},
    st.fixed_dictionaries({}, optional=OTHERS),
    st.dictionaries(st.text(), ANYTHING, max_size=3),
)


@pytest.mark.servers
@given(RECORDS)
def test_any_record_is_valid_spans_in_the_order_of_their_times(record: dict[str, Any]) -> None:
    one = line(record)
    first, *rest = spans_of(one)
    assert Traces.request([one]), "it can be encoded"
    assert first.start <= first.end < 2**64
    for span in (first, *rest):
        assert (len(span.trace_id), len(span.span_id), len(span.parent_span_id) in (0, 8)) == (16, 8, True)
        assert all((any(span.trace_id), any(span.span_id), span.name, span.attributes["openinference.span.kind"]))
        assert first.start <= span.start <= span.end <= first.end
        assert all(first.start <= event.unix_nano <= first.end for event in span.events)
    assert all(before.end == after.start for before, after in pairwise(rest)), "one behind the other"
    assert {span.parent_span_id for span in rest} <= {first.span_id}
    assert {span.trace_id for span in rest} <= {first.trace_id}
    assert len({span.span_id for span in (first, *rest)}) == len(rest) + 1


@given(RECORDS)
def test_the_same_record_gives_the_same_spans(record: dict[str, Any]) -> None:
    assert spans_of(line(record)) == spans_of(line(copy.deepcopy(record)))


# --- the request -----------------------------------------------------------------------------------------------------


def test_a_request_is_a_server_span_with_the_ids_of_its_record() -> None:
    span = of(parent_span_id=PARENT, duration_s=0.5, seq=7)
    assert (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()) == (TRACE, SPAN, PARENT)
    assert (span.name, span.kind) == ("POST /v1/chat/completions", SERVER)
    assert span.flags == 0x303, "sampled, random; the parent is known to be remote"
    assert span.end == unix_nano(request(2.0)["timestamp"])
    assert span.end - span.start == 500_000_000
    assert (span.attributes["seq"], span.attributes["http.response.status_code"]) == (7, 200)
    apart = {"timestamp", "event_name", "trace_id", "span_id", "parent_span_id", "trace_flags"}
    assert not apart & span.attributes.keys()


def test_work_after_the_answer_is_not_in_the_span() -> None:
    span = of(duration_s=0.5, after_response_s=0.25)
    assert span.end == unix_nano(request(1.75)["timestamp"])
    assert span.end - span.start == 500_000_000


def test_below_a_tracers_span_of_the_same_request_it_has_the_requests_id() -> None:
    span = of(span_id=TRACER)
    assert (span.span_id.hex(), span.parent_span_id.hex()) == (SPAN, TRACER)
    assert (span.kind, span.flags) == (INTERNAL, 0x103)


def test_a_record_without_ids_has_ids_of_its_place() -> None:
    record = {"event_name": "request", "timestamp": "2026-11-21T05:00:00.5Z"}
    (first,), (again,), (other,) = (spans_of(line(record, offset)) for offset in (1, 1, 2))
    assert first == again
    assert first.trace_id != other.trace_id
    assert first.span_id != other.span_id


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"http__route": None}, "POST"),
        ({"rpc__method": "inference.GRPCInferenceService/ModelInfer"}, "inference.GRPCInferenceService/ModelInfer"),
        ({"http__request__method": None, "http__route": None, "triton__model_name": "resnet"}, "resnet"),
        ({"http__request__method": None, "http__route": "/ws"}, "/ws"),
        ({"http__request__method": None, "http__route": None}, "request"),
    ],
)
def test_a_name_has_few_values_as_the_conventions_of_http_and_rpc_have_it(fields: dict[str, Any], name: str) -> None:
    assert of(**fields).name == name


@pytest.mark.parametrize(
    ("outcome", "status", "more", "expected"),
    [
        ("ok", 200, {}, (UNSET, "")),
        ("ok", 404, {}, (UNSET, "")),
        ("timeout", 408, {}, (UNSET, "")),
        ("client_disconnect", 200, {}, (UNSET, "")),
        ("error", 500, {}, (ERROR, "")),
        ("ok", 503, {}, (ERROR, "")),
        ("error", 200, {"error__type": "stream_error"}, (ERROR, "stream_error")),
        ("error", 400, {"error__type": "response_incomplete"}, (ERROR, "response_incomplete")),
        ("timeout", 504, {"error__type": "TimeoutError"}, (ERROR, "TimeoutError")),
        ("server_shutdown", 200, {"error__type": "engine_abort"}, (ERROR, "engine_abort")),
        ("aborted", 200, {"error__type": "engine_abort"}, (ERROR, "engine_abort")),
        ("process_died", None, {"error__type": "process_died"}, (ERROR, "process_died")),
        ("error", 500, {"error__type": "E", "exception__message": "why"}, (ERROR, "why")),
    ],
)
def test_a_status_is_an_error_as_the_conventions_of_servers_have_it(
    outcome: str, status: int | None, more: dict[str, Any], expected: tuple[int, str]
) -> None:
    span = of(outcome=outcome, http__response__status_code=status, **more)
    assert (span.status, span.message) == expected


def test_a_first_chunk_an_exception_and_an_abort_are_events() -> None:
    exception = {"exception.type": "E", "exception.message": "why", "exception.stacktrace": "where"}
    fields = {"outcome": "server_shutdown", "error.type": "E", "duration_s": 0.5, **exception}
    span = of(**fields, **{"gen_ai.response.time_to_first_chunk": 0.125})
    assert [(event.name, event.unix_nano - span.start, event.attributes) for event in span.events] == [
        ("first_chunk", 125_000_000, {"gen_ai.response.time_to_first_chunk": 0.125}),
        ("exception", 500_000_000, exception),
        ("server_shutdown", 500_000_000, {"error.type": "E"}),
    ]
    assert not exception.keys() & span.attributes.keys()
    assert of(outcome="ok").events == []


def test_members_of_an_object_are_attributes_and_what_is_deeper_is_text() -> None:
    span = of(attributes={"plan": "gold", "at": {"x": [1]}, "none": None}, many=[1, "a"], odd=[[1]], none=None)
    assert span.attributes["attributes.plan"] == "gold"
    assert span.attributes["attributes.at"] == '{"x":[1]}'
    assert (span.attributes["many"], span.attributes["odd"]) == ([1, "a"], "[[1]]")
    assert not {"attributes", "attributes.none", "none"} & span.attributes.keys()


@pytest.mark.parametrize(
    ("count", "low", "state"),
    [
        (1.0, "00000000000000", "ot=th:0"),
        (10.0, "ffffffffffffff", "ot=th:e6666666"),
        # The thresholds of the specification, from their own adjusted counts.
        (2**56 / (2**56 - 0xE6660000000000), "e6660000000000", "ot=th:e666"),
        (2**56 / (2**56 - 0xE6660000000000), "e665ffffffffff", ""),
        (2**56 / (2**56 - 0xFD70A000000000), "ffffffffffffff", "ot=th:fd70a"),
        (2.0**56, "ffffffffffffff", "ot=th:ffffffffffffff"),
        (None, "ffffffffffffff", ""),
        (0.5, "ffffffffffffff", ""),
    ],
)
def test_a_known_threshold_that_the_trace_id_is_above_is_in_the_trace_state(
    count: float | None, low: str, state: str
) -> None:
    assert of(adjusted_count=count, trace_id=f"a3ce929d0e0e4736a3{low}"[-32:].rjust(32, "1")).trace_state == state


# --- its parts -------------------------------------------------------------------------------------------------------


def test_what_the_engine_timed_are_spans_below_the_request_from_its_start_on() -> None:
    timed: dict[str, Any] = {
        "engine.queued_s": 0.1,
        "engine.prefill_s": 0.2,
        "engine.decode_s": 9,
        "engine.request_id": "r",
    }
    whole, *parts = spans_of(line(request(2.0, **IDS, duration_s=0.5, **timed)))
    millis = [(one.name, (one.start - whole.start) // 10**6, (one.end - whole.start) // 10**6) for one in parts]
    assert millis == [("queue", 0, 100), ("prefill", 100, 300), ("decode", 300, 500)], "cut at the request's end"
    for part in parts:
        assert (part.kind, part.parent_span_id, part.trace_id) == (INTERNAL, whole.span_id, whole.trace_id)
        assert (part.attributes["engine.request_id"], part.flags) == ("r", 0x103)
    assert parts[0].attributes["engine.queued_s"] == 0.1
    (_, only) = spans_of(line(request(2.0, **IDS, engine__prefill_s=0.2)))
    assert (only.name, only.span_id) == ("prefill", parts[1].span_id), "an id is of the name, not of the position"


# --- OpenInference ---------------------------------------------------------------------------------------------------


def shown(**fields: Any) -> dict[str, Any]:
    """Return what of a span's attributes is OpenInference's."""
    ours = request(2.0).keys() | fields.keys()
    return {name: value for name, value in of(**fields).attributes.items() if name not in ours}


def text(role: str, *contents: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content} for content in contents]}


def test_without_texts_a_chat_has_model_tokens_and_parameters() -> None:
    fields = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "asked",
        "gen_ai.response.model": "served",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.stop_sequences": ["a"],
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.conversation.id": "c",
        "enduser.id": "u",
    }
    assert shown(**fields) == {
        "openinference.span.kind": "LLM",
        "llm.provider": "vllm",
        "llm.model_name": "served",
        "llm.invocation_parameters": '{"temperature":0.5,"stop_sequences":["a"]}',
        "llm.token_count.prompt": 11,
        "llm.token_count.completion": 5,
        "llm.token_count.total": 16,
        "llm.token_count.prompt_details.cache_read": 3,
        "session.id": "c",
        "user.id": "u",
    }


def test_tools_are_shown_where_they_are_on_record_whole() -> None:
    whole = {"type": "function", "function": {"name": "find", "parameters": {}}}
    named = {"type": "function", "name": "find"}

    def tools(*definitions: object) -> dict[str, Any]:
        found = shown(**{"gen_ai.operation.name": "chat", "gen_ai.tool.definitions": list(definitions)})
        return {name: value for name, value in found.items() if name.startswith("llm.tools")}

    assert tools(whole) == {"llm.tools.0.tool.json_schema": orjson.dumps(whole).decode()}
    assert tools(named) == tools() == {}


def test_messages_of_a_chat_are_shown_with_their_tools() -> None:
    call = {"type": "tool_call", "id": "1", "name": "weather", "arguments": '{"city":"Bonn"}'}
    answer = {"type": "tool_call_response", "id": "1", "response": "rain"}
    image = {"type": "uri", "modality": "image", "uri": "https://example.org/a.png"}
    asked = [
        text("user", "weather?"),
        {"role": "assistant", "parts": [call]},
        {"role": "tool", "parts": [answer]},
        {"role": "user", "parts": [*text("", "this?")["parts"], image, {"type": "blob", "modality": "audio"}]},
    ]
    found = shown(
        **{
            "gen_ai.operation.name": "chat",
            "gen_ai.system_instructions": [{"type": "text", "content": "be kind"}],
            "gen_ai.input.messages": asked,
            "gen_ai.output.messages": [text("assistant", "rain in Bonn")],
        }
    )
    assert (found.pop("input.value"), found.pop("input.mime_type")) == (
        orjson.dumps(asked).decode(),
        "application/json",
    )
    assert (found.pop("output.value"), found.pop("output.mime_type")) == ("rain in Bonn", "text/plain")
    into, out = "llm.input_messages.{}.message.", "llm.output_messages.0.message."
    contents = f"{into.format(4)}contents."
    assert found == {
        "openinference.span.kind": "LLM",
        f"{into.format(0)}role": "system",
        f"{into.format(0)}content": "be kind",
        f"{into.format(1)}role": "user",
        f"{into.format(1)}content": "weather?",
        f"{into.format(2)}role": "assistant",
        f"{into.format(2)}tool_calls.0.tool_call.id": "1",
        f"{into.format(2)}tool_calls.0.tool_call.function.name": "weather",
        f"{into.format(2)}tool_calls.0.tool_call.function.arguments": '{"city":"Bonn"}',
        f"{into.format(3)}role": "tool",
        f"{into.format(3)}tool_call_id": "1",
        f"{into.format(3)}content": "rain",
        f"{into.format(4)}role": "user",
        f"{contents}0.message_content.type": "text",
        f"{contents}0.message_content.text": "this?",
        f"{contents}1.message_content.type": "image",
        f"{contents}1.message_content.image.image.url": "https://example.org/a.png",
        f"{contents}2.message_content.type": "audio",
        f"{out}role": "assistant",
        f"{out}content": "rain in Bonn",
    }


@pytest.mark.parametrize(
    ("operation", "kind", "model"),
    [
        ("text_completion", "LLM", "llm.model_name"),
        ("embeddings", "EMBEDDING", "embedding.model_name"),
        ("rerank", "RERANKER", "reranker.model_name"),
        ("classify", "CHAIN", None),
        (None, "CHAIN", None),
    ],
)
def test_a_kind_is_that_of_the_operation(operation: str | None, kind: str, model: str | None) -> None:
    found = shown(**{"gen_ai.operation.name": operation, "gen_ai.request.model": "m"})
    assert found["openinference.span.kind"] == kind
    assert {name: value for name, value in found.items() if name.endswith("model_name")} == (
        {model: "m"} if model else {}
    )


def test_texts_to_embed_are_shown() -> None:
    found = shown(**{"gen_ai.operation.name": "embeddings", "gen_ai.input.messages": [text("user", "a", "b")]})
    assert [found[f"embedding.embeddings.{at}.embedding.text"] for at in range(2)] == ["a", "b"]
