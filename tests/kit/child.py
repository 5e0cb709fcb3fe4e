"""Processes that a test forks, and what those log that are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path

from inference_logging import Config, Logger, get_logger
from tests.kit.support import read_records


def thread_names() -> list[str]:
    """Return the names of the threads that this process has, native ones too."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # one that ends meanwhile
            names.append(task.joinpath("comm").read_text().strip())
    return names


def in_child(work: Callable[[], object]) -> int:
    """Fork, run ``work`` in the child, and return its pid. A child that raises exits with 1."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


def join(*pids: int) -> None:
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0, "the child failed"


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


def killed_while(config: Config, serve: Callable[[Callable[[], object]], object]) -> None:
    """Run ``serve`` in a child that is killed as soon as it says so."""
    reported, report = os.pipe()

    def child() -> None:
        with Logger(config):
            serve(lambda: os.write(report, b"x"))

    pid = in_child(child)
    assert os.read(reported, 1) == b"x"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(reported)
    os.close(report)
