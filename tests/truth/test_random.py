"""Random streams, cut at random: the record agrees with the slow reader, and the slow reader with the builder.

``TRUTH_STREAMS`` says how many, ``TRUTH_SEED`` the number of the first one; a message of a failure names the number.
At length: ``TRUTH_STREAMS=1000000 pytest --timeout=0 tests/truth/test_random.py``.
To look at one: ``python -c "from tests.truth.test_random import sent; print(sent(7).parts)"``.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.kit.signatures import Configure
from tests.kit.support import Recorded
from tests.truth.catalogue import NASTY, STREAMS, is_stream
from tests.truth.events import (
    COMMENT,
    EMPTY_DATA,
    PING,
    PING_COMMENT,
    SPACED_PING,
    SSE,
    Event,
    Framing,
    Stream,
    failure,
    truth,
)
from tests.truth.in_process import Sent, Stage
from tests.truth.openai_apis import DONE, Chat, Completions, Responses, Transcription
from tests.truth.other_apis import Gemini, LlamaCpp, Messages, Ollama, Tgi, Triton, Unknown
from tests.truth.reference import read
from tests.truth.table import Comparison

_WORDS: Final = (
    "a",
    " the",
    "Hello",
    " wörld",
    "🦀",
    "\n",
    "\r\n",
    "\t",
    '"',
    "\\",
    "{",
    "}",
    "[DONE]",
    "error",
    "null",
    ":",
)
_KEEP_ALIVES: Final = (COMMENT, PING_COMMENT, EMPTY_DATA, PING, SPACED_PING, Event("keep-alive", wire=b":\n\n"))
_LINES_BEFORE: Final = (b":", b": a comment", b"id: 7", b"id", b"retry: 3000", b"retry:10")
_FAILED: Final = (b"it broke", {"detail": "it broke"}, b"Internal Server Error")

Make = Callable[[random.Random], Stream]


def text(of: random.Random) -> str:
    """Return what a model may say: some words, or what looks like an event."""
    if of.random() < 0.3:
        return of.choice(NASTY)
    return "".join(of.choices(_WORDS, k=of.randint(1, 4)))


def _some(of: random.Random, *makers: Callable[[], Event], least: int = 0) -> list[Event]:
    return [of.choice(makers)() for _ in range(of.randint(least, 6))]


def _chat(of: random.Random) -> Stream:
    api = Chat()
    makers = [
        lambda: api.text(text(of)),
        lambda: api.text(text(of), error=None),
        lambda: api.text(""),
        lambda: api.role_and_text(text(of)),
        lambda: api.text_and_nulls(text(of)),
        lambda: api.reasoning_and_nulls(text(of)),
        lambda: api.text_with_usage(text(of)),
        lambda: api.text_with_probabilities(text(of)),
        lambda: api.two_choices(text(of)),
        lambda: api.last_text(text(of), "length"),
        api.nulls,
        lambda: api.text(text(of), metadata={"error": {"type": text(of)}}),
        lambda: api.function("weather"),
        lambda: api.reasoning(text(of), of.choice(("reasoning", "reasoning_content"))),
        lambda: api.refusal(text(of)),
        lambda: api.tool(of.choice(("weather", "error"))),
        lambda: api.arguments(text(of)),
    ]
    end = of.choice(([api.finish()], [api.finish("length"), api.usage()], [api.text(text(of)), api.finish(), DONE]))
    failures = [
        lambda: api.error(of.choice(("a_type", None)), of.choice((429, "a_code", None))),
        api.error_behind_other_keys,
        api.finish_by_error,
        lambda: replace(api.error(), name="error"),
    ]
    return _ended(of, api.stream("random", api.role(), *_some(of, *makers)), end, *failures)


def _completions(of: random.Random) -> Stream:
    api = Completions()
    events = _some(of, lambda: api.text(text(of)), lambda: api.text(""))
    return _ended(of, api.stream("random", *events), [api.text("", "stop"), api.usage(), DONE], api.error)


def _responses(of: random.Random) -> Stream:
    api = Responses()
    item: dict[str, Any] = {
        "id": "a",
        "type": of.choice(("message", "reasoning", "function_call")),
        "name": text(of),
        "content": [],
    }
    begin = [api.created(), api.in_progress(), api.item_added(item), api.part_added()][: of.randint(1, 4)]
    makers = [api.text, api.refusal, api.reasoning, api.summary, api.arguments, api.text_done, api.item_done]
    events = _some(of, *(lambda make=make: make(text(of)) for make in makers))
    end = [of.choice((api.completed, api.incomplete))()]
    return _ended(of, api.stream("random", *begin, *events), end, api.failed, api.error, lambda: api.error(None))


def _messages(of: random.Random) -> Stream:
    api = Messages()
    makers = [
        api.block,
        lambda: api.block(1, type="tool_use", id="toolu_1", name=text(of), input={}),
        lambda: api.text(text(of)),
        lambda: api.text(""),
        lambda: api.reasoning(text(of)),
        lambda: api.arguments(of.choice(("", text(of)))),
        api.signature,
        api.block_stop,
    ]
    end = [api.finish(), api.stop()]
    failures = [api.error, lambda: replace(api.error("api_error"), name="")]
    return _ended(of, api.stream("random", api.start(), *_some(of, *makers)), end, *failures)


def _ollama(of: random.Random) -> Stream:
    api = Ollama(chat=of.random() < 0.5)
    makers: list[Callable[[], Event]] = [lambda: api.text(text(of)), lambda: api.reasoning(text(of))]
    if api.path == "/api/chat":
        makers.append(lambda: api.tool("weather", city=text(of), error={"type": "x"}))
    return _ended(of, api.stream("random", *_some(of, *makers, least=1)), [api.done()], api.error)


def _gemini(of: random.Random) -> Stream:
    api = Gemini()
    makers = [
        lambda: api.text(text(of)),
        lambda: api.reasoning(text(of)),
        lambda: api.tool("weather", city=text(of), error="x"),
    ]
    return _ended(of, api.stream("random", *_some(of, *makers, least=1)), [api.text("", "STOP")], api.error)


def _simple(of: random.Random) -> Stream:
    api: Any = of.choice((Tgi, Triton, LlamaCpp, Transcription))()
    end = [api.done()] if isinstance(api, LlamaCpp) else [api.done(text(of))] if isinstance(api, Transcription) else []
    failures = [] if isinstance(api, Transcription) else [api.error]
    return _ended(of, api.stream("random", *_some(of, lambda: api.text(text(of)), least=1)), end, *failures)


def _unknown(of: random.Random) -> Stream:
    api = Unknown()
    makers = [lambda: api.object(value=text(of)), lambda: api.object(n=of.randint(0, 9), nested={"error": [text(of)]})]
    if of.random() < 0.3:
        makers = [lambda: api.text(of.choice(("tick 1", "Hello", "17", "null", '"error"', "[1, 2]", "{not json")))]
    return _ended(of, api.stream("random", *_some(of, *makers, least=1)), [], lambda: api.error(of.choice(_FAILED)))


_MAKERS: Final[tuple[Make, ...]] = (_chat, _completions, _responses, _messages, _ollama, _gemini, _simple, _unknown)


def _ended(of: random.Random, stream: Stream, end: list[Event], *failures: Callable[[], Event]) -> Stream:
    """Return the stream with an orderly end, with a failure somewhere, or without any end."""
    events, chance = list(stream.events), of.random()
    if failures and chance < 0.4:
        events.insert(of.randint(0, len(events)), of.choice(failures)())
    if chance < 0.3 or chance > 0.45:
        events += end
    if not events:
        events = end or [Event("error", b"it broke", "error", failure())]
    return replace(stream, events=tuple(events))


def _disturbed(of: random.Random, stream: Stream) -> Stream:
    """Return an event stream with keep-alives anywhere, written in one of the ways of the protocol."""
    events: list[Event] = []
    for event in stream.events:
        while of.random() < 0.15:
            events.append(of.choice(_KEEP_ALIVES))
        events.append(event)
    framing = Framing(
        line_end=of.choice((b"\n", b"\n", b"\r\n", b"\r")),
        space=of.random() < 0.7,
        before=tuple(of.choices(_LINES_BEFORE, k=of.choice((0, 0, 1, 2)))),
        mark=of.choice((b"", b"", b"", b"\xef\xbb\xbf")),
        name_last=of.random() < 0.2,
        loose=of.random() < 0.2,
        ascii_only=of.random() < 0.5,
    )
    return replace(stream, events=tuple(events), framing=framing)


def _shuffled(of: random.Random, data: Any) -> Any:
    """Return an object with its members in another order; an order means nothing in JSON."""
    if isinstance(data, dict):
        members = [(key, _shuffled(of, value)) for key, value in data.items()]
        of.shuffle(members)
        return dict(members)
    return [_shuffled(of, part) for part in data] if isinstance(data, list) else data


def _cut(of: random.Random, stream: Stream) -> Sent:
    body, parts = stream.body(), stream.parts()
    how = of.choice(("events", "anywhere", "often", "once", "joined"))
    if how == "events":
        cut = parts
    elif how == "joined":
        at = of.randint(0, len(parts))
        cut = [part for part in (b"".join(parts[:at]), b"".join(parts[at:])) if part]
    else:
        count = {"anywhere": 6, "often": len(body) // 2, "once": 1}[how]
        places = sorted({of.randint(1, len(body) - 1) for _ in range(count)})
        cut = [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]
    return Sent(stream, tuple(cut), of.random() < 0.5, how)


def sent(number: int) -> Sent:
    """Return the answer of this number: always the same one."""
    of = random.Random(number)
    stream = of.choice(_MAKERS)(of)
    if of.random() < 0.15:
        events = (replace(event, data=_shuffled(of, event.data)) for event in stream.events)
        stream = replace(stream, events=tuple(events), shape="random, shuffled")
    if stream.content_type == SSE:
        stream = _disturbed(of, stream)
    elif of.random() < 0.3:
        stream = replace(stream, framing=Framing(line_end=b"\r\n", ascii_only=False))
    answer = _cut(of, stream)
    return replace(answer, cut=f"number {number}, {answer.cut}")


FIELDS = ("outcome", "error.type", "error.code", "chunks", "stream.frames", "stream.keep_alives")
COUNT = int(os.environ.get("TRUTH_STREAMS", "2000"))
SEED = int(os.environ.get("TRUTH_SEED", "0"))
AT_ONCE = 10_000
"""Streams of one log directory."""


def batches() -> Iterator[range]:
    """Give the numbers of the streams, some at once."""
    for start in range(SEED, SEED + COUNT, AT_ONCE):
        yield range(start, min(start + AT_ONCE, SEED + COUNT))


def test_the_slow_reader_and_the_builder_agree_on_random_streams() -> None:
    for number in range(SEED, SEED + COUNT):
        answer = sent(number)
        true = truth(answer.stream)
        found = read(answer.stream.body(), answer.stream.content_type).facts()
        assert {name: found.get(name) for name in FIELDS} == {name: true.get(name) for name in FIELDS}, str(answer)


@pytest.mark.servers
def test_records_of_random_streams_agree_with_the_slow_reader(
    configure: Configure, tmp_path: Path, comparison: Comparison
) -> None:
    for numbers in batches():
        here = tmp_path / str(numbers.start)
        recorded = Recorded(
            configure(directory=here / "segments", queue_directory=here / "queues", queue_bytes=32 << 20)
        )
        try:
            for answer, record in Stage(recorded).records(map(sent, numbers)):
                found = read(answer.stream.body(), answer.stream.content_type)
                comparison.record(answer, found.facts(), record, FIELDS)
        finally:
            recorded.close()
            shutil.rmtree(here)
    comparison.conclude()


READ = [stream for stream in STREAMS if is_stream(stream)]


@pytest.mark.parametrize("stream", READ, ids=lambda stream: f"{stream.api}: {stream.shape}")
def test_the_slow_reader_finds_what_the_builder_says(stream: Stream) -> None:
    true = truth(stream)
    found = read(stream.body(), stream.content_type)
    assert {name: found.facts().get(name) for name in FIELDS} == {name: true.get(name) for name in FIELDS}
    assert found.order == [("frame" if event.kind == "usage" else event.kind) for event in stream.events] or [
        "frame" if kind == "end" else kind for kind in found.order
    ] == ["frame" if event.kind in ("usage", "end") else event.kind for event in stream.events]


def test_no_two_streams_have_one_name() -> None:
    names = [(stream.api, stream.shape) for stream in STREAMS]
    assert len(set(names)) == len(names)
