"""Processes that are killed at any moment: producers, leaders, servers, sidecars; full rooms, damaged directories."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from inference_logging import Config
from tests.crash.conftest import Play
from tests.crash.producing import produce, produce_and_fork, produce_and_read, produce_in_c
from tests.crash.serving import serve
from tests.crash.stage import Stage
from tests.crash.verdict import judge_without_totals, verified
from tests.kit.c_programs import STRICT_C, compiled
from tests.kit.sinks import remount, small_file_system

pytestmark = [pytest.mark.servers, pytest.mark.kills]

# Writes as often as can be, so that many die between writing a batch and taking it out of the queues.
ALWAYS = {"flush_records": 1, "flush_interval_s": 0.01}
ROTATING = {"rotate_bytes": 1 << 18, "compress": "zstd", "compress_keep_segments": 1}
# Long enough that a write which waits for a busy machine is not called hung: what hangs may stand in both.
FALLBACK_DELAY_S = 0.8


def kill_leaders(stage: Stage) -> None:
    """Keep four processes emitting, one of which leads; kill always that one."""
    for _ in range(4):
        stage.start_producer()
    for _ in range(stage.kills_of_an_act):
        leader = stage.go_on_until(stage.leader, "a process to lead")
        stage.go_on(0.03)
        stage.kill(leader)
        stage.start_producer()
    stage.go_on()


def test_leaders_killed_at_any_instant_are_succeeded_without_gap_or_double(play: Play) -> None:
    play(kill_leaders, **ALWAYS)


def test_leaders_killed_while_segments_rotate_and_are_compressed_leave_each_record_once(play: Play) -> None:
    play(kill_leaders, **ALWAYS, **ROTATING)


def test_leaders_killed_while_their_sink_fails_or_falls_back_leave_each_record_once(play: Play, tmp_path: Path) -> None:
    with small_file_system(tmp_path / "small", "1g") as small:
        trouble = Trouble(small, tmp_path / "fallback")
        figures = play(
            trouble.kill_leaders,
            **ALWAYS,
            **ROTATING,
            directory=small / "segments",
            fallback=str(trouble.fallback),
            fallback_delay_s=FALLBACK_DELAY_S,
        )
    assert figures.in_fallback > 0


class Trouble:
    """What happens to leaders whose segments are on a file system that is made smaller and larger."""

    def __init__(self, small: Path, fallback: Path) -> None:
        self._small = small
        self.fallback = fallback

    def kill_leaders(self, stage: Stage) -> None:
        """As ``kill_leaders``; before, let the leader fail in the middle of a line, repair it, stop and continue it."""
        for _ in range(4):
            stage.start_producer()
        for number in range(stage.kills_of_an_act):
            leader = stage.go_on_until(stage.leader, "a process to lead")
            if number % 4 == 0:
                self.fill(stage, leader)
                stage.go_on_for(FALLBACK_DELAY_S)
            if number == 0:
                stage.go_on_until(self._fallback_has_records, "the fallback to take over")
            for _ in range(stage.random.randrange(5)):
                stage.random.choice([self.fill, self.make_room, let_fail, repair, stop, go_on])(stage, leader)
                stage.go_on(0.03)
            stage.kill(leader)
            stage.start_producer()
            if number % 4 == 2:
                self.make_room(stage, leader)
        stage.go_on()
        self.make_room(stage, 0)

    def _fallback_has_records(self) -> bool:
        """Look whether it has more than the lines that say why it was begun."""
        return any(path.read_bytes().count(b"\n") > 10 for path in self.fallback.glob("*.jsonl"))

    def fill(self, stage: Stage, pid: int) -> None:
        """Leave so little room that the next write or the one after it ends anywhere."""
        while True:
            statistics = os.statvfs(self._small)
            used_bytes = (statistics.f_blocks - statistics.f_bfree) * statistics.f_frsize
            # Refused if it has come to hold more since.
            with contextlib.suppress(subprocess.CalledProcessError):
                return remount(self._small, f"size={used_bytes + stage.random.randrange(64) * 4096}")

    def make_room(self, stage: Stage, pid: int) -> None:
        """Leave much room again."""
        remount(self._small, "size=1g")


def let_fail(stage: Stage, pid: int) -> None:
    """Let no file of the process grow further than a little; what it writes then ends anywhere in a line."""
    with contextlib.suppress(FileNotFoundError):
        size_bytes = (stage.config.directory / "latest").stat().st_size
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes + stage.random.randrange(20_000), most))


def repair(stage: Stage, pid: int) -> None:
    """Let files grow again."""
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))


def stop(stage: Stage, pid: int) -> None:
    """Stop the process: to the others it hangs."""
    stage.signal(pid, signal.SIGSTOP)


def go_on(stage: Stage, pid: int) -> None:
    """Let a stopped process go on."""
    stage.signal(pid, signal.SIGCONT)


def test_each_request_of_servers_that_are_killed_one_by_one_has_one_record(play: Play) -> None:
    # The process that leads is killed, and so often in the middle of what it writes about those killed before.
    # The queues are so large that no record is refused.
    figures = play(kill_leaders, serve, **ALWAYS, **ROTATING, queue_bytes=1 << 24)
    assert figures.cut_off > 0
    assert figures.refused == 0


def kill_any(stage: Stage) -> None:
    """Keep four processes emitting; kill one after the other, then all at once."""
    for _ in range(4):
        stage.start_producer()
    for _ in range(stage.kills_of_an_act):
        stage.go_on()
        stage.kill(stage.any_producer())
        stage.start_producer()
    stage.go_on()


def test_producers_killed_at_any_instant_lose_and_double_nothing(play: Play) -> None:
    play(kill_any)


def test_producers_in_c_beside_those_in_python_lose_and_double_nothing(play: Play, installed: Path) -> None:
    program = compiled(installed, "crash.c", *STRICT_C)

    def produce_in_turn(config: Config, journal: int, life: int) -> NoReturn:
        if life % 2:
            produce_in_c(program, config, journal, life)
        produce(config, journal, life)

    play(kill_any, produce_in_turn)


def test_processes_that_fork_while_their_threads_emit_and_their_children_lose_nothing_when_killed(play: Play) -> None:
    def kill_any_of_three_families(stage: Stage) -> None:
        for _ in range(3):
            stage.start_producer()
        for number in range(stage.kills_of_an_act):
            stage.go_on(0.1)
            if number % 8 == 4:
                # Its children live, and must not hold up what is done for the dead.
                parent = stage.oldest_producer()
                stage.kill(parent)
                stage.go_on_until_written(parent)
            stage.kill(stage.any_producer())
            while stage.producers > 6:
                stage.kill(stage.any_producer())
            while stage.producers < 3:
                stage.start_producer()

    figures = play(kill_any_of_three_families, produce_and_fork)
    assert figures.children > 0


def test_a_host_that_dies_at_once_leaves_its_records_to_the_next_start(play: Play) -> None:
    def live_and_die(stage: Stage) -> None:
        for _ in range(4):
            stage.start_producer()
        # Else there is nothing to lose, and no segment.
        stage.go_on_until(lambda: stage.journal.accepted, "a record")
        stage.go_on()

    # Nothing is written before the end unless somebody's queue fills.
    play(live_and_die, flush_interval_s=60, flush_records=1_000_000, queue_bytes=1 << 22)


QUEUE_BYTES = 1 << 20
MOST, FEWEST = 6, 3


class Room:
    """The file system of a queue directory, of which the test can take all that is left."""

    def __init__(self, place: Path) -> None:
        self._ballast = place / "ballast"

    def fill(self) -> None:
        """Take every free block."""
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        """Give them back."""
        self._ballast.unlink(missing_ok=True)

    def play(self, stage: Stage) -> None:
        """Kill in each state: children that find no room, those that have had it, those that find it at last."""
        for number in range(stage.kills_of_an_act):
            if number % 4 == 0:
                self._begin(stage)
                self.fill()
            elif number % 4 == 2:
                self.free()
            stage.go_on(0.2)
            stage.kill(stage.any_producer() if stage.producers else stage.start_producer())
        self._begin(stage)
        stage.go_on()

    def _begin(self, stage: Stage) -> None:
        """Make room for a few families: a process that opens its log without any says so, and ends."""
        self.free()
        while stage.producers > MOST:
            stage.kill(stage.any_producer())
        while stage.producers < FEWEST:
            stage.start_producer()
        before = stage.journal.accepted.total()
        stage.go_on_until(lambda: stage.journal.accepted.total() > before, "a record")


def test_families_killed_while_their_queue_directory_is_full_and_freed_lose_nothing(play: Play, tmp_path: Path) -> None:
    with small_file_system(tmp_path / "shm", "48m") as place:
        room = Room(place)
        figures = play(
            room.play, produce_and_fork, queue_directory=place / "queues", queue_bytes=QUEUE_BYTES, in_flight_slots=64
        )
    assert figures.children > 0
    assert figures.refused > 0


BESIDE = {"listener": "external", "flush_records": 1, "flush_interval_s": 0.01}


def kill_either(stage: Stage) -> None:
    """Keep three processes emitting and two listening, one of which waits; kill the one that leads, then a producer."""
    for _ in range(3):
        stage.start_producer()
    for _ in range(2):
        stage.start_listener()
    for _ in range(stage.kills_of_an_act // 2):
        stage.kill(stage.go_on_until(stage.leader, "a sidecar to lead"))
        stage.start_listener()
        stage.go_on(0.1)
        stage.kill(stage.any_producer())
        stage.start_producer()
        stage.go_on(0.1)


@pytest.fixture
def recover(listener_command: tuple[str, ...]) -> Callable[[Config], None]:
    """Write what the dead have left, by the command that is for it; it may lead at once, since nobody lives."""

    def recover(config: Config) -> None:
        command = [*listener_command, "recover", str(config.resolved_queue_directory), "--json"]
        done = subprocess.run([*command, "--directory", str(config.directory)], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not any(process["left"] for process in json.loads(done.stdout)["processes"])
        assert not list(config.resolved_queue_directory.glob("*.queue"))

    return recover


def test_sidecars_and_producers_killed_in_turn_lose_and_double_nothing(
    play: Play, recover: Callable[[Config], None]
) -> None:
    play(kill_either, **BESIDE, recover=recover)


def test_sidecars_killed_while_segments_rotate_and_are_compressed_leave_each_record_once(
    play: Play, recover: Callable[[Config], None]
) -> None:
    play(kill_either, **BESIDE, recover=recover, rotate_bytes=1 << 20, compress="zstd", compress_keep_segments=1)


MODES = {"thread": {"listener": "thread"}, "external": {"listener": "external"}}


class Damage:
    """What happens to the queue directory, one fault after the other; between two of them a process is killed."""

    def __init__(self, listens: bool) -> None:
        self._listens = listens
        self._moved = 0

    def play(self, stage: Stage) -> None:
        """Keep three processes emitting; do each fault in turn, and kill a producer, and now and then who leads."""
        for _ in range(3):
            stage.start_producer()
        if not self._listens:
            stage.start_listener()
        faults: list[Callable[[Stage], None]] = [self.copy, self.move, self.delete, self.read]
        for number in range(stage.kills_of_an_act):
            stage.go_on_until(stage.leader, "a process to lead")
            # Nobody finds what the dead have left once the directory is gone.
            stage.go_on_until(stage.are_the_living_found, "the queues of the dead to be written")
            stage.go_on(0.1)
            queues = stage.queues_of_producers()
            faults[number % len(faults)](stage)
            self._settle(stage, queues)
            leader = stage.go_on_until(stage.leader, "a process to lead again")
            if number % 5 == 3 and not self._listens:
                stage.kill(leader)
                stage.start_listener()
            else:
                stage.kill(stage.any_producer())
                stage.start_producer()
        stage.go_on_until(stage.leader, "a process to lead")

    def copy(self, stage: Stage) -> None:
        """Copy the directory elsewhere."""
        self._moved += 1
        shutil.copytree(stage.config.resolved_queue_directory, self._elsewhere(stage), ignore_dangling_symlinks=True)

    def move(self, stage: Stage) -> None:
        """Give the directory another name."""
        self._moved += 1
        stage.config.resolved_queue_directory.rename(self._elsewhere(stage))

    def delete(self, stage: Stage) -> None:
        """Delete the directory while other processes may be making files in it, and again once a queue is there."""
        stage.go_on_until(lambda: _is_deleted(stage), "the directory to be deleted")
        queues = stage.config.resolved_queue_directory
        stage.go_on_until(lambda: any(queues.glob("*.queue")), "a new queue")
        stage.go_on_until(lambda: _is_deleted(stage), "the directory to be deleted again")

    def read(self, stage: Stage) -> None:
        """Let each process open, read and close the queue files, its own among them."""
        stage.signal_all(signal.SIGUSR1)

    def _elsewhere(self, stage: Stage) -> Any:
        queues = stage.config.resolved_queue_directory
        return queues.with_name(f"{queues.name}-elsewhere-{self._moved}")

    def _settle(self, stage: Stage, queues: set[str]) -> None:
        """Let them run until each of the queues has a name, or its end is on record if it has something to report.

        Those too that a process began and lost again while the directory was being deleted.
        """
        directory = stage.config.resolved_queue_directory

        def is_settled() -> bool:
            stage.go_on_for(0.1)
            if not stage.are_the_living_found():
                return False
            processes = verified(stage.config)["processes"]
            ended = {one["boot_id"] for one in processes if one["state"] in ("closed", "died")}
            missing = (queues | stage.mapped_queues()) - ended - {path.stem for path in directory.glob("*.queue")}
            return missing <= stage.untouched_queues()

        stage.go_on_until(is_settled, "each queue to have a name, or its end on record")


def _is_deleted(stage: Stage) -> bool:
    try:
        shutil.rmtree(stage.config.resolved_queue_directory)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("mode", MODES)
def test_directories_that_are_copied_moved_deleted_and_read_by_their_own_processes_lose_nothing(
    play: Play, mode: str
) -> None:
    damage = Damage(mode == "thread")
    # Each of the four faults once.
    figures = play(damage.play, produce_and_read, judge=judge_without_totals, usual_kills=4, **ALWAYS, **MODES[mode])
    assert figures.accepted > 0
