"""Between kills: queue directories copied, moved and deleted, and queue files opened by their own processes."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.conftest import Play
from tests.crash.producing import produce_and_read
from tests.crash.stage import Stage
from tests.crash.verdict import judge_without_totals, verified

pytestmark = [pytest.mark.servers, pytest.mark.kills]

MODES = {"thread": {"listener": "thread"}, "external": {"listener": "external"}}
ALWAYS = {"flush_records": 1, "flush_interval_s": 0.01}


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
            if number % 5 == 4 and not self._listens:
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
    figures = play(damage.play, produce_and_read, judge=judge_without_totals, **ALWAYS, **MODES[mode])
    assert figures.accepted > 0
