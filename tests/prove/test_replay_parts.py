"""The parts of `replay`: reading of exports, made-up prompts, the open loop, counts of an answer, the comparison."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from inference_logging._native import AnswerReader
from inference_logging.cli.main import OK
from inference_logging.prove.replay.client import Answer, Usage
from inference_logging.prove.replay.comparison import compare
from inference_logging.prove.replay.player import Pace, Player, Result
from inference_logging.prove.replay.schedule import (
    ABORTED,
    TRACES,
    WORDS,
    Changes,
    Planned,
    Recorded,
    ReplayError,
    Schedule,
    prompt_text,
)
from tests.kit import support
from tests.kit.books import verify_in_process
from tests.kit.command_line import run
from tests.kit.segment_files import request, write_segment
from tests.kit.servers import free_port

__all__ = ["verify_in_process"]

Row = dict[str, Any]
WITH_BODY: Row = {"timestamp": 0.0, "custom_id": "a", "url": "/v1/completions", "body": {"prompt": "p"}}
TRACE: Row = {"timestamp": 0, "input_length": 1030, "output_length": 7, "hash_ids": [1, 2, 3]}
MODEL = Changes({"model": "m"})


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Write rows, or lines as they are, to a file."""

    def write(*rows: Row | str) -> Path:
        path = tmp_path / "export.jsonl"
        path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
        return path

    return write


def body_of(planned: Planned) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(planned.body)
    return body


def test_a_body_is_sent_as_it_is_but_for_what_is_changed(written: Callable[..., Path]) -> None:
    row = {**WITH_BODY, "body": {"model": "old", "prompt": "p", "tools": [{"x": None}]}, "url": "/v1/a b"}
    (planned,) = Schedule(written(row), None, Changes({"model": "new", "seed": 1}))
    assert body_of(planned) == {"model": "new", "prompt": "p", "tools": [{"x": None}], "seed": 1}
    assert (planned.path, planned.request_id) == ("/v1/a%20b", "a")


def test_prompts_share_the_text_of_equal_ids_and_have_a_word_for_each_token(written: Callable[..., Path]) -> None:
    other = {**TRACE, "hash_ids": [1, 2, 4]}
    first, second, again = (
        body_of(p)["prompt"].split(" ") for p in Schedule(written(TRACE, other, TRACE), None, MODEL)
    )
    assert [len(words) for words in (first, second)] == [1030, 1030]
    assert first[:1024] == second[:1024]
    assert first[1024:] != second[1024:]
    assert first == again
    assert prompt_text([1], 3, 512).split() == first[:3], "a block that is not full begins as the full one"
    assert first[:512] != first[512:1024]
    assert set(first) <= set(WORDS)


@pytest.mark.usefixtures(verify_in_process.__name__)
@pytest.mark.parametrize("form", ["mooncake", "vllm-timed", "guidellm", "aiperf"])
def test_every_trace_that_export_writes_is_read(form: str, tmp_path: Path) -> None:
    usage: dict[str, Any] = {"gen_ai.usage.input_tokens": 600, "gen_ai.usage.output_tokens": 5}
    write_segment(tmp_path, [request(1, **usage), request(3.25, "client_disconnect", chunks=9, **usage)])
    out = tmp_path / "trace.jsonl"
    assert run("export", str(tmp_path), "--format", form, "-o", str(out)).code == OK
    first, second = Schedule(out, None if form == "mooncake" else form, MODEL)
    assert second.offset_s - first.offset_s == pytest.approx(2.25)
    assert body_of(first)["max_tokens"] == 5
    assert body_of(second)["max_tokens"] > 9, "the answer goes on beyond the point where the client leaves"
    assert (first.recorded.input_tokens, first.recorded.output_tokens, first.recorded.outcome) == (600, 5, "ok")
    assert (first.abort_chunks, second.abort_chunks) == (None, 9)


def test_rows_without_ids_have_prompts_of_their_own(written: Callable[..., Path]) -> None:
    rows = [{"timestamp": at, "input_length": 40, "output_length": 1, "request_id": str(at)} for at in (0, 1)]
    first, second = (body_of(planned)["prompt"] for planned in Schedule(written(*rows), "aiperf", MODEL))
    assert len(first.split()) == len(second.split()) == 40
    assert first != second


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", ":2: not JSON"),
        ("[]", ":2: must be an object, not list"),
        ({**WITH_BODY, "url": "@evil.example/"}, 'url="@evil.example/": must be a path that begins with /'),
        ({**WITH_BODY, "url": None}, "url=null: must be a path"),
        ({**WITH_BODY, "body": "text"}, 'body="text": must be an object'),
        ({**WITH_BODY, "method": "GET"}, 'method="GET": must be POST'),
        ({**WITH_BODY, "timestamp": "soon"}, 'timestamp="soon": must be a number from 0 on'),
        ({**WITH_BODY, "timestamp": -1}, "timestamp=-1: must be a number from 0 on"),
    ],
)
def test_a_row_that_can_not_be_sent_is_found_before_anything_is(
    row: Row | str, said: str, written: Callable[..., Path]
) -> None:
    with pytest.raises(ReplayError, match=r"export\.jsonl:2: ") as raised:
        Schedule(written(WITH_BODY, row), None, Changes({}))
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("rows", "form", "said"),
    [
        ([], None, "it has no requests"),
        ([{**WITH_BODY, "timestamp": 2.0}, {**WITH_BODY, "timestamp": 1.0}], None, "sort the file by its timestamps"),
        ([TRACE], "vllm-timed", "3 ids of 1030 tokens are not blocks of 16 tokens"),
        ([{**TRACE, "timestamp": 0.5}], None, "name one with --format (mooncake, vllm-timed, guidellm, aiperf)"),
        ([{**TRACE, "hash_ids": ["a"]}], None, 'hash_ids=["a"]: must be a list of whole numbers'),
        ([{**TRACE, "output_length": None}], None, "output_length=null: must be a whole number"),
    ],
)
def test_a_file_that_can_not_be_replayed_is_refused(
    rows: list[Row], form: str | None, said: str, written: Callable[..., Path]
) -> None:
    with pytest.raises(ReplayError) as raised:
        Schedule(written(*rows), form, MODEL)
    assert said in str(raised.value)


def test_a_wrong_command_line_names_the_option_and_shows_no_secret(written: Callable[..., Path]) -> None:
    file, url = str(written(WITH_BODY)), "http://127.0.0.1:1"
    wrong = written(WITH_BODY).with_name("headers")
    wrong.write_text("Authorization canary-secret\n")
    for options, said in (
        (("--url", "http://user:canary-secret@h"), "--url: must have no user or password"),
        (("--url", "ftp://h"), "--url: 'ftp://h': must be http://host:port"),
        (("--url", url, "--headers-file", str(wrong)), "headers': line 1 is not name:value"),
        (("--url", url, "--speed", "0"), "--speed"),
        (("--url", url, "--set", "seed"), "--set: 'seed': must be NAME=JSON"),
        (("--url", url, "--path", "v1"), "--path: 'v1': must begin with /"),
    ):
        done = run("replay", file, *options)
        assert done.code == 2, options
        assert said in done.err
        assert "canary-secret" not in done.err
    file = str(written(TRACE))
    done = run("replay", file, "--url", url)
    assert (done.code, "a trace names no model: give --model" in done.err) == (2, True)


class Held:
    """A client whose requests end when they may."""

    def __init__(self) -> None:
        self.may_end, self.asked = asyncio.Event(), 0

    async def send(self, _planned: Planned, answer: Answer) -> None:
        """Wait."""
        self.asked += 1
        await self.may_end.wait()
        answer.outcome = "ok"


def planned_at(offset_s: float) -> Planned:
    return Planned(offset_s, "", "/", b"", Recorded("ok"))


def test_a_late_request_shifts_no_other_one() -> None:
    def requests() -> Iterator[Planned]:
        yield planned_at(0.0)
        time.sleep(0.1)  # the loop stands still, as under load
        yield planned_at(0.02)
        yield planned_at(0.4)

    async def play() -> list[Result]:
        client, results = Held(), list[Result]()
        client.may_end.set()
        await Player(client, Pace(speed=2.0), results.append).play(requests())  # type: ignore[arg-type]
        return results

    first, second, third = asyncio.run(play())
    assert [one.intended_s for one in (first, second, third)] == [0.0, 0.01, 0.2]
    assert second.late_s >= 0.09
    assert third.sent_s >= 0.2
    assert all(one.capped_s == 0 for one in (first, second, third))


@pytest.mark.parametrize(("concurrency", "at_once"), [(None, 3), (3, 3), (2, 2), (1, 1)])
def test_a_cap_that_binds_is_reported_with_the_time_that_requests_waited(concurrency: int | None, at_once: int) -> None:
    async def play() -> tuple[Player, list[Result]]:
        client, results = Held(), list[Result]()
        player = Player(client, Pace(concurrency=concurrency), results.append)  # type: ignore[arg-type]
        playing = asyncio.ensure_future(player.play([planned_at(0.0)] * 3))
        for _ in range(30):  # more turns of the loop than starting three requests takes
            await asyncio.sleep(0)
        assert client.asked == at_once
        client.may_end.set()
        await playing
        return player, results

    player, results = asyncio.run(play())
    assert sum(result.capped_s > 0 for result in results) == 3 - at_once
    assert (player.state.most_under_way, player.state.ended) == (at_once, 3)


def test_a_failure_of_this_program_ends_the_replay_with_its_error() -> None:
    class Failing:
        async def send(self, _planned: Planned, _answer: Answer) -> None:
            raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        asyncio.run(Player(Failing(), Pace(), lambda _: None).play([planned_at(0.0), planned_at(3600.0)]))  # type: ignore[arg-type]


class Read(NamedTuple):
    """What an answer says that comes in one part."""

    chunks: int
    has_failed: bool
    tokens: tuple[int | None, int | None]


def read(body: bytes, content_type: bytes = b"text/event-stream") -> Read:
    reader = AnswerReader(content_type)
    return Read(reader.read(body, True), reader.has_failed, reader.tokens())


@pytest.mark.parametrize(
    ("message", "count"),
    [
        (b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n', 0),
        (b'data: {"choices":[{"text":"[DONE]"}]}\n\ndata: {"choices":[{"text":"b"}]}\n\n', 2),
        (b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\ndata: [DONE]\n\n', 0),
        (b'data: {"error":{"message":"a"}}\n\n', 0),
        (b'event: ping\ndata: {"type":"ping"}\n\n', 0),
        (b'data: {"mine":1}\n\ndata: words\n\n', 2),
    ],
)
def test_chunks_are_those_of_the_recording(message: bytes, count: int, recorded: support.Recorded) -> None:
    assert read(message).chunks == count
    app = recorded.wrap(support.replying(*support.answer(message, b"", content_type=b"text/event-stream")))
    support.serve_one(app, support.http_scope(), support.Client())
    (record,) = recorded.records("request")
    assert record.get("chunks", 0) == count


@pytest.mark.parametrize(
    ("message", "is_end"),
    [
        (b'data: {"error": {"message": "x"}}\n\n', True),
        (b"event: error\ndata: {}\n\n", True),
        (b"event: response.failed\ndata: {}\n\n", True),
        (b'data: {"error": null, "choices": [{}]}\n\n', False),
        (b'data: {"choices":[{"text":"error"}]}\n\n', False),
        (b"event: errors\ndata: {}\n\n", False),
    ],
)
def test_an_error_in_a_stream_is_seen_as_the_recording_sees_it(message: bytes, is_end: bool) -> None:
    assert read(message).has_failed is is_end


def test_an_event_that_a_network_cuts_is_one_chunk_when_it_is_whole() -> None:
    reader = AnswerReader(b"application/x-ndjson")
    assert reader.is_stream
    parts = [b'{"response":"a"}\n{"resp', b'onse":"b', b'"}\n', b'{"response":"c"}']
    assert [reader.read(part, False) for part in parts] == [1, 0, 1, 0]
    assert reader.read(b"", True) == 1


def test_token_counts_are_read_as_each_api_places_them() -> None:
    openai = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\n'
    start = b'event: message_start\ndata: {"message":{"usage":{"input_tokens":5,"output_tokens":1}}}\n\n'
    delta = b'event: message_delta\ndata: {"usage":{"output_tokens":9}}\n\n'
    responses = b'data: {"type":"x","response":{"usage":{"input_tokens":6,"output_tokens":7}}}\n\n'
    assert read(openai).tokens == (3, 4)
    assert read(start + delta).tokens == (5, 9)
    assert read(responses).tokens == (6, 7)
    assert read(b'{"usage":{"prompt_tokens":"many"}', b"application/json").tokens == (None, None)


def result_of(at: int, recorded: Recorded, answer: Answer) -> Result:
    return Result(Planned(at, str(at), "/", b"", recorded), float(at), float(at), 0.0, answer)


def test_the_ratio_of_times_is_that_of_pairs_and_its_interval_holds_the_true_one() -> None:
    results = []
    for at in range(40):
        first_s = 0.1 * (1 + at % 7)  # requests differ by more than the runs do
        recorded = Recorded("ok", 200, first_s + 0.9, first_s, 10, 5, 10, 0.1, 0.1)
        noise = 1 + 0.02 * (at % 3 - 1)
        chunks_s = [1.5 * first_s * noise + 0.2 * number for number in range(10)]
        answer = Answer(
            "", "ok", None, 200, is_stream=True, duration_s=chunks_s[-1], chunks_s=chunks_s, usage=Usage(5, 10)
        )
        results.append(result_of(at, recorded, answer))
    found = {times.name: times for times in compare(results).times}
    ratio = found["time to first chunk"].ratio
    assert ratio is not None
    assert ratio.holds(1.5)
    assert not ratio.holds(1.4)
    assert found["time per output token"].ratio is not None
    assert found["time per output token"].ratio.value == pytest.approx(2.0)
    assert found["time to first chunk"].quantiles(0) == pytest.approx([0.4, 0.7, 0.7])


def test_aborted_and_failed_requests_are_compared_only_where_both_runs_ended_alike() -> None:
    left = Answer("", ABORTED, None, 200, is_stream=True, chunks_s=[0.1, 0.2])
    whole = Answer("", "ok", None, 200, is_stream=True, chunks_s=[0.1, 0.2], usage=Usage(1, 2))
    refused = Answer("", "ok", None, 429)
    recorded = Recorded(ABORTED, 200, 0.2, 0.1, 2, 1, 2)
    compared = compare([result_of(at, recorded, answer) for at, answer in enumerate((left, whole, refused))])
    lengths = {length.name: length.requests for length in compared.lengths}
    assert lengths == {"input tokens": 1, "output tokens": 0, "chunks": 1}
    assert {times.name: len(times.pairs) for times in compared.times} == {
        "time to first chunk": 1,
        "time per output token": 0,
        "duration": 0,
    }
    assert {(one.recorded, one.replayed) for one in compared.outcomes} == {
        (f"{ABORTED} 200", f"{ABORTED} 200"),
        (f"{ABORTED} 200", "ok 200"),
        (f"{ABORTED} 200", "ok 429"),
    }
    assert not compare([result_of(0, recorded, refused)]).is_made


def test_the_formats_of_traces_are_those_of_export() -> None:
    from inference_logging.read.export.formats import KINDS

    assert {name: form.block_tokens for name, form in TRACES.items()} == {name: KINDS[name] for name in TRACES}


def test_a_port_where_nobody_listens_is_a_request_that_could_not_be_sent(written: Callable[..., Path]) -> None:
    done = run("replay", str(written(WITH_BODY)), "--url", f"http://127.0.0.1:{free_port()}")
    assert done.code == 1
    assert "could not be sent" in done.out
    assert "1 x ConnectError" in done.err


def test_one_request_that_could_not_be_sent_is_exit_code_1_whatever_was_compared(written: Callable[..., Path]) -> None:
    recorded = {"outcome": "ok", "http.response.status_code": 200, "gen_ai.usage.input_tokens": 3}
    file = written(*({**WITH_BODY, "recorded": recorded} for _ in range(2)))
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    answer = b'{"usage": {"prompt_tokens": 3}}'
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(answer)

    def serve_one() -> None:
        connection, _ = listening.accept()
        listening.close()
        with connection:
            connection.recv(65536)
            connection.sendall(head + answer)

    server = threading.Thread(target=serve_one)
    server.start()
    done = run("replay", str(file), "--url", url, "--concurrency", "1")
    server.join()
    assert done.code == 1
    assert re.search(r"^could not be sent +1$", done.out, re.MULTILINE)
    assert re.search(r"^input tokens +1 +1 +3 +3$", done.out, re.MULTILINE)
    assert "--concurrency 1 bound: requests that waited for others: 1" in done.err
