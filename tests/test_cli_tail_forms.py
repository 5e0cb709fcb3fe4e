"""`inference-logging tail`: what it takes (directory, segment, link, standard input), and what it shows of a record."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import run
from tests.segment_files import log, request, write_segment

NOT_A_NUMBER = "no record has chunk_gap_mean_us>2 ms: chunk_gap_mean_us is a number, but '2 ms' is not"
COMMAND = [sys.executable, "-m", "inference_logging.cli.main", "tail"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "logs"
    made.mkdir()
    write_segment(made, [log(1, "older"), request(2)], prefix="chat")
    newest = write_segment(made, [log(3, "newer", attributes={"n": 1})], number=2, second=3, prefix="other")
    (made / "latest").symlink_to(newest.name)
    return made


def on_terminal(*arguments: str, columns: int = 120) -> list[str]:
    """Return the lines that a terminal shows, without their colours."""
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    with subprocess.Popen([*COMMAND, *arguments], stdout=child, stdin=child, env=environment) as tail:
        os.close(child)
        shown = b""
        try:
            while block := os.read(parent, 1 << 16):
                shown += block
        except OSError:
            pass  # how a terminal says that nobody writes to it any more
        tail.wait(60)
    os.close(parent)
    assert tail.returncode == 0, shown
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).splitlines()


def test_the_link_to_the_newest_segment_and_any_segment_can_be_named(directory: Path) -> None:
    assert "newer" in run("tail", str(directory / "latest")).out
    assert "older" not in run("tail", str(directory / "latest")).out
    (segment,) = directory.glob("chat-*")
    out = run("tail", str(segment), "--last", "1").out
    assert "request" in out
    assert "older" not in out


def test_following_the_link_goes_on_with_what_the_newest_segment_is_then(directory: Path) -> None:
    command = [*COMMAND, str(directory / "latest"), "--follow", "--last", "1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tail:
        try:
            assert tail.stdout is not None
            assert json.loads(tail.stdout.readline())["message"] == "newer"
            write_segment(directory, [log(10, "next")], number=10, second=10, prefix="third")
            assert json.loads(tail.stdout.readline())["message"] == "next"
        finally:
            tail.kill()


def test_what_it_waits_for_is_said(directory: Path) -> None:
    for place, waits in ((directory.parent / "later", "which does not exist yet"), (directory, "of none in")):
        command = [*COMMAND, str(place), "--follow", "--prefix", "none"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
            assert tail.stderr is not None
            said = tail.stderr.readline()
            assert (waits in said, str(place) in said) == (True, True)
            tail.kill()


def from_stdin(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "-", *arguments], input=text, capture_output=True, text=True, timeout=180, check=False
    )


@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_records_of_standard_input_are_read(follow: list[str]) -> None:
    text = "".join(json.dumps(record) + "\n" for record in (log(2, "b"), log(1, "a"), request(3)))
    done = from_stdin(text + "no json\n", "--event", "log", "--json", *follow)
    assert [json.loads(line)["message"] for line in done.stdout.splitlines()] == (["b", "a"] if follow else ["a", "b"])
    assert (done.returncode, done.stderr.startswith("inference-logging: -:4: not JSON")) == (0, True)
    last = from_stdin(text, "--last", "1", "--json")
    assert [json.loads(line)["event_name"] for line in last.stdout.splitlines()] == ["request"]


def test_a_terminal_gets_one_line_of_what_most_want_to_see(tmp_path: Path) -> None:
    usage: dict[str, Any] = {"gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": 320}
    first_chunk: dict[str, Any] = {"gen_ai.response.time_to_first_chunk": 0.021}
    records: list[dict[str, Any]] = [
        request(1, **usage, **first_chunk),
        request(2, "error", **{"error.type": "ValueError"}),
        log(3, "m" * 300, attributes={"n": 1}),
    ]
    write_segment(tmp_path, records)
    ok, failed, message = on_terminal(str(tmp_path))
    assert ok == "05:00:01.000 INFO  POST 200  500 ms /v1/chat/completions  first 21 ms · 9/320 tokens  00000000"
    assert failed == "05:00:02.000 INFO  POST 500  500 ms /v1/chat/completions  error ValueError  00000000"
    assert message.startswith("05:00:03.000 INFO  app: mmm")
    assert (len(message), message[-1]) == (120, "…")
    verbose = "".join(on_terminal(str(tmp_path), "--verbose"))
    assert "request_id=" in verbose
    assert "m" * 300 in verbose


def test_the_named_fields_come_and_no_others(directory: Path) -> None:
    fields = "duration_s, http.response.status_code"
    (line,) = on_terminal(str(directory), "--event", "request", "--fields", fields)
    assert line == "05:00:02.000 request      duration_s=0.5 http.response.status_code=200"
    plain = run("tail", str(directory), "--fields", "attributes.n").out.splitlines()
    assert plain[-1] == "2026-11-21T05:00:03.000000000Z INFO log attributes.n=1"
    assert plain[0] == "2026-11-21T05:00:01.000000000Z INFO log"
    out = run("tail", str(directory), "--fields", "duration_s", "--event", "request", "--json").out
    assert json.loads(out) == {"duration_s": 0.5}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--where", "outcom=error"], "no record has the field 'outcom', the nearest is 'outcome'"),
        (["--where", "outcome=ok", "--where", "attributes.m=1"], "no record has the field 'attributes.m'"),
        (["--event", "requests"], "no record has the event 'requests', the nearest is 'request'"),
        (["--fields", "duration"], "no record has the field 'duration', the nearest is 'duration_s'"),
    ],
)
def test_a_name_that_no_record_has_is_refused(arguments: list[str], sentence: str, directory: Path) -> None:
    done = run("tail", str(directory), *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert sentence in done.err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--where", "error.type=ValueError"], "no record has error.type=ValueError"),
        (["--event", "sink.failed"], "no event is sink.failed"),
        (["--where", "attributes.n=7", "--where", "outcome=ok"], "no record has attributes.n=7 (there are 1)"),
        (["--where", "model=m"], "no record has model=m"),
        (
            ["--where", "attributes.n=1", "--where", "outcome=ok"],
            "each filter finds records, but no record passes all of them",
        ),
        (["--where", "outcome==ok"], "no record has outcome==ok: write =, outcome=ok (there are ok)"),
        (
            ["--where", "duration_s>100ms"],
            "no record has duration_s>100ms: duration_s is a number, but '100ms' is not; in seconds, duration_s>0.1",
        ),
        (["--where", "chunk_gap_mean_us>2 ms"], f"{NOT_A_NUMBER}; in microseconds, chunk_gap_mean_us>2000"),
        (["--where", "status=5xx"], "no record has status=5xx: status is a number, but '5xx' is not (there are 200)"),
        (["--trace", "4BF9"], "no trace_id begins with 4bf9; it may be sampled out, or in another directory"),
        (["--since", "2026-11-22"], "the newest record is older than 2026-11-22T00:00:00.000000000Z"),
        (["--where", "outcome=\x1b[2J"], "no record has outcome=\\u001b[2J (there are ok)"),
    ],
)
def test_an_empty_answer_says_in_one_line_why(arguments: list[str], why: str, directory: Path) -> None:
    assert run("tail", str(directory), *arguments) == (0, "", f"inference-logging tail: nothing: {why}\n")
    assert run("tail", str(directory), "--trace", "4bf9", "-n", "0") == (0, "", ""), "none is wanted"


def test_following_says_why_there_is_nothing_so_far(directory: Path) -> None:
    command = [*COMMAND, str(directory), "--follow", "--where", "outcome=error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
        assert tail.stderr is not None
        assert "waiting for new records" in tail.stderr.readline()
        assert "tail: so far nothing: no record has outcome=error (there are ok)\n" in tail.stderr.readline()
        tail.kill()


def test_following_says_which_names_no_record_had_so_far(directory: Path) -> None:
    command = [*COMMAND, str(directory), "--follow", "--where", "outcom=error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
        assert tail.stderr is not None
        assert "waiting for new records" in tail.stderr.readline()
        assert "so far no record has the field 'outcom', the nearest is 'outcome'" in tail.stderr.readline()
        tail.kill()
