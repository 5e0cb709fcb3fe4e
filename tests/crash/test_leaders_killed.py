"""The process that writes is killed, again and again: the next one goes on where it stopped, not before, not behind."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from tests.crash.conftest import Play
from tests.crash.stage import Stage
from tests.sinks import remount, small_file_system

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
