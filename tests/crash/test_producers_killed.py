"""Producers killed at any instant under load: what their emits accepted is in the segments exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from inference_logging import Config
from tests.c_programs import STRICT_C, compiled
from tests.crash.conftest import Play
from tests.crash.producing import produce, produce_and_fork, produce_in_c
from tests.crash.stage import Stage

pytestmark = [pytest.mark.servers, pytest.mark.kills]


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
