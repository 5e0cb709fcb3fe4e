"""Segments of a directory: which there are, in which order, their lines, and lines without an end."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
import zstandard

from inference_logging.errors import MissingExtraError
from inference_logging.read.segments.following import Followed
from inference_logging.read.segments.reading import LONGEST_LINE_BYTES, LongLine
from inference_logging.segments import CorruptLineError, Segment, read_records, read_segment, segments
from inference_logging.ship.source import Listing, Source
from tests.kit.segment_files import BOOT_ID, lines, log, name, numbers, write, write_segment


def test_segments_are_listed_in_the_order_of_their_beginning_whatever_their_prefix(tmp_path: Path) -> None:
    order = [name(9, 1, "b"), name(1, 2, "a"), name(2, 2, "a") + ".zst", name(10, 3, "b")]
    for file in reversed(order):
        (tmp_path / file).touch()
    assert [segment.path.name for segment in segments(tmp_path)] == order
    assert [segment.number for segment in segments(tmp_path, "b")] == [9, 10]


def test_a_segment_that_stands_there_plain_and_compressed_is_listed_once_and_plain(tmp_path: Path) -> None:
    for file in (name(1), name(1) + ".zst", name(2) + ".zst"):
        (tmp_path / file).touch()
    assert [(segment.number, segment.compressed) for segment in segments(tmp_path)] == [(1, False), (2, True)]


@pytest.mark.parametrize(
    "foreign",
    [
        "notes.txt",
        "latest",
        f".{name(1)}.zst.tmp",
        name(1) + ".gz",
        name(1).replace("000001", "00001"),
        name(1).replace("000001", "0000001"),
        name(1).replace("20261121", "20260231"),
        name(1).replace(BOOT_ID, BOOT_ID.upper()),
        "." + name(1),
        name(1) + "\n",
    ],
)
def test_a_file_of_another_name_is_no_segment(tmp_path: Path, foreign: str) -> None:
    (tmp_path / foreign).touch()
    assert segments(tmp_path) == []


def test_links_and_directories_are_no_segments(tmp_path: Path) -> None:
    (tmp_path / name(1)).mkdir()
    (tmp_path / name(2)).symlink_to(write(tmp_path / "elsewhere", lines(1)))
    assert segments(tmp_path) == []


def test_a_segment_that_escapes_one_look_in_both_forms_while_it_is_compressed_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = write(tmp_path / name(1), lines(1))
    look = os.scandir

    def look_too_late(directory: str) -> Any:
        # The system shows the directory as it was before the new name was there and after the old one was gone.
        plain.unlink(missing_ok=True)
        monkeypatch.setattr(os, "scandir", look)
        with look(directory) as entries:
            seen = list(entries)
        write(tmp_path / (name(1) + ".zst"), lines(1))
        return contextlib.nullcontext(seen)

    monkeypatch.setattr(os, "scandir", look_too_late)
    assert numbers(read_records(tmp_path)) == [1]


def test_the_parts_of_a_name_are_known() -> None:
    segment = Segment.parse(f"/logs/my-svc-20261121T050059.123Z-{BOOT_ID}-1234567.jsonl.zst")
    assert segment is not None
    assert segment.begun == datetime(2026, 11, 21, 5, 0, 59, 123000, timezone.utc)
    assert (segment.prefix, segment.boot_id, segment.number) == ("my-svc", BOOT_ID, 1234567)
    assert segment.name == f"my-svc-20261121T050059.123Z-{BOOT_ID}-1234567.jsonl"


def test_a_directory_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        segments(tmp_path / "none")


def test_records_of_plain_and_compressed_segments_come_in_order(tmp_path: Path) -> None:
    write(tmp_path / (name(1, 1) + ".zst"), lines(1, 2))
    write(tmp_path / name(2, 2), lines(3))
    assert numbers(read_records(tmp_path)) == [1, 2, 3]
    assert numbers(read_records(tmp_path / (name(1, 1) + ".zst"))) == [1, 2]


def test_headers_and_footers_come_where_they_are_asked_for(tmp_path: Path) -> None:
    write(tmp_path / name(1), lines(1))
    events = [record["event_name"] for record in read_records(tmp_path, framing=True)]
    assert events == ["segment.header", "log", "segment.footer"]


@pytest.mark.parametrize("suffix", ["", ".zst"])
def test_a_torn_last_line_is_left_out(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / (name(1) + suffix), lines(1, footer=False) + b'{"event_name":"log","n":2')
    assert numbers(read_records(tmp_path)) == [1]


@pytest.mark.parametrize("suffix", ["", ".zst"])
@pytest.mark.parametrize("line", [b'{"n":1', b"[1]", b"", b"\xff", b'{"n":NaN}'])
def test_a_corrupt_line_raises_with_file_and_line_number(tmp_path: Path, suffix: str, line: bytes) -> None:
    path = write(tmp_path / (name(1) + suffix), lines(1, footer=False) + line + b"\n" + lines(2, header=False))
    with pytest.raises(CorruptLineError) as caught:
        list(read_records(tmp_path))
    assert (caught.value.path, caught.value.line_number) == (str(path), 3)
    assert str(caught.value).startswith(f"{path}:3: ")


def test_corrupt_lines_can_be_collected_and_passed_over(tmp_path: Path) -> None:
    write(tmp_path / name(1), lines(1, footer=False) + b"{\n[]\n" + lines(2, header=False))
    errors: list[CorruptLineError] = []
    assert numbers(read_records(tmp_path, on_corrupt=errors.append)) == [1, 2]
    assert [error.line_number for error in errors] == [3, 4]


@pytest.mark.parametrize("keep", [0, 3, 20, -1])
def test_a_compressed_segment_that_is_cut_off_is_reported(tmp_path: Path, keep: int) -> None:
    path = write(tmp_path / (name(1) + ".zst"), lines(*range(1000)))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CorruptLineError, match="cut off"):
        list(read_records(tmp_path))


def test_a_compressed_segment_with_a_flipped_bit_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path / (name(1) + ".zst"), lines(*range(1000)))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    errors: list[CorruptLineError] = []
    list(read_records(tmp_path, on_corrupt=errors.append))
    assert errors


def test_a_compressed_segment_of_several_frames_is_read_whole(tmp_path: Path) -> None:
    path = write(tmp_path / (name(1) + ".zst"), lines(1, footer=False))
    path.write_bytes(path.read_bytes() + zstandard.ZstdCompressor().compress(lines(2, header=False)))
    assert numbers(read_records(tmp_path)) == [1, 2]


def test_without_the_extra_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / name(1), lines(1))
    write(tmp_path / (name(2) + ".zst"), lines(2))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    records = read_records(tmp_path)
    assert next(records)["n"] == 1
    with pytest.raises(MissingExtraError, match=r"needs zstandard: pip install 'inferlog\[cli\]'"):
        next(records)


def test_errors_can_be_handed_to_another_process() -> None:
    corrupt = pickle.loads(pickle.dumps(CorruptLineError("a", 7, "wrong")))
    missing = pickle.loads(pickle.dumps(MissingExtraError("reading", "zstandard", "cli")))
    assert (corrupt.line_number, missing.extra) == (7, "cli")


def test_a_line_longer_than_a_block_is_read_whole(tmp_path: Path) -> None:
    long = orjson.dumps({"event_name": "log", "n": 1, "text": "x" * (3 << 20)}) + b"\n"
    write(tmp_path / name(1), long + lines(2))
    assert numbers(read_records(tmp_path)) == [1, 2]


def test_progress_adds_up_to_the_sizes_on_disk(tmp_path: Path) -> None:
    write(tmp_path / name(1), lines(*range(200_000)))
    write(tmp_path / (name(2) + ".zst"), lines(*range(200_000)))
    steps: list[int] = []
    assert len(list(read_records(tmp_path, progress=steps.append))) == 400_000
    assert sum(steps) == sum(segment.size_bytes() for segment in segments(tmp_path))
    assert len(steps) > 4


def test_a_segment_that_is_compressed_after_it_was_listed_is_still_read(tmp_path: Path) -> None:
    path = write(tmp_path / name(1), lines(1))
    (listed,) = segments(tmp_path)
    write(tmp_path / (name(1) + ".zst"), lines(1))
    path.unlink()
    assert numbers(read_segment(listed)) == [1]


def test_a_segment_that_is_removed_after_it_was_listed_is_left_out_but_a_path_given_must_exist(tmp_path: Path) -> None:
    path = write(tmp_path / name(1), lines(1))
    (listed,) = segments(tmp_path)
    path.unlink()
    assert numbers(read_segment(listed)) == []
    with pytest.raises(FileNotFoundError):
        list(read_records(path))


def test_a_file_of_another_name_cannot_be_read_as_a_segment(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path='.*notes\.txt': neither a directory nor named like a segment"):
        list(read_records(write(tmp_path / "notes.txt", b"x")))


HOUR_NS = 3600 * 10**9


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the directories that were really listed."""
    looked: list[Path] = []

    def counted(directory: Path) -> list[Segment]:
        looked.append(directory)
        return segments(directory)

    monkeypatch.setattr("inference_logging.ship.source.segments", counted)
    return looked


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look an hour after every change."""
    now = time.time_ns
    monkeypatch.setattr("inference_logging.ship.source.time.time_ns", lambda: now() + HOUR_NS)


def numbers_of(found: Listing) -> list[int]:
    return [segment.number for segment in found.segments()]


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize(
    "change",
    [
        lambda directory: write(directory / name(2), lines(2)),
        lambda directory: (directory / name(1)).rename(directory / name(2)),
        lambda directory: (directory / name(1)).unlink(),
        lambda directory: directory.chmod(0o700),
    ],
    ids=["created", "renamed", "removed", "permissions"],
)
def test_it_is_listed_again_after_a_change_alone(
    tmp_path: Path, listed: list[Path], change: Callable[[Path], object]
) -> None:
    write(tmp_path / name(1), lines(1))
    found = Listing(tmp_path)
    assert [numbers_of(found) for _ in range(3)] == [[1]] * 3
    assert len(listed) == 1
    wait_for_the_next_tick(tmp_path)
    change(tmp_path)
    assert numbers_of(found) == numbers_of(Listing(tmp_path))
    assert len(listed) == 3


def test_a_change_just_before_may_hide_another(tmp_path: Path, listed: list[Path]) -> None:
    write(tmp_path / name(1), lines(1))
    found = Listing(tmp_path)
    assert [numbers_of(found) for _ in range(3)] == [[1]] * 3
    assert len(listed) == 3


@pytest.mark.usefixtures("later")
def test_another_directory_of_the_same_name_is_listed(tmp_path: Path) -> None:
    place = tmp_path / "segments"
    found = Listing(place)
    with pytest.raises(FileNotFoundError):
        found.segments()
    for number in (1, 2):
        place.mkdir()
        write(place / name(number), lines(number))
        assert numbers_of(found) == [number]
        place.rename(tmp_path / f"gone-{number}")


def wait_for_the_next_tick(directory: Path) -> None:
    """Wait until a change of ``directory`` would bear another time."""
    before, trial = directory.stat().st_ctime_ns, directory.parent / "tick"
    while True:
        trial.touch()
        if trial.stat().st_ctime_ns != before:
            break
        os.sched_yield()
    trial.unlink()


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


@pytest.mark.servers
def test_verify_names_a_line_longer_than_any_and_needs_no_memory_for_it(segment: Path) -> None:
    done = measured("verify", str(segment.parent), "--json")
    problems = [problem for problem in json.loads(done.out)["problems"] if problem["kind"] == "line_unreadable"]
    assert ["longer than any" in problem["text"] for problem in problems] == [True]
    assert problems[0]["segment"] == str(segment)
    assert done.memory_kb < MOST_KB


@pytest.mark.servers
@pytest.mark.parametrize(
    "command",
    [("stats", "DIR"), ("stats", "DIR", "--json"), ("tail", "DIR"), ("query", "SELECT count(*) FROM records", "DIR")],
    ids=lambda command: " ".join(command[:1]),
)
def test_a_line_longer_than_any_takes_no_memory_of_a_command(segment: Path, command: tuple[str, ...]) -> None:
    done = measured(*(str(segment.parent) if word == "DIR" else word for word in command))
    assert done.code in (0, 1), done.out
    assert done.memory_kb < MOST_KB


@pytest.mark.servers
def test_readers_name_the_line_and_go_on_behind_it(segment: Path) -> None:
    errors: list[CorruptLineError] = []
    found = [record["timestamp"] for record in read_records(segment, on_corrupt=errors.append)]
    # Without an end nothing can follow it.
    is_ended = found[1:] != []
    assert found == [log(1)["timestamp"], log(2)["timestamp"]][: 1 + is_ended]
    (error,) = errors
    assert f"longer than {LONGEST_LINE_BYTES}" in str(error)


@pytest.mark.servers
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
