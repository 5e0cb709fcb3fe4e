"""Each example stream of each API, cut at every byte and in the ways that servers cut, leaves the same true record."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.kit.signatures import Recording
from tests.truth.catalogue import BLANK, STREAMS, by_name, compressed, is_stream, large, long
from tests.truth.events import CHUNKS, FIELDS, JSON, Event, Stream, errors, truth
from tests.truth.in_process import Sent, Stage, cut_at_every_byte, usual_cuts
from tests.truth.table import Comparison

EXAMPLES = [stream for stream in STREAMS if is_stream(stream)]
"""Streams of events, which are cut at every place."""

DOCUMENTS = [stream for stream in STREAMS if len(stream.events) == 1 and not is_stream(stream)]
ONE_OF_EACH = [stream for stream in EXAMPLES if stream.shape in ("plain", "tool call", "thinking", "objects")]
COUNTS = ("chunks", "stream.frames", "stream.keep_alives")

Stages = Callable[..., Stage]


def named(stream: Stream) -> str:
    return f"{stream.api}: {stream.shape}"


@pytest.fixture
def staging(recording: Recording) -> Stages:
    return lambda **parameters: Stage(recording(queue_bytes=32 << 20, **parameters))


@pytest.mark.parametrize("stream", EXAMPLES, ids=named)
def test_a_stream_leaves_one_true_record_however_its_messages_are_cut(
    stream: Stream, staging: Stages, comparison: Comparison
) -> None:
    true = truth(stream)
    for sent, record in staging().records(itertools.chain(usual_cuts(stream), cut_at_every_byte(stream))):
        comparison.record(sent, true, record)
    comparison.conclude()


def test_events_of_any_size_leave_one_true_record(staging: Stages, comparison: Comparison) -> None:
    sent = [cut for size in (5_000, 70_000) for stream in large(size) for cut in usual_cuts(stream)]
    for answer, record in staging().records(sent):
        comparison.record(answer, truth(answer.stream), record)
    comparison.conclude()


@pytest.mark.parametrize("mode", ["timeline", "events"])
def test_each_gap_between_two_events_with_content_is_noted(mode: str, staging: Stages, comparison: Comparison) -> None:
    for sent, record in staging(chunks=mode).records(cut for stream in ONE_OF_EACH for cut in usual_cuts(stream)):
        true, gaps = truth(sent.stream)["chunks"] - 1, record.get("chunk_gaps_us", [])
        if mode == "timeline":
            comparison.holds(sent, "chunk_gaps_us", f"{true} of them", gaps, len(gaps) == true)
        has_bounds = {"chunk_gap_min_us", "chunk_gap_mean_us", "chunk_gap_max_us"} <= record.keys()
        comparison.holds(
            sent, "chunk_gap_*", f"there: {true > 0}", record.get("chunk_gap_min_us"), has_bounds == (true > 0)
        )
    comparison.conclude()


def test_each_first_has_a_time_only_if_it_came_and_nothing_else_was_first(
    staging: Stages, comparison: Comparison
) -> None:
    for sent, record in staging().records(cut for stream in EXAMPLES for cut in usual_cuts(stream)):
        kinds = [event.kind for event in sent.stream.events if event.kind in CHUNKS]
        expected = {
            "time_to_first_byte_s": True,
            "gen_ai.response.time_to_first_chunk": bool(kinds),
            "gen_ai.response.time_to_first_reasoning": "reasoning" in kinds and kinds[0] != "reasoning",
            "gen_ai.response.time_to_first_tool_call": "tool" in kinds and kinds[0] != "tool",
        }
        for name, true in expected.items():
            comparison.holds(sent, name, f"there: {true}", record.get(name), (name in record) == true)
    comparison.conclude()


@pytest.mark.parametrize("stream", DOCUMENTS, ids=named)
def test_an_answer_that_is_no_stream_says_the_same_in_one_message_and_in_two(
    stream: Stream, staging: Stages, comparison: Comparison
) -> None:
    true, fields = truth(stream), tuple(field for field in FIELDS if field not in COUNTS)
    whole = Sent(stream, (stream.body(),), last_ends=True, cut="one message")
    for sent, record in staging().records([whole, *cut_at_every_byte(stream)]):
        comparison.record(sent, true, record, fields)
    comparison.conclude()


def test_each_element_of_an_array_of_gemini_is_an_event(staging: Stages, comparison: Comparison) -> None:
    stream = by_name("gemini array", "plain")
    for sent, record in staging().records(usual_cuts(stream)):
        if len([part for part in sent.parts if part]) > 1:
            comparison.record(sent, truth(stream), record, COUNTS)
    comparison.conclude()


def test_each_message_of_a_body_that_is_neither_events_nor_lines_is_a_chunk(
    staging: Stages, comparison: Comparison
) -> None:
    document = Stream("document", "list", "/list", (Event("content", wire=b'[{"a": 1}, {"a": 2}]'),), JSON)
    for sent, record in staging().records(usual_cuts(document)):
        parts = [part for part in sent.parts if part]
        if len(parts) > 1:
            comparison.record(sent, {"chunks": len(parts)}, record, COUNTS)
    comparison.conclude()


def test_messages_of_blank_lines_are_keep_alives(staging: Stages, comparison: Comparison) -> None:
    sent = [
        Sent(BLANK, tuple(BLANK.parts()), cut="an event a message"),
        Sent(BLANK, (b"\r\n", *BLANK.parts()[1:]), cut="a blank line a message"),
    ]
    for answer, record in staging().records(sent):
        comparison.record(answer, truth(BLANK), record)
    comparison.conclude()


@pytest.mark.parametrize(("ending", "outcome"), [("left", "client_disconnect"), ("raised", "error")])
def test_a_stream_that_is_broken_off_after_any_event_says_what_was_known_by_then(
    ending: str, outcome: str, staging: Stages, comparison: Comparison
) -> None:
    sent = [
        Sent(stream.before(count), tuple(stream.parts()[:count]), cut=f"after {count} events", ending=ending)
        for stream in ONE_OF_EACH
        for count in range(len(stream.events))
    ]
    fields = FIELDS if ending == "left" else tuple(field for field in FIELDS if field != "error.type")
    for answer, record in staging().records(sent):
        comparison.record(answer, truth(answer.stream, outcome), record, fields)
        if ending == "raised":
            recorded = str(record.get("error.type"))
            comparison.holds(answer, "error.type", "EngineDeadError", recorded, "EngineDeadError" in recorded)
    comparison.conclude()


@pytest.mark.parametrize("api", ["messages", "responses"])
def test_what_stands_in_the_head_of_a_long_stream_is_known_at_its_end(
    api: str, staging: Stages, comparison: Comparison
) -> None:
    stream = long(api)
    parts = tuple(stream.parts())
    left = [
        Sent(stream.before(count), parts[:count], cut=f"after {count} events", ending="left")
        for count in (3, 200, len(parts) - 2)
    ]
    for sent, record in staging(capture_tail_bytes=1024).records([*usual_cuts(stream), *left]):
        outcome = "ok" if sent.ending == "whole" else "client_disconnect"
        comparison.record(sent, truth(sent.stream, outcome), record)
    comparison.conclude()


def test_parts_of_a_compressed_stream_are_counted_and_no_first_event_is_claimed(
    staging: Stages, comparison: Comparison
) -> None:
    absent = ("gen_ai.response.time_to_first_chunk", "stream.frames", "stream.keep_alives", "error.type")
    fields = ("outcome", "chunks", "stream.compressed", *absent)
    sent = [
        Sent(replace(stream, shape="gzip", encoding="gzip"), tuple(compressed(stream)), cut="a flush a message")
        for stream in (by_name("chat", "plain"), by_name("messages", "plain"), by_name("ollama", "plain"))
    ]
    for answer, record in staging().records(sent):
        true = {"outcome": "ok", "chunks": len(answer.parts), "stream.compressed": True}
        comparison.record(answer, true, record, fields)
    comparison.conclude()


def test_a_failure_leaves_its_record_where_only_errors_are_kept(staging: Stages, comparison: Comparison) -> None:
    failed = [stream for stream in STREAMS if errors(stream)]
    sent = [Sent(stream, tuple(stream.parts()), cut="an event a message, sampled") for stream in failed]
    for answer, record in staging(sample_ratio=0).found(sent):
        outcome = record.get("outcome")
        comparison.holds(answer, "outcome", "error", outcome, outcome == "error")
    comparison.conclude()
