"""Families of processes killed while their queue directory is full, fills up, and is freed again."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.crash.conftest import Play
from tests.crash.producing import produce_and_fork
from tests.crash.stage import Stage
from tests.sinks import small_file_system

pytestmark = [pytest.mark.servers, pytest.mark.kills]

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
            room.play,
            produce_and_fork,
            queue_directory=place / "queues",
            queue_bytes=QUEUE_BYTES,
            in_flight_slots=64,
        )
    assert figures.children > 0
    assert figures.refused > 0
