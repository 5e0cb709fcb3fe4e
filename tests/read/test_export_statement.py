"""The statement of `export`, on what servers really wrote, and what holds for any export."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shlex
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_logging import Config, InferenceLoggingMiddleware, Logger, get_logger
from inference_logging.cli.export import command
from inference_logging.cli.main import COMMANDS
from inference_logging.read.export import perfetto
from inference_logging.read.export.formats import KINDS, Options, writer
from inference_logging.read.export.prompts import Prefixes, Prompt
from inference_logging.read.export.requests import LeftOut, Request, arrival_nano, requests_of
from inference_logging.read.export.run import row_of
from inference_logging.read.export.spool import Spool
from tests.kit.books import verify_in_process
from tests.kit.command_line import Done, run
from tests.kit.signatures import Configure, Recording
from tests.kit.support import Client, Recorded, answer, body_messages, http_scope, replying

__all__ = ["verify_in_process"]
JSON_HEADERS = [(b"content-type", b"application/json")]
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
ANSWER = json.dumps({"usage": {"prompt_tokens": 7, "completion_tokens": 3}, "choices": []}).encode()


def serve(recorded: Recorded, count: int = 1) -> None:
    app = replying(*answer(ANSWER, content_type=b"application/json"))
    for _ in range(count):
        recorded.serve(app, http_scope("/v1/chat/completions", "POST", JSON_HEADERS), body_messages(BODY))


def export(config: Config, *options: str, form: str = "mooncake") -> tuple[Done, dict[str, Any]]:
    """Return the command's end, and the statement; the trace is its standard output."""
    path = config.directory / "statement.json"
    queues = f"--queue-directory={config.resolved_queue_directory}"
    done = run("export", str(config.directory), "--format", form, "-o", "-", "--statement", str(path), queues, *options)
    return done, json.loads(path.read_text())


def test_of_a_closed_server_everything_is_exported_and_the_statement_says_so(recording: Recording) -> None:
    recorded = recording()
    serve(recorded, 5)
    assert get_logger("t").info("not a request")
    recorded.close()
    # With the process of its own that users have.
    done, statement = export(recorded.config, "--require-complete")
    assert (done.code, len(done.out.splitlines())) == (0, 5)
    assert (statement["complete"], statement["faults"]) == (True, [])
    assert [statement["requests"][name] for name in ("read", "exported", "filtered_out", "stands_for")] == [
        5,
        5,
        0,
        5.0,
    ]
    assert [statement["records"][name] for name in ("accepted", "written", "lost", "missing")] == [6, 6, 0, 0]
    assert "complete: nothing lost, nothing missing" in done.err


@pytest.mark.usefixtures("verify_in_process")
def test_a_removed_line_is_missing_and_complete_is_not_claimed(recording: Recording) -> None:
    recorded = recording()
    serve(recorded, 5)
    recorded.close()
    (segment,) = (path for path in recorded.config.directory.glob("*.jsonl") if not path.is_symlink())
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[:2] + lines[3:]))
    done, statement = export(recorded.config)
    assert (done.code, statement["complete"], statement["requests"]["exported"]) == (0, False, 4)
    assert statement["records"]["missing"] == 1
    assert any("1 records: line_removed" in fault for fault in statement["faults"])
    done, _ = export(recorded.config, "--require-complete")
    assert (done.code, len(done.out.splitlines())) == (1, 4)
    later, statement = export(recorded.config, "--require-complete", "--since", "2199-01-01")
    assert (later.code, later.out, statement["requests"]["read"]) == (0, "", 0), "nothing of that time is missing"


@pytest.mark.usefixtures("verify_in_process")
def test_records_that_were_refused_are_named_with_their_reason(configure: Configure) -> None:
    config = configure(max_record_bytes=12288)
    with Logger(config):
        assert not get_logger("t").info("x" * 100_000)
    done, statement = export(config, "--require-complete")
    assert (done.code, statement["records"]["dropped"]) == (1, {"oversize": 1})
    assert any(fault.endswith("1 records refused: oversize") for fault in statement["faults"])


@pytest.mark.usefixtures("verify_in_process")
def test_records_that_still_wait_in_a_queue_are_not_claimed(configure: Configure) -> None:
    config = configure(listener="external")
    config.directory.mkdir()
    with Logger(config.model_copy(update={"listener": "thread"})):
        get_logger("t").info("written")
    child = os.fork()
    if child == 0:
        try:
            Logger(config)
            get_logger("t").info("waits")
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    done, statement = export(config, "--require-complete")
    assert (done.code, statement["records"]["in_queue"]) == (1, 1)
    assert any(fault.endswith("1 records wait in its queue") for fault in statement["faults"])


@pytest.mark.usefixtures("verify_in_process")
def test_what_sampling_left_out_is_counted_and_the_rest_has_its_weight(recording: Recording) -> None:
    recorded = recording(sample_ratio=0.5)
    serve(recorded, 60)
    recorded.close()
    done, statement = export(recorded.config, "--require-complete")
    requests = statement["requests"]
    assert (done.code, statement["complete"]) == (0, True)
    assert requests["exported"] + statement["records"]["sampled_out"]["head"] == 60
    assert requests["stands_for"] == 2 * requests["exported"]


@pytest.mark.usefixtures("verify_in_process")
def test_a_request_whose_process_was_killed_is_exported_with_how_far_it_came(configure: Configure) -> None:
    config = configure()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(_stream_until_killed(config, write_end))
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.read(read_end, 1) == b"x"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with Logger(config):
        pass
    done, statement = export(config, "--require-complete", form="perfetto")
    assert (done.code, statement["requests"]["by_outcome"]) == (0, {"process_died": 1})
    events = json.loads(done.out)["traceEvents"]
    (whole,) = (event for event in events if event.get("cat") == "request")
    assert (whole["args"]["chunks"], whole["args"]["outcome"]) == (2, "process_died")
    (end,) = (event for event in events if event.get("cat") == "end")
    assert (end["name"], end["ts"]) == ("process_died", whole["dur"])


async def _stream_until_killed(config: Config, write_end: int) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for _ in range(2):
            await send({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True})
        os.write(write_end, b"x")
        await asyncio.sleep(600)

    client = Client([])
    with Logger(config):
        await InferenceLoggingMiddleware(app, config=config)(http_scope("/stream"), client.receive, client.send)


@pytest.mark.usefixtures("verify_in_process")
def test_damaged_lines_are_counted_and_named(recording: Recording) -> None:
    recorded = recording()
    serve(recorded, 2)
    recorded.close()
    (segment,) = (path for path in recorded.config.directory.glob("*.jsonl") if not path.is_symlink())
    segment.write_bytes(segment.read_bytes().replace(b'"pid"', b'"pid', 1))
    done, statement = export(recorded.config, "--require-complete")
    assert (done.code, statement["records"]["damaged_lines"]) == (1, 1)
    assert "not JSON" in done.err


@pytest.mark.parametrize("form", ["mooncake", "openai-jsonl"])
@pytest.mark.usefixtures("verify_in_process")
def test_what_is_captured_is_what_is_exported_and_the_arrival_is_when_it_came(form: str, recording: Recording) -> None:
    import time

    recorded = recording(capture_input="full", capture_output="full")
    before = time.time()
    serve(recorded)
    after = time.time()
    recorded.close()
    done, statement = export(recorded.config, form=form)
    line = json.loads(done.out)
    arrival = statement["requests"]["first_arrival"]
    if form == "openai-jsonl":
        assert (line["body"], line["body_source"]) == (json.loads(BODY), "messages")
        assert before - 0.001 <= line["arrival_unix_nano"] / 1e9 <= after
    else:
        assert (line["input_length"], line["output_length"], line["timestamp"]) == (7, 3, 0)
    assert arrival is not None


@pytest.mark.servers
def test_the_examples_of_the_help_run(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = recording(capture_input="full", capture_output="full")
    serve(recorded)
    recorded.close()
    monkeypatch.chdir(recorded.config.directory.parent)
    monkeypatch.setenv("INFERENCE_LOGGING_DIRECTORY", str(recorded.config.directory))
    monkeypatch.setenv("INFERENCE_LOGGING_QUEUE_DIRECTORY", str(recorded.config.resolved_queue_directory))
    Path("logs").symlink_to(recorded.config.directory)
    _, _, shown = (command.epilog or "").partition("Examples:\n")
    examples = [line.strip() for line in shown.splitlines()]
    assert COMMANDS["export"].example in examples
    for example in examples:
        done = run(*shlex.split(example)[1:])
        # Only "llama" is asked for by one of them, which this server did not serve.
        assert done.code == 0, done.err
        assert "requests: 1 read" in done.err


KEY = b"k" * 32
OPTIONS = Options(Prefixes(KEY, 16, 4.0), with_text=True)
WRITERS = [writer(form, OPTIONS) for form in KINDS if form != "parquet"]
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


@pytest.mark.servers
@given(FIELDS, st.integers(0, 59))
def test_no_record_makes_a_format_fail_and_each_row_is_json(fields: dict[str, Any], second: int) -> None:
    record = {"event_name": "request", "timestamp": f"2026-11-21T05:00:{second:02}.5Z", "request_id": "a", **fields}
    (request,) = requests_of([record])
    for made in WRITERS:
        if not isinstance(request, Request):
            return
        row = row_of(made, request)
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
