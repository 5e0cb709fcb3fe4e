"""Segments without line breaks, plain and as a little zstd that expands: named, and read in bounded memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest
import zstandard

from inference_logging.errors import CorruptLineError
from inference_logging.read.segments.following import Followed
from inference_logging.read.segments.reading import LONGEST_LINE_BYTES, LongLine, Segment
from inference_logging.segments import read_records
from inference_logging.ship import Source
from tests.segment_files import log, write_segment

ZEROES = 1 << 29
MOST_KB = 450_000
"""A limit of the memory that a command may take, below the size of the line."""


class Done(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    memory_kb: int


# What `wait4` says of a child begins with its parent's memory; the kernel's own mark begins anew with each program.
_RUN = """
import atexit, re, sys
from pathlib import Path
from inference_logging.cli.main import main

def write_mark(path):
    path.write_text(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

atexit.register(write_mark, Path(sys.argv.pop(1)))
main()
"""


def measured(*arguments: str) -> Done:
    """Run a command in a process of its own and return how much memory it took at most."""
    with tempfile.NamedTemporaryFile("r") as mark:
        command = [sys.executable, "-c", _RUN, mark.name, *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return Done(done.returncode, done.stdout, int(mark.read()))


@pytest.fixture(params=["plain", "plain, ended", "compressed"])
def segment(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a segment with a record, and a line of zeroes behind it."""
    path = write_segment(tmp_path / "logs", [log(1)], sealed=False)
    if request.param == "compressed":
        content = path.read_bytes()
        path.unlink()
        path = path.with_name(f"{path.name}.zst")
        with path.open("wb") as file, zstandard.ZstdCompressor().stream_writer(file) as writer:
            writer.write(content)
            for _ in range(ZEROES >> 20):
                writer.write(bytes(1 << 20))
            writer.write(b"\n" + orjson.dumps(log(2)) + b"\n")
        assert path.stat().st_size < 100_000
    else:
        os.truncate(path, path.stat().st_size + ZEROES)
        if request.param == "plain, ended":
            with path.open("ab") as ended:
                ended.write(b"\n" + orjson.dumps(log(2)) + b"\n")
    return path


def test_verify_names_a_line_longer_than_any_and_needs_no_memory_for_it(segment: Path) -> None:
    done = measured("verify", str(segment.parent), "--json")
    problems = [problem for problem in json.loads(done.out)["problems"] if problem["kind"] == "line_unreadable"]
    assert ["longer than any" in problem["text"] for problem in problems] == [True]
    assert problems[0]["segment"] == str(segment)
    assert done.memory_kb < MOST_KB


@pytest.mark.parametrize(
    "command",
    [("stats", "DIR"), ("stats", "DIR", "--json"), ("tail", "DIR"), ("query", "SELECT count(*) FROM records", "DIR")],
    ids=lambda command: " ".join(command[:1]),
)
def test_a_line_longer_than_any_takes_no_memory_of_a_command(segment: Path, command: tuple[str, ...]) -> None:
    done = measured(*(str(segment.parent) if word == "DIR" else word for word in command))
    assert done.code in (0, 1), done.out
    assert done.memory_kb < MOST_KB


def test_readers_name_the_line_and_go_on_behind_it(segment: Path) -> None:
    errors: list[CorruptLineError] = []
    found = [record["timestamp"] for record in read_records(segment, on_corrupt=errors.append)]
    # Without an end nothing can follow it.
    is_ended = found[1:] != []
    assert found == [log(1)["timestamp"], log(2)["timestamp"]][: 1 + is_ended]
    (error,) = errors
    assert f"longer than {LONGEST_LINE_BYTES}" in str(error)


def test_a_shipper_counts_the_line_as_refused_and_goes_on_behind_it(segment: Path) -> None:
    source = Source(segment.parent, "test")
    batch = source.read(1_000_000, 1 << 40)
    source.close()
    is_ended = len(batch.lines) > 1
    assert [line.record["timestamp"] for line in batch.lines] == [log(1)["timestamp"], log(2)["timestamp"]][
        : 1 + is_ended
    ]
    assert len(batch.corrupt) == (1 if is_ended else 0)


def test_an_unfinished_line_that_does_not_grow_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_segment(tmp_path, [log(1)], sealed=False, tail=b"x" * 5_000_000)
    parsed = Segment.parse(path)
    assert parsed is not None
    followed = Followed(parsed)
    assert len(list(followed.lines())) == 2
    monkeypatch.setattr(os, "pread", lambda *_: pytest.fail("nothing has come"))
    assert list(followed.lines()) == []
    monkeypatch.undo()
    with path.open("ab") as file:
        file.write(b"y\nz\n")
    assert [len(line) for line in followed.lines()] == [5_000_001, 1]
    followed.close()


def test_a_line_that_is_too_long_is_known_by_its_length_alone(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [log(1)], sealed=False)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + LONGEST_LINE_BYTES + 2)
    parsed = Segment.parse(path)
    assert parsed is not None
    followed = Followed(parsed)
    assert len(list(followed.lines())) == 2
    with path.open("ab") as file:
        file.write(b"\nz\n")
    long, short = followed.lines()
    assert isinstance(long, LongLine)
    assert (len(long), short, followed.offset) == (LONGEST_LINE_BYTES + 2, b"z", path.stat().st_size)
    followed.close()
