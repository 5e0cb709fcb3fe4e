"""`inference-logging export`: each format's rows, their order, what a format can't hold, and which text leaves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from inference_logging.read.export.formats import KINDS
from inference_logging.read.export.statement import ADVICE
from tests.kit.books import verify_in_process
from tests.kit.command_line import run
from tests.kit.segment_files import log, request, write_segment

USAGE: dict[str, Any] = {"gen_ai.usage.input_tokens": 1200, "gen_ai.usage.output_tokens": 5}
CANARY = "canary-7f3a"
TRACES = ("mooncake", "vllm-timed", "guidellm", "aiperf")


pytestmark = pytest.mark.usefixtures(verify_in_process.__name__)
__all__ = ["verify_in_process"]


def message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def talk(*texts: str, **more: Any) -> dict[str, Any]:
    """Return the fields of a captured chat: user and assistant by turns, the last text is the answer."""
    asked = [message("assistant" if at % 2 else "user", text) for at, text in enumerate(texts[:-1])]
    return {"gen_ai.input.messages": asked, "gen_ai.output.messages": [message("assistant", texts[-1])], **more}


def export(directory: Path, form: str, *options: str) -> tuple[str, dict[str, Any]]:
    """Return the content of the file and the statement."""
    out, statement = directory / "out.file", directory / "statement.json"
    done = run("export", str(directory), "--format", form, "-o", str(out), "--statement", str(statement), *options)
    found = json.loads(statement.read_text())
    requests = found["requests"]
    assert done.code == (1 if requests["left_out"] and not requests["exported"] else 0), done.err
    return out.read_text(), found


def table(sql: str) -> list[tuple[Any, ...]]:
    """Return the rows that DuckDB finds."""
    return duckdb.connect().execute(sql).fetchall()


def lines(directory: Path, form: str, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in export(directory, form, *options)[0].splitlines()]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Write requests in the order of their ends: the first to end was the last to arrive but one."""
    first = request(10, duration_s=0.5, after_response_s=0.25, **USAGE, **talk("a" * 6000 + "b", "yes"))
    second = request(11, duration_s=10.0, **USAGE, **talk("a" * 6000 + CANARY, "no"))
    write_segment(tmp_path, [first, second, log(12)], compressed=True, resource={"k8s.pod.name": "pod-a"})
    third = request(12.5, "client_disconnect", duration_s=2.0, chunks=40, **{"gen_ai.usage.input_tokens": 30})
    fourth = request(13, "error", duration_s=0.1)
    write_segment(tmp_path, [third, fourth], number=2, second=12, sealed=False, tail=b'{"timest')
    return tmp_path


def test_rows_stand_by_arrival_with_the_times_that_the_records_give(directory: Path) -> None:
    # Ends, less durations: 1.0, 9.25 and 10.5 seconds after 05:00.
    assert [row["timestamp"] for row in lines(directory, "mooncake")] == [0, 8250, 9500]
    assert [row["timestamp"] for row in lines(directory, "aiperf")] == [0.0, 8250.0, 9500.0]
    for form in ("vllm-timed", "guidellm"):
        assert [row["timestamp"] for row in lines(directory, form)] == [0.0, 8.25, 9.5]


@pytest.mark.parametrize("form", TRACES)
def test_lengths_are_the_counted_tokens_and_a_stream_without_a_count_has_its_chunks(form: str, directory: Path) -> None:
    found = lines(directory, form)
    assert [(row["input_length"], row["output_length"]) for row in found] == [(1200, 5), (1200, 5), (30, 40)]
    assert [row["output_length_from"] for row in found] == ["usage", "usage", "chunks"]


@pytest.mark.parametrize("form", TRACES)
def test_an_aborted_request_says_where_it_was_aborted(form: str, directory: Path) -> None:
    aborted = lines(directory, form)[2]
    assert [aborted[name] for name in ("outcome", "duration", "chunks", "output_length")] == [
        "client_disconnect",
        2.0,
        40,
        40,
    ]


@pytest.mark.parametrize(("form", "block"), [("mooncake", 512), ("guidellm", 512), ("vllm-timed", 16)])
def test_prompts_that_begin_alike_share_their_first_ids_and_no_more(form: str, block: int, directory: Path) -> None:
    second, first, third = (row["hash_ids"] for row in lines(directory, form))
    assert [len(ids) for ids in (first, second, third)] == [-(-1200 // block), -(-1200 // block), -(-30 // block)]
    shared = next(at for at, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1])
    # Blocks of four bytes a token, but for the last one, which is never shared.
    assert shared == min(6000 // (4 * block), len(first) - 1)
    assert not set(first[shared:]) & set(second[shared:]) | set(third) & set(first + second)


def test_ids_are_equal_with_the_same_key_only(directory: Path) -> None:
    key, other = directory / "key", directory / "other"
    key.write_bytes(b"k" * 32)
    other.write_text("6b" * 32 + "\n")
    by_key, again = (lines(directory, "mooncake", "--hash-key-file", str(path)) for path in (key, other))
    assert by_key == again, "the same key, as bytes and as digits"
    assert lines(directory, "mooncake")[0]["hash_ids"] != by_key[0]["hash_ids"]
    other.write_text("too short")
    done = run("export", str(directory), "--format", "mooncake", "-o", "-", "--hash-key-file", str(other))
    assert (done.code, "64 hexadecimal digits" in done.err) == (2, True)


def test_aiperf_gets_no_ids_where_no_text_is_known(directory: Path) -> None:
    assert ["hash_ids" in row for row in lines(directory, "aiperf")] == [True, True, False]


def test_with_text_aiperf_gets_bodies_in_place_of_lengths(directory: Path) -> None:
    text, statement = export(directory, "aiperf", "--text")
    found = [json.loads(line) for line in text.splitlines()]
    assert [row["payload"]["messages"][0]["content"][-1] for row in found] == [CANARY[-1], "b"]
    assert not any("input_length" in row or "hash_ids" in row for row in found)
    assert statement["requests"]["left_out"] == {"no_body": 1, "no_input_tokens": 1}


@pytest.mark.parametrize("form", KINDS)
def test_text_leaves_only_where_the_format_is_made_of_it(form: str, directory: Path) -> None:
    out = directory / "out.file"
    assert run("export", str(directory), "--format", form, "-o", str(out)).code == 0
    content = out.read_bytes()
    if form == "parquet":
        content = str(duckdb.read_parquet(str(out)).fetchall()).encode()
    assert (CANARY.encode() in content) == (form in ("openai-jsonl", "sharegpt"))


def test_a_batch_line_has_the_body_its_source_the_arrival_and_the_result(tmp_path: Path) -> None:
    raw = '{"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": []}'
    facts: dict[str, Any] = {"gen_ai.request.model": "m", "gen_ai.request.stream": True, "gen_ai.request.max_tokens": 7}
    rebuilt = request(2, duration_s=0.5, **USAGE, **talk("hi", "yes"), **facts)
    write_segment(tmp_path, [request(1, **{"http.request.body": raw}), rebuilt], resource={"k8s.pod.name": "p"})
    first, second = lines(tmp_path, "openai-jsonl")
    assert (first["method"], first["url"], first["body_source"]) == ("POST", "/v1/chat/completions", "raw")
    assert first["body"] == json.loads(raw)
    assert second["body_source"] == "messages"
    assert second["body"] == {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 7
    }  # fmt: skip
    assert (second["timestamp"], second["arrival_unix_nano"] - first["arrival_unix_nano"]) == (1.0, 1_000_000_000)
    recorded = second["recorded"]
    assert (recorded["outcome"], recorded["http.response.status_code"], recorded["duration_s"]) == ("ok", 200, 0.5)
    assert (recorded["k8s.pod.name"], recorded["hash_block_tokens"], len(recorded["hash_ids"])) == ("p", 512, 3)
    assert len(recorded["prompt_hash"]) == len(recorded["output_hash"]) == 32
    assert first["recorded"]["output_hash"] is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "no_body"),
        ({"http.request.method": "GET"}, "not_post"),
        ({"http.request.body": "{}", "http.request.body.truncated": True}, "body_truncated"),
        ({"http.request.body": "a=1"}, "body_not_json"),
        ({"http.request.body": "[1]"}, "body_not_json"),
        ({**talk("a", "b"), "input_truncated": True}, "body_truncated"),
        ({**talk("a", "b"), "url.path": "/generate"}, "unknown_api"),
        ({"gen_ai.input.messages": [{"role": "user", "parts": [{"type": "blob", "hash": "1"}]}]}, "media"),
        (
            {"gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "length": 3, "hash": "1"}]}]},
            "body_hashed",
        ),
    ],
)
def test_a_request_that_can_not_be_sent_again_is_left_out_with_its_reason(
    fields: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    write_segment(tmp_path, [request(1, **fields)])
    text, statement = export(tmp_path, "openai-jsonl")
    assert (text, statement["requests"]["left_out"]) == ("", {reason: 1})


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "hi"}),
        ("/v1/embeddings", {"input": "hi"}),
        ("/v1/messages", {"system": "be nice", "messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/responses", {"instructions": "be nice", "input": [{"role": "user", "content": "hi"}]}),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "system", "content": "be nice"}, {"role": "user", "content": "hi"}]},
        ),
    ],
)
def test_a_body_is_rebuilt_in_the_form_of_its_api(path: str, body: dict[str, Any], tmp_path: Path) -> None:
    system: dict[str, Any] = {"gen_ai.system_instructions": [{"type": "text", "content": "be nice"}]}
    write_segment(tmp_path, [request(1, url__path=path, **talk("hi", "yes"), **system)])
    assert lines(tmp_path, "openai-jsonl")[0]["body"] == body


def test_a_chat_with_tools_and_an_image_is_rebuilt(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "parts": [{"type": "text", "content": "see"}, {"type": "uri", "modality": "image", "uri": "http://i"}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "f", "arguments": "{}"}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": "4"}]},
    ]  # fmt: skip
    asked: dict[str, Any] = {"gen_ai.input.messages": messages}
    write_segment(tmp_path, [request(1, **asked)])
    user, call, result = lines(tmp_path, "openai-jsonl")[0]["body"]["messages"]
    assert user["content"] == [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "http://i"}}]
    assert call["tool_calls"] == [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    assert (call["content"], result) == (None, {"role": "tool", "tool_call_id": "1", "content": "4"})


def test_a_conversation_has_two_speakers_by_turns_and_begins_with_the_human(tmp_path: Path) -> None:
    asked = [
        message("system", "be nice"),
        message("user", "one"),
        message("assistant", "two"),
        message("user", "three"),
    ]
    fields: dict[str, Any] = {"gen_ai.input.messages": asked, "gen_ai.output.messages": [message("assistant", "four")]}
    cut = talk("a", "b", output_truncated=True)
    write_segment(tmp_path, [request(1, **fields), request(2), request(3, **cut)])
    text, statement = export(tmp_path, "sharegpt")
    (found,) = json.loads(text)
    said = [(turn["from"], turn["value"]) for turn in found["conversations"]]
    assert said == [("human", "be nice\n\none"), ("gpt", "two"), ("human", "three"), ("gpt", "four")]
    assert statement["requests"]["left_out"] == {"no_text": 1, "text_truncated": 1}
    assert json.loads(export(tmp_path, "sharegpt", "--where", "outcome=error")[0]) == []


def test_the_time_line_nests_parts_marks_chunks_and_names_processes(tmp_path: Path) -> None:
    first: dict[str, Any] = {"gen_ai.response.time_to_first_chunk": 0.25}
    engine: dict[str, Any] = {"engine.queued_s": 0.1, "engine.prefill_s": 0.2, "engine.decode_s": 0.4}
    chunk = {"event_name": "request.chunk", "request_id": "a"}
    records = [
        log(1, chunk=1, since_start_s=0.3, **chunk),
        log(2, chunk=2, since_start_s=0.4, **chunk),
        request(10, duration_s=1.0, **{**engine, "request_id": "a"}),
        request(10.5, "process_died", duration_s=1.0, **first),
        request(20, duration_s=1.0, chunk_gaps_us=[1000], **first),
    ]
    write_segment(tmp_path, records, resource={"k8s.pod.name": "pod-a"})
    events = json.loads(export(tmp_path, "perfetto")[0])["traceEvents"]
    named = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert named == {"pod-a pid 1 (00000000deadbeef)", "requests 1", "requests 2"}

    def of(lane: int, kind: str) -> Iterator[tuple[Any, ...]]:
        found = (event for event in events if event["tid"] == lane and event["ph"] == kind)
        yield from ((event["name"], event["ts"], event.get("dur")) for event in found)

    assert list(of(1, "X")) == [
        ("/v1/chat/completions", 0.0, 1_000_000.0), ("queue", 0.0, 100_000.0), ("prefill", 100_000.0, 200_000.0),
        ("decode", 300_000.0, 400_000.0), ("/v1/chat/completions", 10_000_000.0, 1_000_000.0),
        ("waiting", 10_000_000.0, 250_000.0), ("streaming", 10_250_000.0, 750_000.0),
    ]  # fmt: skip
    assert list(of(1, "i")) == [
        ("chunk", 300_000.0, None), ("chunk", 400_000.0, None),
        ("chunk", 10_250_000.0, None), ("chunk", 10_251_000.0, None),
    ]  # fmt: skip
    assert ("process_died", 1_500_000.0, None) in of(2, "i")


def test_parquet_has_the_columns_of_query_typed_and_sorted_by_arrival(directory: Path) -> None:
    out = directory / "out.parquet"
    assert run("export", str(directory), "--format", "parquet", "-o", str(out), "--text").code == 0
    found = table(f"""SELECT strftime(arrival, '%H:%M:%S.%f'), duration_s, chunks, outcome, "k8s.pod.name"
        FROM '{out}'""")
    assert found == [
        ("05:00:01.000000", 10.0, None, "ok", "pod-a"), ("05:00:09.250000", 0.5, None, "ok", "pod-a"),
        ("05:00:10.500000", 2.0, 40, "client_disconnect", None), ("05:00:12.900000", 0.1, None, "error", None),
    ]  # fmt: skip
    types = dict(table(f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM '{out}')"))
    assert (types["arrival"], types["gen_ai.usage.input_tokens"], types["chunk_gaps_us"]) == (
        "TIMESTAMP", "BIGINT", "BIGINT[]"
    )  # fmt: skip
    done = run("query", "DESCRIBE requests", str(directory), "--format", "json")
    assert {json.loads(line)["column_name"] for line in done.out.splitlines()} <= set(types)
    text = table(f"""SELECT "gen_ai.input.messages" FROM '{out}' LIMIT 1""")
    assert CANARY in str(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("http.response.status_code", "odd"), ("gen_ai.usage.input_tokens", 2**64 - 1), ("chunk_gaps_us", [1, "x"]),
        ("http.route", {"a": 1}), ("gen_ai.response.finish_reasons", "stop"), ("tenant.id", "a\0b"), ("pid", None),
    ],
)  # fmt: skip
def test_a_value_that_its_parquet_column_does_not_take_is_in_other(name: str, value: Any, tmp_path: Path) -> None:
    write_segment(tmp_path, [request(1), request(2, **{name: value, "gen_ai.input.messages": CANARY})])
    out = tmp_path / "out.parquet"
    done = run("export", str(tmp_path), "--format", "parquet", "-o", str(out))
    assert done.code == 0, done.err
    found = table(f"""SELECT "{name}", other FROM '{out}' ORDER BY arrival""")
    assert (found[0][1], found[1][0], json.loads(found[1][1])) == (None, None, {name: value})


def test_filters_are_those_of_tail_and_times_are_arrivals(directory: Path) -> None:
    def counted(*options: str) -> tuple[int, int]:
        requests = export(directory, "perfetto", *options)[1]["requests"]
        assert requests["read"] == requests["exported"] + requests["filtered_out"] == 4
        return requests["exported"], requests["filtered_out"]

    assert counted() == (4, 0)
    assert counted("--where", "outcome!=ok") == (2, 2)
    assert counted("--where", "k8s.pod.name=pod-a") == (2, 2)
    assert counted("--where", "duration_s>1", "--where", "outcome=ok") == (1, 3)
    assert counted("--since", "2026-11-21T05:00:09Z") == (3, 1)
    assert counted("--until", "2026-11-21T05:00:10Z", "--since", "2026-11-21T05:00:01Z") == (2, 2)
    assert counted("--trace", f"{10_000:032x}") == (1, 3)
    done = run("export", str(directory), "--format", "mooncake", "-o", "-", "--where", "nope=1")
    assert (done.code, done.out, "no record has the field 'nope'" in done.err) == (2, "", True)


@pytest.mark.parametrize(
    ("form", "options", "code", "why"),
    [
        (
            "mooncake",
            ["--where", "outcome=error"],
            1,
            "mooncake cannot hold them (no_input_tokens): the answers had no usage",
        ),
        (
            "openai-jsonl",
            ["--where", "outcome=error"],
            1,
            "openai-jsonl cannot hold them (no_body): set capture_body: ",
        ),
        (
            "sharegpt",
            ["--where", "outcome=error"],
            1,
            "sharegpt cannot hold them (no_text): set capture_input: full and",
        ),
        ("perfetto", ["--trace", "4BF9"], 0, "no trace_id begins with 4bf9"),
        ("perfetto", ["--since", "2027-01-01"], 0, "no request arrived in that time"),
        (
            "perfetto",
            ["--until", "2026-11-21T05:00:05Z", "--where", "outcome=error"],
            0,
            "in that time no record has outcome=error (there are ok)",
        ),
    ],
)
def test_a_file_without_requests_says_in_one_line_why_and_what_to_do(
    form: str, options: list[str], code: int, why: str, directory: Path
) -> None:
    done = run("export", str(directory), "--format", form, "-o", str(directory / "out.file"), *options)
    said = [line for line in done.err.splitlines() if "nothing exported" in line]
    assert (done.code, len(said), "complete: nothing lost" in done.err) == (code, 1, False), done.err
    assert said[0].startswith(f"inference-logging export: nothing exported: {why}")
    assert "nothing exported" not in run("export", str(directory), "--format", "perfetto", "-o", "-").err


def test_what_is_missing_counts_more_than_requests_that_are_not_meant(tmp_path: Path) -> None:
    gets = [request(at, http__request__method="GET") for at in range(3)]
    write_segment(tmp_path, [*gets, request(4)])
    done = run("export", str(tmp_path), "--format", "openai-jsonl", "-o", str(tmp_path / "out.file"))
    assert "3 not_post, 1 no_body" in done.err
    assert "nothing exported: openai-jsonl cannot hold them (no_body): set capture_body: " in done.err
    assert (done.code, "sampled out" in done.err) == (1, False), "what is 0 is not listed"


def test_every_reason_of_the_page_says_what_to_do() -> None:
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    paragraph = page.partition("Requests that a format can't hold")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+)`", paragraph)) == set(ADVICE)


def test_standard_output_a_device_and_one_segment(directory: Path) -> None:
    done = run("export", str(directory), "--format", "mooncake", "-o", "-")
    assert len(done.out.splitlines()) == 3
    assert run("export", str(directory), "--format", "mooncake", "-o", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()
    (segment,) = directory.glob("*.zst")
    done = run("export", str(segment), "--format", "mooncake", "-o", "-")
    assert len(done.out.splitlines()) == 2
    assert "not complete: one segment was read" in done.err


def test_a_file_that_can_not_be_written_stays_as_it_was(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = directory / "out.jsonl"
    out.write_text("before")
    monkeypatch.setattr("inference_logging.read.export.traces.write_timed", _fail)
    done = run("export", str(directory), "--format", "mooncake", "-o", str(out))
    assert (done.code, out.read_text(), list(directory.glob("*.partial"))) == (1, "before", [])
    assert "disk full" in done.err


def _fail(*_: object) -> None:
    raise OSError("disk full")
