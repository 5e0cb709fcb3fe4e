"""Following segments while they grow: rotation, truncation, removal, compression, dead writers."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from inference_logging import Logger
from inference_logging.segments import Change, follow_records, segments
from tests.kit.segment_files import Writer, lines, name, numbers, until_set, write
from tests.kit.signatures import Configure, Recording
from tests.kit.support import wait_until


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Callable[[str], Writer]]:
    opened: list[Writer] = []

    def begin(file: str) -> Writer:
        opened.append(Writer(tmp_path / file))
        return opened[-1]

    yield begin
    for one in opened:
        one.die()


def test_follow_gives_what_is_written_from_now_on(tmp_path: Path, writer: Callable[[str], Writer]) -> None:
    write(tmp_path / name(1, 1), lines(1))
    live = writer(name(2, 2))
    live.append(lines(2, footer=False))()
    more = lines(3, header=False, footer=False)
    assert numbers(until_set(tmp_path, live.append(more), live.append(more))) == [3, 3]


def test_follow_begins_with_the_last_records_of_several_segments(
    tmp_path: Path, writer: Callable[[str], Writer]
) -> None:
    write(tmp_path / (name(1, 1) + ".zst"), lines(1, 2, 3))
    write(tmp_path / name(2, 2), lines(4))
    live = writer(name(3, 3))
    live.append(lines(5, footer=False))()
    more = live.append(lines(6, header=False, footer=False))
    assert numbers(until_set(tmp_path, more, last=4)) == [2, 3, 4, 5, 6]
    assert numbers(until_set(tmp_path, last=1)) == [6]
    assert numbers(until_set(tmp_path, last=99)) == [1, 2, 3, 4, 5, 6]


def test_follow_goes_on_with_the_next_segment_and_misses_nothing_of_the_old(
    tmp_path: Path, writer: Callable[[str], Writer]
) -> None:
    first, second = writer(name(1, 1)), writer(name(2, 2))
    first.append(lines(1, footer=False))()

    def rotate() -> None:
        first.append(lines(2, header=False))()
        first.die()
        second.append(lines(3, footer=False))()

    changes: list[Change] = []
    assert numbers(until_set(tmp_path, rotate, begin="start", on_change=changes.append)) == [1, 2, 3]
    assert [(change.kind, change.segment.number) for change in changes] == [("begun", 1), ("begun", 2), ("ended", 1)]


def test_follow_reads_a_line_longer_than_a_block_whole(tmp_path: Path) -> None:
    long = orjson.dumps({"event_name": "log", "n": 1, "text": "x" * (3 << 20)}) + b"\n"
    write(tmp_path / name(1), long + lines(2))
    assert numbers(until_set(tmp_path, begin="start")) == [1, 2]


def test_follow_waits_for_the_rest_of_a_line(tmp_path: Path, writer: Callable[[str], Writer]) -> None:
    live = writer(name(1))
    line = lines(7, header=False, footer=False)
    seen: list[int] = []
    live.append(lines(footer=False) + line[:5])()

    def rest() -> None:
        assert seen == []
        live.append(line[5:])()

    for record in until_set(tmp_path, rest, begin="start"):
        seen.append(record["n"])  # noqa: PERF401 - what has come is looked at on the way
    assert seen == [7]


def test_a_torn_line_that_is_cut_off_again_is_neither_read_nor_taken_for_truncation(
    tmp_path: Path, writer: Callable[[str], Writer]
) -> None:
    live = writer(name(1))
    whole = lines(1, footer=False)
    live.append(whole + b'{"torn')()
    changes: list[Change] = []
    steps = (lambda: os.truncate(live.path, len(whole)), live.append(lines(2, header=False, footer=False)))
    assert numbers(until_set(tmp_path, *steps, begin="start", on_change=changes.append)) == [1, 2]
    assert [change.kind for change in changes] == ["begun"]


def test_a_truncated_segment_is_noticed_and_read_from_its_start(
    tmp_path: Path, writer: Callable[[str], Writer]
) -> None:
    live = writer(name(1))
    live.append(lines(1, 2, 3, footer=False))()

    def truncate() -> None:
        os.truncate(live.path, 0)
        live.append(lines(4, footer=False))()

    changes: list[Change] = []
    assert numbers(until_set(tmp_path, truncate, begin="start", on_change=changes.append)) == [1, 2, 3, 4]
    assert [change.kind for change in changes] == ["begun", "truncated"]


def test_what_was_written_to_a_removed_segment_is_still_read_and_the_removal_noticed(
    tmp_path: Path, writer: Callable[[str], Writer]
) -> None:
    live = writer(name(1))
    live.append(lines(1, footer=False))()

    def remove() -> None:
        live.append(lines(2, header=False, footer=False))()
        live.path.unlink()

    changes: list[Change] = []
    assert numbers(until_set(tmp_path, remove, begin="start", on_change=changes.append)) == [1, 2]
    assert [change.kind for change in changes] == ["begun", "removed"]


def test_a_segment_that_is_compressed_while_it_is_followed_is_read_once(
    tmp_path: Path, writer: Callable[[str], Writer]
) -> None:
    live = writer(name(1))
    live.append(lines(1, footer=False))()

    def seal_and_compress() -> None:
        live.append(lines(2, header=False))()
        live.die()
        write(tmp_path / (name(1) + ".zst"), live.path.read_bytes())
        live.path.unlink()

    assert numbers(until_set(tmp_path, seal_and_compress, lambda: None, begin="start")) == [1, 2]


def test_a_segment_that_came_and_was_compressed_between_two_looks_is_read(tmp_path: Path) -> None:
    step = lambda: write(tmp_path / (name(1) + ".zst"), lines(1))  # noqa: E731 - one line of a list of steps
    assert numbers(until_set(tmp_path, step, lambda: None)) == [1]


def test_a_segment_whose_writer_died_without_a_footer_ends(tmp_path: Path, writer: Callable[[str], Writer]) -> None:
    live = writer(name(1))
    live.append(lines(1, footer=False))()
    changes: list[Change] = []
    assert numbers(until_set(tmp_path, live.die, lambda: None, begin="start", on_change=changes.append)) == [1]
    assert [change.kind for change in changes] == ["begun", "ended"]


def test_follow_waits_for_a_directory_that_does_not_exist_yet(tmp_path: Path) -> None:
    def create() -> None:
        (tmp_path / "logs").mkdir()
        write(tmp_path / "logs" / name(1), lines(1))

    assert numbers(until_set(tmp_path / "logs", create)) == [1]


def test_follow_keeps_no_file_open_after_its_end(tmp_path: Path, writer: Callable[[str], Writer]) -> None:
    writer(name(1)).append(lines(1, footer=False))()
    before = len(list(Path("/proc/self/fd").iterdir()))
    following = follow_records(tmp_path, begin="start")
    assert next(following)["n"] == 1
    following.close()  # type: ignore[attr-defined] # an Iterator to its users, a generator here
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# --- with the listener itself ----------------------------------------------------------------------------------------


def test_what_the_listener_writes_is_followed_over_rotation(recording: Recording) -> None:
    recorded = recording(rotate_bytes="8KiB", flush_interval_s=0.01)
    emit = recorded.logger.event("step", ["n"])
    changes: list[Change] = []

    def emit_some() -> None:
        assert all(emit(n) for n in range(40))
        assert recorded.logger.flush()

    steps = [emit_some] * 5
    found = numbers(until_set(recorded.config.directory, *steps, begin="start", on_change=changes.append))
    assert found == [*range(40)] * 5
    assert len([change for change in changes if change.kind == "begun"]) > 2
    assert changes[-1].kind == "begun", "the live segment was taken for one without a writer"


_LOG_AND_WAIT = """
import os, sys
from inference_logging import Config, Logger
logger = Logger(Config(directory=sys.argv[1], queue_directory=sys.argv[2], queue_bytes="1MiB"))
assert logger.event("step", ["n"])(1) and logger.flush(60)
print("ready", flush=True)
if sys.argv[3] == "fork" and os.fork() == 0:
    os.close(1)
    sys.stdin.read()
    os._exit(0)
sys.stdin.read()
"""


@pytest.mark.parametrize("forked", ["alone", "fork"])
def test_a_killed_writers_segment_has_no_writer_any_more_even_while_its_children_live(
    tmp_path: Path, forked: str
) -> None:
    arguments = [sys.executable, "-c", _LOG_AND_WAIT, str(tmp_path / "logs"), str(tmp_path / "queues"), forked]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (segment,) = segments(tmp_path / "logs")
        with segment.path.open("rb") as file:
            with pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if forked == "fork":
                wait_until(lambda: len(children(process.pid)) == 1, "the child")
            process.send_signal(signal.SIGKILL)
            process.wait()
            wait_until(lambda: can_lock(file.fileno()), "the lock of the killed writer")


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def can_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_a_sealed_segment_is_locked_no_more_though_its_process_lives(configure: Configure) -> None:
    with Logger(configure(rotate_bytes="4KiB")) as logger:
        emit = logger.event("step", ["text"])
        for _ in range(3):
            assert emit("x" * 3000)
            assert logger.flush()
        listed = segments(logger.config.directory)
        locks = []
        for segment in listed:
            with segment.path.open("rb") as file:
                locks.append(can_lock(file.fileno()))
    assert locks == [True, True, False]
