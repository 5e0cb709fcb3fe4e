"""`inference-logging listen`: the listener as its own process, beside processes that only produce."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from inference_logging import Config, Logger, get_logger
from tests.command_line import run
from tests.sidecars import Sidecar, queue_files
from tests.support import read_lines, read_records, wait_until
from tests.test_processes import in_child

Configure = Callable[..., Config]


@pytest.fixture
def config(configure: Configure) -> Config:
    """Return the configuration of processes that only produce."""
    return configure(listener="external", flush_interval_s=0.05)


def numbers(config: Config) -> list[int]:
    """Return the numbers of all records that are written; of several processes they come in no particular order."""
    return sorted(record["attributes"]["n"] for record in read_records(config.directory, "log"))


def produce(config: Config, first: int, count: int) -> None:
    """Log from a process that is killed afterwards."""

    def child() -> None:
        Logger(config)
        assert all(get_logger("t").warning("n", n=first + n) for n in range(count))
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(in_child(child), 0)


def wait_for_numbers(config: Config, wanted: list[int]) -> None:
    wait_until(lambda: len(numbers(config)) >= len(wanted), f"{len(wanted)} records")
    assert numbers(config) == wanted


def test_it_writes_what_a_server_produces_and_ends_with_nothing_left(config: Config) -> None:
    with Sidecar(config) as sidecar:
        sidecar.wait_for("leader queues=0")
        with Logger(config) as logger:
            assert all(get_logger("t").warning("n", n=n) for n in range(500))
            assert logger.flush(60)
            assert logger.stats()["listener"]["leader"] == "elsewhere"
            assert numbers(config) == list(range(500))
            sidecar.wait_for("leader queues=1 in_queue=0 written=500 dropped=0")
        assert sidecar.stop() == 0
        assert sidecar.lines[-1].startswith("inference-logging listen: ended queues=0 in_queue=0 written=500 dropped=0")
    assert queue_files(config) == []
    footer = read_lines(config.directory)[-1]
    assert (footer["event_name"], footer["records"]) == ("segment.footer", 500)


def test_it_may_start_before_its_directory_exists_or_after_the_server(config: Config) -> None:
    assert not config.resolved_queue_directory.exists()
    with Sidecar(config) as sidecar:
        sidecar.wait_for("leader queues=0")
        produce(config, 0, 100)
        wait_for_numbers(config, list(range(100)))
        assert sidecar.stop() == 0
    produce(config, 100, 100)
    assert len(queue_files(config)) == 1
    with Sidecar(config) as sidecar:
        wait_for_numbers(config, list(range(200)))
        assert sidecar.stop() == 0


def test_a_server_that_is_killed_and_started_again_under_it_loses_nothing(config: Config) -> None:
    with Sidecar(config) as sidecar:
        for life in range(5):
            produce(config, life * 50, 50)
        wait_for_numbers(config, list(range(250)))
        wait_until(lambda: len(queue_files(config)) == 1, "the queues of the dead to be removed")
        assert sidecar.stop() == 0


@pytest.mark.parametrize("arguments", [["--status-interval-s", "-1"], ["--config", "nowhere.yaml"]])
def test_a_wrong_command_line_or_configuration_is_exit_code_2(arguments: list[str]) -> None:
    assert run("listen", *arguments).code == 2
