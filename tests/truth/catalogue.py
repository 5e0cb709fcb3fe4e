"""The streams of the bench: each API in the shapes that servers give it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from tests.truth.events import (
    BLANK_LINES,
    COMMENT,
    EMPTY_DATA,
    PING,
    PING_COMMENT,
    SSE,
    Event,
    Framing,
    Stream,
    failure,
)
from tests.truth.openai_apis import DONE, Chat, Completions, Responses, Transcription, embeddings
from tests.truth.other_apis import Gemini, LlamaCpp, Messages, Ollama, Tgi, Triton, Unknown

NASTY: Final = (
    'data: {"error": {"type": "x"}}',
    '{"error":{"message":"no"}}',
    '"finish_reason":"error"',
    "\n\nevent: error\ndata: {}\n\n",
    '{"type":"error"}',
    "response.failed",
    "data: [DONE]",
    ": keep-alive\n\n",
    'a \\" quote and a \\',
    "ünïcode 🦀 \u2028 \u2029 \x85",
    '"status":"failed"',
    '"content":""',
)
"""Texts of a model that look like events."""


NO_ERRORS: Final[tuple[Any, ...]] = (None, False, 0, "", {}, [], {"code": None, "message": None, "param": None})
"""Values of `error` that say that there is none."""


def plain(chat: Chat | None = None) -> tuple[Event, ...]:
    """Return a Chat stream as the reference shows it."""
    chat = chat or Chat()
    return (chat.role(), chat.text("Hel"), chat.text("lo", usage=None), chat.finish(), chat.usage(), DONE)


def _chat() -> list[Stream]:
    chat = Chat()
    make = chat.stream
    role, text, end = chat.role(), chat.text("Hello"), (chat.finish(), DONE)
    thought = (chat.reasoning("Let me"), chat.reasoning("see", "reasoning"))
    tools = (chat.tool("weather"), chat.arguments('{"city":'), chat.arguments('"Rome"}'), chat.finish("tool_calls"))
    return [
        make("plain", *plain(chat)),
        make("reasoning", role, *thought, chat.text("42"), *end),
        make("tool calls", role, *tools, DONE),
        make("text, then tool calls", role, chat.text("I look."), *tools, DONE),
        make("reasoning, then tool calls", role, *thought, *tools, DONE),
        make("refusal", role, chat.refusal("I can't"), *end),
        make("keep-alives first", COMMENT, COMMENT, role, text, COMMENT, *end),
        make("keep-alives of all kinds", PING_COMMENT, EMPTY_DATA, PING, role, text, *end),
        make("empty deltas", role, chat.text(""), chat.text(""), text, chat.text(""), *end),
        make("nulls", chat.nulls(), chat.reasoning_and_nulls("a"), chat.nulls(), chat.text_and_nulls("b"), *end),
        make("role with text", chat.role_and_text("Hi"), chat.last_text(" there"), DONE),
        make("usage all the time", role, *(chat.text_with_usage("a", 11, count) for count in (1, 2, 3)), *end),
        make("probabilities", role, chat.text_with_probabilities("a"), chat.text_with_probabilities("b"), *end),
        make("two choices", role, text, chat.two_choices("b"), *end),
        make("filters first", chat.filters(), role, text, *end),
        make("function call", role, chat.function("weather"), chat.finish("function_call"), DONE),
        make("errors within", role, chat.text("a", metadata={"error": {"type": "x"}}), chat.tool("error"), *end),
        make("error is null", role, chat.text("a", error=None), chat.text("b", error=None), *end),
        make("text of errors", role, *(chat.text(nasty) for nasty in NASTY), *end),
        make("error at once", chat.error()),
        make("error after text", role, text, chat.error("rate_limit_error", 429), DONE),
        make("error without type", role, text, chat.error(None, None)),
        make("error behind other keys", role, text, chat.error_behind_other_keys(), DONE),
        make("finish by error", role, text, chat.finish_by_error(), DONE),
        make("error of a choice", role, text, chat.error_of_a_choice(), DONE),
        make("errors that are none", role, *(chat.text("a", error=error) for error in NO_ERRORS), *end),
        make("a filter that failed", role, chat.filter_that_failed("a"), *end),
        make("images", role, chat.image(), *end),
        make("list of thoughts", role, chat.list_of_thoughts("hm"), text, *end),
        make("named error", role, text, replace(chat.error("api_error"), name="error")),
        make("named error of text", role, text, Event("error", b"Internal Server Error", "error", failure())),
    ]


def _framings() -> list[Stream]:
    chat = Chat()
    events = plain(chat)
    named = replace(chat.error("api_error"), name="error")
    framings = {
        "CRLF": Framing(line_end=b"\r\n"),
        "CR": Framing(line_end=b"\r"),
        "no space": Framing(space=False),
        "mark": Framing(mark=b"\xef\xbb\xbf"),
        "id": Framing(before=(b"id: 7",)),
        "retry and id": Framing(before=(b"retry: 3000", b"id: 7")),
        "comment": Framing(before=(b": here it comes",)),
        "all": Framing(line_end=b"\r\n", before=(b":", b"retry:3000", b"id:"), name_last=True, ascii_only=False),
        "several data lines": Framing(loose=True),
        "name last": Framing(name_last=True),
    }
    whole = [replace(chat.stream(name, *events), framing=framing) for name, framing in framings.items()]
    failed = [
        replace(chat.stream(f"{name}, error", *events[:2], named), framing=framing)
        for name, framing in framings.items()
    ]
    return whole + failed


def _completions() -> list[Stream]:
    api = Completions()
    text, end = (api.text("One"), api.text(" two")), (api.text("", "length"), api.usage(), DONE)
    return [
        api.stream("plain", *text, *end),
        api.stream("last text with its reason", *text, api.text(".", "stop"), DONE),
        api.stream("keep-alive first", COMMENT, *text, *end),
        api.stream("error after text", *text, api.error(), DONE),
    ]


def _responses() -> list[Stream]:
    def made(shape: str, build: Callable[[Responses], tuple[Event, ...]]) -> Stream:
        api = Responses()
        return api.stream(shape, *build(api))

    def begun(api: Responses) -> tuple[Event, ...]:
        item = {"id": "msg_1", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        return (api.created(), api.in_progress(), api.item_added(item), api.part_added())

    def ended(api: Responses) -> tuple[Event, ...]:
        return (api.text_done("Hi there"), api.item_done("Hi there"), api.completed())

    call = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "weather", "arguments": ""}
    return [
        made("plain", lambda api: (*begun(api), api.text("Hi"), api.text(" there"), *ended(api))),
        made("keep-alive within", lambda api: (*begun(api), COMMENT, api.text("Hi"), *ended(api))),
        made("reasoning", lambda api: (*begun(api), api.reasoning("hm"), api.text("Hi"), *ended(api))),
        made("summary", lambda api: (*begun(api), api.summary("hm"), api.summary("so"), api.text("Hi"), *ended(api))),
        made(
            "tool call",
            lambda api: (api.created(), api.item_added(call), api.arguments('{"a"'), api.arguments(":1}"), *ended(api)),
        ),
        made("refusal", lambda api: (*begun(api), api.refusal("No"), *ended(api))),
        made("text of errors", lambda api: (*begun(api), *(api.text(nasty) for nasty in NASTY), *ended(api))),
        made("incomplete", lambda api: (*begun(api), api.text("Hi"), api.incomplete())),
        made("failed", lambda api: (*begun(api), api.text("Hi"), api.failed())),
        made("failed at once", lambda api: (api.created(), api.failed("rate_limit_exceeded"))),
        made("error", lambda api: (*begun(api), api.text("Hi"), api.error())),
        made("error without code", lambda api: (*begun(api), api.error(None))),
        Responses().document("completed"),
        Responses().document("incomplete"),
        Responses().document("failed"),
    ]


def _messages() -> list[Stream]:
    api = Messages()
    make, text = api.stream, (api.text("Hel"), api.text("lo"))
    begin, end = (api.start(), api.block()), (api.block_stop(), api.finish(), api.stop())
    thinking = (api.block(type="thinking", thinking="", signature=""), api.reasoning("so"), api.signature())
    tool = (api.block(1, type="tool_use", id="toolu_1", name="weather", input={}), api.arguments(""))
    call = (*tool, api.arguments('{"city": "R'), api.arguments('ome"}'), api.block_stop(1))
    return [
        make("plain", *begin, PING, *text, *end),
        make("pings first", api.start(), PING, PING, api.block(), *text, PING, *end),
        make("comments first", COMMENT, COMMENT, *begin, *text, *end),
        make("thinking", api.start(), *thinking, api.block_stop(), api.block(1), *text, *end),
        make("tool", api.start(), *call, api.finish(reason="tool_use"), api.stop()),
        make("text, then tool", *begin, *text, api.block_stop(), *call, api.finish(reason="tool_use"), api.stop()),
        make("cache written", api.start(10, 100, 1000), api.block(), *text, *end),
        make("text of errors", *begin, *(api.text(nasty) for nasty in NASTY), *end),
        make("error after text", *begin, *text, api.error()),
        make("error at once", api.error("api_error")),
        make("error without name", *begin, *text, replace(api.error(), name="")),
    ]


def _lines() -> list[Stream]:
    api, generate = Ollama(), Ollama(chat=False)
    text = (api.text("The"), api.text(" sky"))
    return [
        api.stream("plain", *text, api.done()),
        api.stream("thinking", api.reasoning("hm"), *text, api.done()),
        api.stream("tool call", api.tool("weather", city="Rome"), api.done()),
        api.stream("text of errors", *(api.text(nasty) for nasty in NASTY), api.done()),
        api.stream("error after text", *text, api.error()),
        api.stream("error at once", api.error()),
        api.stream("errors within", api.tool("weather", error={"type": "x"}, finish_reason="error"), api.done()),
        replace(api.stream("CRLF", *text, api.done()), framing=Framing(line_end=b"\r\n")),
        api.stream("last line has no end", *text, _bare(api.done())),
        api.stream("error without line end", *text, _bare(api.error())),
        generate.stream("plain", generate.text("The"), generate.text(" sky"), generate.done()),
        generate.stream("error after text", generate.text("The"), generate.error()),
    ]


def _bare(event: Event) -> Event:
    """Return an event of the last line, which needs no end."""
    return replace(event, wire=json.dumps(event.data).encode())


def _others() -> list[Stream]:
    audio, gemini, llama, triton, unknown, tgi = Transcription(), Gemini(), LlamaCpp(), Triton(), Unknown(), Tgi()
    words = tuple(tgi.text(text) for text in ("a", " b", " c"))
    nasty = tuple(Tgi().text(text) for text in NASTY)
    return [
        audio.stream("plain", audio.text("May"), audio.text("be"), audio.done("Maybe")),
        audio.stream("keep-alive first", COMMENT, audio.text("May"), audio.done("May")),
        gemini.stream("plain", gemini.text("The"), gemini.text(" sky"), gemini.text("", "STOP")),
        gemini.stream("last text with its reason", gemini.text("The"), gemini.text(" sky", "STOP")),
        gemini.stream("thought", gemini.reasoning("hm"), gemini.text("The", "STOP")),
        gemini.stream("code", gemini.code("print(1)"), gemini.text("1", "STOP")),
        gemini.stream("function call", gemini.text("I look."), gemini.tool("weather", city="Rome")),
        gemini.stream("text of errors", *(gemini.text(nasty) for nasty in NASTY), gemini.text("", "STOP")),
        gemini.stream("errors within", gemini.tool("weather", error={"code": 5, "status": "x"})),
        gemini.stream("error after text", gemini.text("The"), gemini.error()),
        gemini.stream("error at once", gemini.error("RESOURCE_EXHAUSTED", 429)),
        gemini.array("plain", gemini.text("The"), gemini.text(" sky", "STOP")),
        tgi.stream("plain", *words, tgi.text(" d", last=True)),
        tgi.stream("text of errors", *nasty),
        tgi.stream("error after text", *words, tgi.error()),
        tgi.stream("overloaded at once", tgi.error("overloaded")),
        llama.stream("plain", llama.text("A"), llama.text(" b"), llama.done()),
        llama.stream("text of errors", *(llama.text(nasty) for nasty in NASTY), llama.done()),
        llama.stream("error after text", llama.text("A"), llama.error()),
        triton.stream("plain", triton.text("A"), triton.text(" b"), triton.text("")),
        triton.stream("text of errors", *(triton.text(nasty) for nasty in NASTY)),
        triton.stream("error after text", triton.text("A"), triton.error()),
        unknown.stream("text", unknown.text("tick 1"), unknown.text("tick 2"), unknown.text("tick 3")),
        unknown.stream("objects", unknown.object(price=3), unknown.object(price=4), EMPTY_DATA),
        unknown.stream("errors within", unknown.object(a={"error": "x"}), unknown.object(b=[{"type": "error"}])),
        unknown.stream("named error", unknown.text("tick 1"), unknown.error()),
        unknown.stream("named error of an object", unknown.object(price=3), unknown.error({"detail": "it broke"})),
        embeddings(),
    ]


STREAMS: Final = (*_chat(), *_framings(), *_completions(), *_responses(), *_messages(), *_lines(), *_others())
"""They leave the same record however their body messages are cut."""

BLANK: Final = Chat().stream("blank lines first", BLANK_LINES, *plain())
"""Its keep-alives are body messages, so a cut makes more of them."""


def by_name(api: str, shape: str) -> Stream:
    """Return the one stream of an API and a shape."""
    [found] = [stream for stream in (*STREAMS, BLANK) if (stream.api, stream.shape) == (api, shape)]
    return found


def long(api: str, events: int = 400) -> Stream:
    """Return a stream whose beginning and end stand far apart."""
    if api == "messages":
        messages = Messages()
        text = (messages.text("word ") for _ in range(events))
        rest = (messages.block_stop(), messages.finish(400), messages.stop())
        return messages.stream("long", messages.start(), messages.block(), *text, *rest)
    responses = Responses()
    begin = (responses.created(), responses.in_progress())
    words = tuple(responses.text("word ") for _ in range(events))
    return responses.stream("long", *begin, *words, responses.text_done("word " * events), responses.completed())


def compressed(stream: Stream) -> list[bytes]:
    """Return a stream's parts as a server sends them that compresses each event and flushes."""
    made: list[bytes] = []

    class Sink:
        def write(self, data: bytes) -> int:
            made[-1] += bytes(data)
            return len(data)

        def flush(self) -> None: ...

    made.append(b"")
    packer: Any = gzip.GzipFile(fileobj=Sink(), mode="wb", mtime=0)
    for number, part in enumerate(stream.parts()):
        if number:
            made.append(b"")
        packer.write(part)
        packer.flush()
    packer.close()
    return made


def is_stream(stream: Stream) -> bool:
    """Return whether it is sent event by event, and each event is one of the protocol."""
    return stream.content_type in (SSE, "application/x-ndjson")


def large(size: int) -> list[Stream]:
    """Return streams with events of this size: no reader may keep them whole."""
    chat, messages, text = Chat(), Messages(), "word " * (size // 5)
    body = {"error": {"message": text, "type": "a_type", "param": None, "code": "a_code"}}
    failed = Event("error", body, facts=failure("a_type", "a_code"))
    padded = Event("content", {"padding": text, **chat.text("a").data}, facts=chat.text("a").facts)
    return [
        chat.stream("large text", chat.role(), chat.text(text), chat.text("b"), chat.finish(), DONE),
        chat.stream("large text of errors", chat.role(), chat.text(text + NASTY[0]), chat.finish(), DONE),
        chat.stream("text behind much", chat.role(), padded, chat.finish(), DONE),
        chat.stream("large comment", Event("keep-alive", wire=b": " + text.encode() + b"\n\n"), *plain(chat)),
        chat.stream("large error", chat.role(), chat.text("a"), failed),
        messages.stream(
            "large arguments", messages.start(), messages.arguments(text), messages.finish(), messages.stop()
        ),
    ]
