"""`listen` beside processes that only produce, killed as they are; then `recover`; with Python and without."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from inference_logging import Config
from tests.crash.conftest import Play
from tests.crash.stage import Stage

pytestmark = [pytest.mark.servers, pytest.mark.kills]

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
