"""`inference-logging ctl clean`: which queue directories go, and which stay."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from inference_logging import Config, Logger, get_logger
from tests.command_line import Done, run
from tests.test_processes import in_child

pytestmark = pytest.mark.usefixtures("program")

Configure = Callable[..., Config]


def clean(directory: Path) -> Done:
    """Run the command for a queue directory."""
    return run("ctl", "--queue-directory", str(directory), "clean")


def test_the_directory_of_a_service_goes_once_its_last_process_has_ended(configure: Configure) -> None:
    config = configure()
    directory = config.resolved_queue_directory
    with Logger(config) as logger:
        get_logger("t").warning("n")
        assert logger.flush()
        done = clean(directory)
        assert (done.code, done.out) == (0, f"kept {directory}: 1 queue is in use or waits for a listener\n")
    assert clean(directory).out == f"removed {directory}\n"
    assert not directory.exists()
    again = clean(directory)
    assert (again.code, again.err.count("does not exist")) == (2, 1)
    with Logger(config) as logger:
        assert get_logger("t").warning("n")
        assert logger.flush(), "a service that begins again makes it anew"


def test_a_directory_where_records_of_the_dead_wait_stays_and_so_does_one_with_other_files(
    configure: Configure,
) -> None:
    config = configure(listener="external")

    def child() -> None:
        Logger(config)
        get_logger("t").warning("n")
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(in_child(child), 0)
    directory = config.resolved_queue_directory
    assert "1 queue is in use or waits" in clean(directory).out
    assert len(list(directory.glob("*.queue"))) == 1
    (other := directory.with_name("other")).mkdir()
    (other / "control-5").touch()
    (other / "mine.txt").write_text("not of a queue directory")
    assert clean(other).out == f"kept {other}: 'mine.txt' is no file of a queue directory\n"
    assert (other / "mine.txt").exists()
    (other / "mine.txt").unlink()
    assert clean(other).out == f"removed {other}\n"
    assert not other.exists()
