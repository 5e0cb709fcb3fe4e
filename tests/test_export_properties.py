"""Properties of exports: prefix ids, the order of rows, lanes of the time line, conversations, whatever is recorded."""

from __future__ import annotations

import io
import json
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from inference_logging.read.export import aiperf, mooncake, openai_jsonl, perfetto, sharegpt
from inference_logging.read.export.formats import Options
from inference_logging.read.export.prefixes import Prefixes
from inference_logging.read.export.prompts import Prompt
from inference_logging.read.export.requests import LeftOut, Request, arrival_nano, requests_of
from inference_logging.read.export.run import row_of
from inference_logging.read.export.spool import Spool

KEY = b"k" * 32
OPTIONS = Options(Prefixes(KEY, 16, 4.0), with_text=True)
WRITERS = [module.Writer(OPTIONS) for module in (mooncake, aiperf, openai_jsonl, sharegpt, perfetto)]

TEXTS = st.binary(max_size=2000)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
PARTS = st.dictionaries(
    st.sampled_from(
        ["type", "content", "hash", "length", "response", "arguments", "uri", "modality", "truncated", "id"]
    ),
    st.sampled_from(["text", "uri", "image", "tool_call", "blob", "x"]) | JSON,
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "tool"]), "parts": st.lists(PARTS)}) | JSON
)
PATHS = st.sampled_from(["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions"])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "gen_ai.input.messages": MESSAGES, "gen_ai.output.messages": MESSAGES, "http.request.body": st.text() | JSON,
        "gen_ai.system_instructions": st.lists(PARTS) | JSON, "gen_ai.usage.input_tokens": JSON | st.integers(0, 99),
        "gen_ai.usage.output_tokens": JSON | st.integers(0, 99), "chunks": JSON,
        "chunk_gaps_us": st.lists(JSON) | JSON,
        "url.path": PATHS | JSON,
        "duration_s": JSON, "after_response_s": JSON, "outcome": JSON, "pid": JSON, "boot_id": JSON,
        "gen_ai.response.time_to_first_chunk": JSON, "http.request.method": st.just("POST") | JSON,
        "engine.queued_s": JSON,
    },
)  # fmt: skip


@given(st.lists(TEXTS, min_size=1, max_size=4), st.integers(1, 300), st.integers(1, 64), st.floats(0.25, 8))
def test_ids_are_as_many_as_blocks_small_enough_for_doubles_and_the_same_for_the_same_prompt(
    texts: list[bytes], tokens: int, block: int, ratio: float
) -> None:
    prefixes = Prefixes(KEY, block, ratio)
    for text in texts:
        ids = prefixes.ids(Prompt(text, is_whole=True), tokens, "a")
        assert len(ids) == -(-tokens // block)
        assert all(0 <= one < 1 << 53 for one in ids)
        assert ids == prefixes.ids(Prompt(text, is_whole=True), tokens, "b")


@given(TEXTS, TEXTS, TEXTS, st.integers(1, 600))
def test_two_prompts_share_the_ids_of_the_blocks_they_share_and_no_others(
    beginning: bytes, one: bytes, other: bytes, tokens: int
) -> None:
    prompts = [beginning + one, beginning + other]
    ids, others = (OPTIONS.prefixes.ids(Prompt(prompt, is_whole=True), tokens, "a") for prompt in prompts)
    if prompts[0] == prompts[1]:
        assert ids == others
        return
    pairs = zip(*prompts, strict=False)
    common = next((at for at, (a, b) in enumerate(pairs) if a != b), min(map(len, prompts)))
    shared = min(common // 64, len(ids) - 1)
    assert ids[:shared] == others[:shared]
    assert not set(ids[shared:]) & set(others[shared:])


@given(TEXTS, st.integers(1, 300))
def test_what_is_not_known_of_a_prompt_is_shared_with_no_other(text: bytes, tokens: int) -> None:
    known = len(text) // 64
    cut = [OPTIONS.prefixes.ids(Prompt(text, is_whole=False), tokens, name) for name in "ab"]
    shared = min(known, len(cut[0]) - 1)
    assert cut[0][:shared] == cut[1][:shared]
    assert not set(cut[0][shared:]) & set(cut[1][shared:])
    unknown = [OPTIONS.prefixes.ids(None, tokens, name) for name in "ab"]
    assert not set(unknown[0]) & set(unknown[1])


@given(st.lists(st.tuples(st.integers(0, 1 << 62), st.binary(max_size=50))))
def test_a_spool_gives_back_every_row_by_arrival_and_equal_ones_in_the_order_they_came(
    rows: list[tuple[int, bytes]],
) -> None:
    with Spool() as spool:
        for row in rows:
            spool.add(*row)
        found = list(spool.rows())
    assert [(row.arrival_nano, row.content) for row in found] == sorted(rows, key=lambda row: row[0])
    assert all(row.since_first_nano == row.arrival_nano - found[0].arrival_nano for row in found)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.sampled_from("ab")), max_size=30))
def test_requests_of_one_lane_never_overlap_and_lanes_are_as_few_as_can_be(spans: list[tuple[int, int, str]]) -> None:
    writer, file = perfetto.Writer(OPTIONS), io.BytesIO()
    with Spool() as spool:
        for begin_s, length_s, boot_id in spans:
            row = writer.row(Request({"boot_id": boot_id, "outcome": "ok", "duration_s": length_s}, begin_s * 10**9))
            assert isinstance(row, bytes)
            spool.add(begin_s * 10**9, row)
        writer.write(spool.rows(), file)
    events = [event for event in json.loads(file.getvalue())["traceEvents"] if event["ph"] == "X"]
    assert len(events) == len(spans)
    free: dict[tuple[int, int], float] = {}
    for event in events:
        lane = event["pid"], event["tid"]
        assert event["ts"] >= free.get(lane, 0)
        free[lane] = event["ts"] + event["dur"]
    for pid in {event["pid"] for event in events}:
        of = [event for event in events if event["pid"] == pid]
        most = max(sum(a["ts"] <= b["ts"] < a["ts"] + a["dur"] or a is b for a in of) for b in of)
        assert len({event["tid"] for event in of}) <= most


@given(FIELDS, st.integers(0, 59))
def test_no_record_makes_a_format_fail_and_each_row_is_json(fields: dict[str, Any], second: int) -> None:
    record = {"event_name": "request", "timestamp": f"2026-11-21T05:00:{second:02}.5Z", "request_id": "a", **fields}
    (request,) = requests_of([record])
    for writer in WRITERS:
        if not isinstance(request, Request):
            return
        row = row_of(writer, request)
        if isinstance(row, LeftOut):
            assert row.reason.replace("_", "").isalpha()
        else:
            assert isinstance(orjson.loads(row), dict)


@given(st.integers(1, 10**15), st.integers(0, 10**9), st.integers(0, 10**6))
def test_the_arrival_is_exact_to_the_microsecond(arrival_us: int, duration_us: int, after_us: int) -> None:
    ended_us = arrival_us + duration_us + after_us
    whole, rest = divmod(ended_us, 10**6)
    days, seconds = divmod(whole, 86400)
    stamp = f"{_date(days)}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}000Z"
    record = {"timestamp": stamp, "duration_s": duration_us / 1e6, "after_response_s": after_us / 1e6}
    found = arrival_nano(record)
    assert found is not None
    assert abs(found - arrival_us * 1000) < 1000


def _date(days: int) -> str:
    from datetime import date, timedelta

    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
