"""`inference-logging replay` against a real server: what is recorded of a replay is what was recorded before."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from inference_logging import Config
from inference_logging.prove.replay.comparison import Comparison, Outcome, Times
from inference_logging.prove.replay.report import verdict
from inference_logging.read.stats.interval import Interval
from tests.kit.command_line import Done, run
from tests.kit.servers import uvicorn
from tests.kit.signatures import Configure
from tests.kit.support import read_records, wait_until

pytestmark = pytest.mark.servers

Rows = list[dict[str, Any]]

SPEED = 2.0
SECRET = "canary-91ab"
ASKED: tuple[tuple[str, int, bool], ...] = (
    ("count to 8", 8, True), ("hold 3", 50, True), ("once", 5, False), ("refuse", 5, False), ("count to 2", 2, True),
    ("hold 1", 50, True), ("wait", 5, False), ("count to 30", 30, True),
)  # fmt: skip
"""Last message, `max_tokens`, and whether a stream is asked for."""
ABORTED = ("hold 3", "hold 1", "wait")


class Recording(NamedTuple):
    """A run: its export, and the records by the id that the client gave."""

    file: Path
    rows: Rows
    records: dict[str, dict[str, Any]]

    def row(self, custom_id: str) -> dict[str, Any]:
        """Return the row of a request."""
        return next(row for row in self.rows if row["custom_id"] == custom_id)


async def ask(client: httpx.AsyncClient, text: str, max_tokens: int, is_stream: bool) -> None:
    """Send one request as an application does; leave as the text says."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "extra": ["é", None],
    }
    leaves_after = int(text.split()[1]) if text.startswith("hold") else None
    try:
        timeout = 0.3 if text == "wait" else 60.0
        content, headers = {**body, "stream": is_stream}, {"X-Request-Id": text.replace(" ", "-")}
        async with client.stream(
            "POST", "/v1/chat/completions", json=content, headers=headers, timeout=timeout
        ) as response:
            events = 0
            async for line in response.aiter_lines():
                events += line.startswith("data:")
                if events == leaves_after:
                    return
    except httpx.ReadTimeout:
        assert text == "wait"


async def ask_all(url: str) -> None:
    """Send the requests of ``ASKED``, some at once."""
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        under_way = []
        for asked in ASKED:
            under_way.append(asyncio.ensure_future(ask(client, *asked)))
            await asyncio.sleep(0.05)
        await asyncio.gather(*under_way)


def recorded(configure: Configure, name: Path, play: Callable[[str], object]) -> Recording:
    """Record what ``play`` does to a server, and export it."""
    place = {"directory": name / "segments", "queue_directory": name / "queues", "queue_bytes": 1 << 22}
    config = configure(**place, capture_input="full", capture_output="full", capture_body="raw", chunks="timeline")
    with uvicorn(config, app="replayed_app:app") as server:
        play(server.url)
        wait_until(lambda: len(read_records(config.directory, "request")) >= len(ASKED), "all records")
        assert "Traceback" not in server.stop()
    key, file = name / "key", name / "batch.jsonl"
    key.write_bytes(b"k" * 32)
    options = ("--format", "openai-jsonl", "-o", str(file), "--hash-key-file", str(key), "--block-tokens", "1")
    done = run("export", str(config.directory), *options)
    assert done.code == 0, done.err
    records = {record["client_request_id"]: record for record in read_records(config.directory, "request")}
    return Recording(file, [json.loads(line) for line in file.read_text().splitlines()], records)


class Replays(NamedTuple):
    """A recording, the recording of its replay, and what the replay reported."""

    first: Recording
    second: Recording
    report: dict[str, Any]
    requests: Rows
    page: str
    out: str


@pytest.fixture(scope="module")
def replays(tmp_path_factory: pytest.TempPathFactory) -> Replays:
    """Record, export, replay at twice the speed against a new server, and record and export that."""
    place = tmp_path_factory.mktemp("replays")
    (place / "headers").write_text(f"# for the gateway\nAuthorization: Bearer {SECRET}\n")
    ends: dict[str, Done] = {}

    def replay(url: str) -> None:
        ends["done"] = run(
            "replay", str(first.file), "--url", url, "--speed", str(SPEED), "--json", str(place / "report.json"),
            "--html", str(place / "page.html"), "--requests", str(place / "requests.jsonl"),
            "--headers-file", str(place / "headers"),
        )  # fmt: skip

    for name in ("first", "second"):
        (place / name).mkdir()
    first = recorded(Config, place / "first", lambda url: asyncio.run(ask_all(url)))
    second = recorded(Config, place / "second", replay)
    done = ends["done"]
    assert (done.code, done.err) == (0, "")
    requests = [json.loads(line) for line in (place / "requests.jsonl").read_text().splitlines()]
    report = json.loads((place / "report.json").read_text())
    return Replays(first, second, report, requests, (place / "page.html").read_text(), done.out)


def test_the_replay_is_recorded_with_the_same_bodies_hashes_and_lengths(replays: Replays) -> None:
    assert len(replays.first.rows) == len(replays.second.rows) == len(ASKED)
    names = ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "prompt_hash", "output_hash", "hash_ids"]
    names += ["chunks", "outcome", "http.response.status_code", "gen_ai.request.stream"]
    for row in replays.first.rows:
        again = replays.second.row(replays.second.records[row["custom_id"]]["request_id"])
        assert again["body"] == row["body"]
        assert (row["body"]["extra"], row["body_source"], again["body_source"]) == (["é", None], "raw", "raw")
        found, wanted = ({name: one["recorded"].get(name) for name in names} for one in (again, row))
        assert found == wanted
        assert wanted["prompt_hash"] is not None
    texts = {row["body"]["messages"][-1]["content"] for row in replays.second.rows}
    assert texts == {text for text, _, _ in ASKED}


def test_aborted_requests_are_aborted_after_as_many_chunks_or_in_silence(replays: Replays) -> None:
    def of(text: str) -> dict[str, Any]:
        custom_id = replays.first.records[text.replace(" ", "-")]["request_id"]
        return next(request for request in replays.requests if request["request_id"] == custom_id)

    assert [(of(text)["outcome"], of(text)["chunks"]) for text in ABORTED] == [
        ("client_disconnect", 3),
        ("client_disconnect", 1),
        ("client_disconnect", 0),
    ]
    # No earlier than the recorded client, which is all that a loaded machine can promise.
    assert of("wait")["duration_s"] >= of("wait")["recorded"]["duration_s"]
    for text in ABORTED:
        record = replays.second.records[of(text)["request_id"]]
        assert record["outcome"] == "client_disconnect"


def test_requests_are_due_at_their_recorded_arrivals_by_the_speed_and_never_sent_before(replays: Replays) -> None:
    due = {row["custom_id"]: row["timestamp"] / SPEED for row in replays.first.rows}
    assert {request["request_id"]: request["intended_s"] for request in replays.requests} == pytest.approx(due)
    assert all(request["sent_s"] >= request["intended_s"] for request in replays.requests)
    by_sending = sorted(replays.requests, key=lambda request: request["sent_s"])
    assert [request["request_id"] for request in by_sending] == [row["custom_id"] for row in replays.first.rows]


def test_a_record_of_the_replay_joins_the_recorded_one_and_has_a_trace_of_its_own(replays: Replays) -> None:
    first = {record["request_id"]: record for record in replays.first.records.values()}
    assert set(first) == set(replays.second.records)
    traces = {request["request_id"]: request["trace_id"] for request in replays.requests}
    assert {name: record["trace_id"] for name, record in replays.second.records.items()} == traces
    assert not set(traces.values()) & {record["trace_id"] for record in first.values()}


def test_the_page_begins_with_one_sentence_that_says_how_the_runs_differ(replays: Replays) -> None:
    alike = sum(one["requests"] for one in replays.report["outcomes"] if one["recorded"] == one["replayed"])
    (first,) = re.findall(r"<h1>.*?</h1>\s*<p>(.*?)</p>", replays.page, re.DOTALL)
    assert first.startswith(f"{alike} of {len(ASKED)} requests ended as recorded")


def test_the_sentence_names_each_time_that_differs_and_those_that_do_not() -> None:
    longer, alike = Interval(1.1, 1.05, 1.2), Interval(1.1, 0.9, 1.3)
    times = (Times("duration", (), longer), Times("time to first chunk", (), alike), Times("few", (), None))
    found = verdict(Comparison((Outcome("ok", "ok", 3), Outcome("ok", "error", 1)), (), times))
    assert found.split("; ") == [
        "3 of 4 requests ended as recorded",
        "duration was 10.00 % longer",
        "no difference was found in time to first chunk.",
    ]


def test_the_report_compares_outcomes_lengths_and_times(replays: Replays) -> None:
    report = replays.report
    assert [report[name] for name in ("requests", "sent", "not_sent", "unfinished", "capped")] == [8, 8, 0, 0, 0]
    outcomes = {(one["recorded"], one["replayed"]): one["requests"] for one in report["outcomes"]}
    assert outcomes[("ok 200", "ok 200")] == 4
    assert outcomes[("ok 429", "ok 429")] == 1
    assert sum(outcomes.values()) == len(ASKED)
    lengths = {one["name"]: one for one in report["lengths"]}
    assert [lengths["output tokens"][name] for name in ("requests", "equal", "recorded", "replayed")] == [4, 4, 45, 45]
    assert lengths["chunks"]["equal"] == lengths["chunks"]["requests"] == 5, "three whole streams and two aborted ones"
    first_chunk = report["times"]["time to first chunk"]
    assert first_chunk["requests"] == 5
    assert 0 < first_chunk["replayed"]["p50"] <= first_chunk["replayed"]["p99"]
    assert report["times"]["duration"]["requests"] == 4
    assert {"Outcomes", "Lengths", "Times"} <= set(replays.out.splitlines())
    assert replays.page.count("<figure") == 3


def test_a_header_of_the_file_is_sent_and_shown_nowhere(replays: Replays) -> None:
    shown = [replays.out, replays.page, json.dumps(replays.report), json.dumps(replays.requests)]
    assert not any(SECRET in text for text in shown)


def test_a_terminal_shows_how_far_it_is(replays: Replays, tmp_path: Path) -> None:
    config = Config(directory=tmp_path / "segments", queue_directory=tmp_path / "queues", queue_bytes=1 << 20)
    command = [sys.executable, "-m", "inference_logging.cli.main", "replay", str(replays.first.file), "--url"]
    terminal, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160"}
    with (
        uvicorn(config, app="replayed_app:app") as server,
        subprocess.Popen([*command, server.url], stdout=subprocess.PIPE, stderr=theirs, env=environment) as process,
    ):
        os.close(theirs)
        shown = _read_all(terminal)
        assert process.wait(60) == 0
    assert f"/{len(ASKED)}" in shown
    assert "under way, last sent" in shown


def _read_all(terminal: int) -> str:
    """Return what is written to a terminal until nobody has it open."""
    shown = b""
    with os.fdopen(terminal, "rb", buffering=0) as screen, contextlib.suppress(OSError):
        while part := screen.read(65_536):
            shown += part
    return shown.decode(errors="replace")


def test_ctrl_c_ends_with_a_report_of_what_was_done(replays: Replays, tmp_path: Path) -> None:
    silent = tmp_path / "silent.jsonl"
    row = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "recorded": {"outcome": "ok"}}
    body = {"model": "m", "messages": [{"role": "user", "content": "wait"}], "max_tokens": 1}
    silent.write_text("".join(json.dumps({"timestamp": at, **row, "body": body}) + "\n" for at in (0.0, 3600.0)))
    config = Config(directory=tmp_path / "segments", queue_directory=tmp_path / "queues", queue_bytes=1 << 20)
    command = [sys.executable, "-m", "inference_logging.cli.main", "replay", str(silent), "--json",
               str(tmp_path / "report.json"), "--url"]  # fmt: skip
    with (
        uvicorn(config, app="replayed_app:app") as server,
        subprocess.Popen([*command, server.url], stdout=subprocess.PIPE) as process,
    ):
        wait_until(lambda: _is_asked(server.port), "the first request")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"interrupted: not due yet" in out
    report = json.loads((tmp_path / "report.json").read_text())
    assert [report[name] for name in ("requests", "sent", "unfinished", "not_due")] == [2, 1, 1, 1]


def _is_asked(port: int) -> bool:
    """Return whether somebody is connected to the server."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "01" for line in lines)
