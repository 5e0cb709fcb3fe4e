"""`inference-logging tail`: which records, in which order and form; following through rotation; Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Logger
from tests.kit.command_line import run
from tests.kit.segment_files import log, request, write_segment
from tests.kit.signatures import Configure
from tests.kit.support import wait_until

COMMAND = [sys.executable, "-m", "inference_logging.cli.main", "tail"]


def messages(out: str) -> list[Any]:
    return [json.loads(line).get("message") for line in out.splitlines()]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Write three segments of two services that overlap in time, one compressed; 12 application records, m0 … m11."""
    both = [log(second, f"m{second}") for second in range(12)]
    write_segment(tmp_path, both[:4], number=1, compressed=True)
    write_segment(tmp_path, both[4::2], number=2, second=4, sealed=False)
    write_segment(tmp_path, both[5::2], number=1, second=5, prefix="other", sealed=False, tail=b'{"timestamp":"cut')
    return tmp_path


def test_the_last_records_come_by_time_over_all_segments(directory: Path) -> None:
    done = run("tail", str(directory), "--json", "--last", "9")
    assert (done.code, done.err) == (0, "")
    assert messages(done.out) == [f"m{number}" for number in range(3, 12)]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("condition", [(), ("--where", "logger=app")])
def test_the_last_records_come_by_time_where_the_lines_are_those_of_several_workers(
    tmp_path: Path, compressed: bool, condition: tuple[str, ...]
) -> None:
    # The listener writes what one worker's queue has before it looks at the next one's.
    lines = [log(at, f"m{at}", logger="app") for worker in range(4) for at in range(worker, 40, 4)]
    write_segment(tmp_path, lines, compressed=compressed)
    for last in (1, 5, 8, 39):
        done = run("tail", str(tmp_path), "--json", "-n", str(last), *condition)
        assert messages(done.out) == [f"m{at}" for at in range(40 - last, 40)]


def test_ten_records_come_unless_it_is_said_otherwise_and_none_if_none_are_wanted(directory: Path) -> None:
    assert len(run("tail", str(directory)).out.splitlines()) == 10
    assert run("tail", str(directory), "-n", "0").out == ""
    assert len(run("tail", str(directory), "-n", "99").out.splitlines()) == 12


def test_all_records_from_a_time_on_come_unless_fewer_are_wanted(directory: Path) -> None:
    write_segment(directory, [log(20, f"late{number}") for number in range(30)], number=3, second=20)
    since = ("--json", "--since", "2026-11-21T05:00:10Z")
    assert messages(run("tail", str(directory), *since).out) == ["m10", "m11", *(f"late{n}" for n in range(30))]
    assert messages(run("tail", str(directory), *since, "-n", "1").out) == ["late29"]
    with following(directory, "--json", "--since", "2026-11-21T05:00:11Z") as tail:
        assert json.loads(next_line(tail))["message"] == "m11"
        assert json.loads(next_line(tail))["message"] == "late0"


def test_segments_that_were_last_written_before_a_time_are_not_read(directory: Path) -> None:
    write_segment(directory, [], number=9, prefix="old", tail=b"not JSON\n")
    for segment in directory.iterdir():
        os.utime(segment, (0, 0))
    done = run("tail", str(directory), "--since", "1h", "--where", "attributes.n=1")
    assert (done.code, done.out, "the newest record is older than" in done.err) == (0, "", True), done.err
    assert "old-" not in done.err


def test_only_the_segments_of_a_service_are_read_if_it_is_named(directory: Path) -> None:
    other = messages(run("tail", str(directory), "--json", "--prefix", "other").out)
    assert other == ["m5", "m7", "m9", "m11"]
    both = messages(run("tail", str(directory), "--json", "--prefix", "other", "--prefix", "svc").out)
    assert both == [f"m{number}" for number in range(2, 12)]


def test_segments_that_were_last_written_before_the_wanted_records_are_not_read(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The damaged segment would be reported if it were read.
    old = write_segment(directory, [], number=9, prefix="old", tail=b"not JSON\n")
    os.utime(old, (0, 0))
    assert run("tail", str(directory), "-n", "3").err == ""
    assert "old-" in run("tail", str(directory), "-n", "99").err


@pytest.mark.parametrize("compressed", [True, False])
def test_the_last_records_are_counted_after_the_conditions(tmp_path: Path, compressed: bool) -> None:
    records = [request(second, "error" if second % 10 == 3 else "ok", duration_s=second) for second in range(100)]
    write_segment(tmp_path, [*records, log(200)], compressed=compressed)
    done = run("tail", str(tmp_path), "--json", "-n", "3", "--where", "outcome=error", "--where", "duration_s<80")
    assert [json.loads(line)["duration_s"] for line in done.out.splitlines()] == [53, 63, 73]
    done = run("tail", str(tmp_path), "-n", "2", "--event", "request", "--json")
    assert [json.loads(line)["duration_s"] for line in done.out.splitlines()] == [98, 99]
    done = run("tail", str(tmp_path), "-n", "200", "--event", "request", "--event", "log")
    assert len(done.out.splitlines()) == 101


def test_the_records_of_a_trace_are_found_by_its_first_digits(tmp_path: Path) -> None:
    write_segment(tmp_path, [log(1, "a", trace_id="ab" * 16), log(2, "b", trace_id="ac" * 16), log(3, "c")])
    assert messages(run("tail", str(tmp_path), "--json", "--trace", "AB").out) == ["a"]
    assert messages(run("tail", str(tmp_path), "--json", "--trace", "a").out) == ["a", "b"]


def test_the_plain_line_is_stable(tmp_path: Path) -> None:
    write_segment(
        tmp_path,
        [
            log(1.5, "model loaded", trace_id="ab" * 16, span_id="cd" * 8, attributes={"n": 3, "name": "a b"}),
            log(1.6, "not outcome=error"),
            request(2, "error", **{"url.path": "/x 200 ok", "chunk_gaps_us": [1, 2], "error.type": None}),
        ],
    )
    first, second, third = run("tail", str(tmp_path)).out.splitlines()
    assert first == (
        f"2026-11-21T05:00:01.500000000Z INFO log app: model loaded trace_id={'ab' * 16} "
        'attributes.n=3 attributes.name="a b"'
    )
    assert second == '2026-11-21T05:00:01.600000000Z INFO log app: "not outcome=error"'
    assert third == (
        '2026-11-21T05:00:02.000000000Z INFO request POST "/x 200 ok" 500 error '
        f"trace_id={2000:032x} request_id={2000:016x} http.route=/v1/chat/completions duration_s=0.5 error.type=null"
    )


def test_json_lines_are_the_records_with_control_characters_escaped(tmp_path: Path) -> None:
    record = log(1, "\x1b]0;title\x07\x9b2J\u202e", attributes={"\x7f": "\x85"})
    write_segment(tmp_path, [record])
    out = run("tail", str(tmp_path), "--json").out
    assert json.loads(out) == record
    assert out.isascii()
    assert out.count("\n") == 1


def test_a_damaged_line_is_reported_and_passed_over(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [log(1, "a")], sealed=False, tail=b"\x1b[31mnot JSON\n")
    with path.open("ab") as file:
        file.write(json.dumps(log(2, "b")).encode() + b"\n")
    done = run("tail", str(tmp_path), "--json")
    assert messages(done.out) == ["a", "b"]
    assert done.err.startswith(f"inference-logging: {path}:3: not JSON")


def test_a_directory_that_is_missing_fails_and_names_it(tmp_path: Path) -> None:
    done = run("tail", str(tmp_path / "none"))
    assert (done.code, done.out) == (2, "")
    assert str(tmp_path / "none") in done.err


def test_without_a_directory_it_is_the_configured_one(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_LOGGING_DIRECTORY", str(directory))
    assert len(run("tail").out.splitlines()) == 10
    monkeypatch.setenv("INFERENCE_LOGGING_LEVEL", "wrong")
    assert run("tail").code == 2


@pytest.mark.parametrize("condition", ["outcome", "=error", ""])
def test_a_wrong_condition_is_wrong_usage(condition: str, tmp_path: Path) -> None:
    done = run("tail", str(tmp_path), "--where", condition)
    assert done.code == 2
    assert "must be FIELD" in done.err


@contextmanager
def following(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [*COMMAND, str(directory), "--follow", *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as tail:
        try:
            yield tail
        finally:
            tail.kill()


def next_line(tail: subprocess.Popen[str]) -> str:
    assert tail.stdout is not None
    return tail.stdout.readline()


def test_following_goes_on_through_rotation_and_each_record_comes_once(configure: Configure, tmp_path: Path) -> None:
    config = configure(rotate_bytes=4096, flush_interval_s=0.01)
    with Logger(config) as logger:
        emit = logger.event("step", ["n", "pad"])
        emit(0, "x")
        assert logger.flush()
        with following(config.directory, "--json", "--last", "5", "--where", "n>=0") as tail:
            assert json.loads(next_line(tail))["n"] == 0
            for number in range(1, 60):
                emit(number, "x" * 500)
                assert number % 10 or logger.flush()
            seen = [json.loads(next_line(tail))["n"] for _ in range(59)]
    assert seen == list(range(1, 60))
    assert len(list(config.directory.glob("*.jsonl"))) > 3


def test_ctrl_c_ends_following_without_a_word(directory: Path) -> None:
    with following(directory, "--last", "1") as tail:
        assert " m11" in next_line(tail)
        tail.send_signal(signal.SIGINT)
        out, err = tail.communicate(timeout=180)
    waits = f"inference-logging tail: waiting for new records in {directory} (Ctrl-C to stop)\n"
    assert (tail.returncode, out, err) == (130, "", waits)


def test_following_waits_for_a_directory_that_is_not_there_yet(tmp_path: Path) -> None:
    later = tmp_path / "later"
    with following(later, "--json") as tail:
        assert tail.stderr is not None
        assert (
            f"waiting for {later}, which does not exist yet: a server creates it (Ctrl-C to stop)"
            in tail.stderr.readline()
        )
        write_segment(later, [log(1, "first")], sealed=False)
        assert json.loads(next_line(tail))["message"] == "first"


def test_what_one_look_finds_in_several_segments_comes_by_time(tmp_path: Path) -> None:
    made, seen = tmp_path / "made", tmp_path / "seen"
    write_segment(seen, [log(0, "following")], sealed=False)
    write_segment(made, [log(second, f"m{second}") for second in (1, 3, 5)], prefix="a", sealed=False)
    write_segment(made, [log(second, f"m{second}") for second in (2, 4, 6)], prefix="b", sealed=False)
    with following(seen, "--json") as tail:
        assert json.loads(next_line(tail))["message"] == "following"
        # Both segments appear at once, so one look finds both.
        seen.rename(tmp_path / "gone")
        made.rename(seen)
        assert [json.loads(next_line(tail))["message"] for _ in range(6)] == [f"m{second}" for second in range(1, 7)]


def test_a_reader_that_goes_away_ends_it_without_a_word(tmp_path: Path) -> None:
    write_segment(tmp_path, [log(number) for number in range(5000)])
    command = f"{' '.join(COMMAND)} {tmp_path} -n 5000 --json | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=180, check=False)
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")


def test_a_terminal_gets_columns_and_colours_but_nothing_from_the_values(tmp_path: Path) -> None:
    write_segment(tmp_path, [log(1, "[red]markup[/red] \x1b[2J"), request(2, "error")])
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen([*COMMAND, str(tmp_path)], stdout=child, stdin=child, env=environment) as tail:
        os.close(child)
        shown = b""
        wait_until(lambda: tail.poll() is not None, "tail to end")
        shown = os.read(parent, 1 << 16)
    os.close(parent)
    assert tail.returncode == 0
    first, second, rest = shown.decode().split("\r\n")
    assert rest == ""
    assert r"[red]markup[/red] \u001b[2J" in first
    assert first.startswith("\x1b[2m05:00:01.000\x1b[0m ")
    assert "\x1b[31merror" in second


@pytest.fixture
def two_services(tmp_path: Path) -> Path:
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


def test_the_link_to_the_newest_segment_and_any_segment_can_be_named(two_services: Path) -> None:
    assert "newer" in run("tail", str(two_services / "latest")).out
    assert "older" not in run("tail", str(two_services / "latest")).out
    (segment,) = two_services.glob("chat-*")
    out = run("tail", str(segment), "--last", "1").out
    assert "request" in out
    assert "older" not in out


def test_following_the_link_goes_on_with_what_the_newest_segment_is_then(two_services: Path) -> None:
    command = [*COMMAND, str(two_services / "latest"), "--follow", "--last", "1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tail:
        try:
            assert tail.stdout is not None
            assert json.loads(tail.stdout.readline())["message"] == "newer"
            write_segment(two_services, [log(10, "next")], number=10, second=10, prefix="third")
            assert json.loads(tail.stdout.readline())["message"] == "next"
        finally:
            tail.kill()


def test_what_it_waits_for_is_said(two_services: Path) -> None:
    for place, waits in ((two_services.parent / "later", "which does not exist yet"), (two_services, "of none in")):
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


def test_the_named_fields_come_and_no_others(two_services: Path) -> None:
    fields = "duration_s, http.response.status_code"
    (line,) = on_terminal(str(two_services), "--event", "request", "--fields", fields)
    assert line == "05:00:02.000 request      duration_s=0.5 http.response.status_code=200"
    plain = run("tail", str(two_services), "--fields", "attributes.n").out.splitlines()
    assert plain[-1] == "2026-11-21T05:00:03.000000000Z INFO log attributes.n=1"
    assert plain[0] == "2026-11-21T05:00:01.000000000Z INFO log"
    out = run("tail", str(two_services), "--fields", "duration_s", "--event", "request", "--json").out
    assert json.loads(out) == {"duration_s": 0.5}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--where", "outcom=error"], "no record has the field 'outcom'; the nearest: outcome"),
        (["--where", "outcome=ok", "--where", "attributes.m=1"], "no record has the field 'attributes.m'"),
        (["--event", "requests"], "no record has the event 'requests'; the nearest: request"),
        (["--fields", "duration"], "no record has the field 'duration'; the nearest: duration_s"),
    ],
)
def test_a_name_that_no_record_has_is_refused(arguments: list[str], sentence: str, two_services: Path) -> None:
    done = run("tail", str(two_services), *arguments)
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
        (["--trace", "4BF9"], "no trace_id begins with 4bf9; it may be sampled out, or in another directory"),
        (["--since", "2026-11-22"], "the newest record is older than 2026-11-22T00:00:00.000000000Z"),
        (["--where", "outcome=\x1b[2J"], "no record has outcome=\\u001b[2J (there are ok)"),
    ],
)
def test_an_empty_answer_says_in_one_line_why(arguments: list[str], why: str, two_services: Path) -> None:
    assert run("tail", str(two_services), *arguments) == (0, "", f"inference-logging tail: nothing: {why}\n")
    assert run("tail", str(two_services), "--trace", "4bf9", "-n", "0") == (0, "", ""), "none is wanted"


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("outcome=error", "tail: so far nothing: no record has outcome=error (there are ok)\n"),
        ("outcom=error", "so far no record has the field 'outcom'; the nearest: outcome"),
    ],
)
def test_following_says_why_there_is_nothing_so_far(where: str, why: str, two_services: Path) -> None:
    command = [*COMMAND, str(two_services), "--follow", "--where", where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
        assert tail.stderr is not None
        assert "waiting for new records" in tail.stderr.readline()
        assert why in tail.stderr.readline()
        tail.kill()
