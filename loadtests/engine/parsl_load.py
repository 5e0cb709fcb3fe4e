"""A program that runs empty tasks through Parsl's HighThroughputExecutor, for each number that it reads.

    python parsl_load.py MODE DIRECTORY

It prints `ready` once a worker has run a task; then, for each line of its input, a number of tasks, what `parsl-perf`
prints of so many. ``bench_parsl`` and the tests drive it, in an environment of its own that has Parsl.

Other processes find the classes of this file by the name of its module, so it runs what it imports of itself.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import parsl
from parsl.benchmark import perf
from parsl.executors import HighThroughputExecutor
from parsl.logconfigs.base import LogConfig
from parsl.logconfigs.file import FileLogging
from parsl.providers import LocalProvider

from inference_logging import Config
from inference_logging.parsl import ParslLogging

MODES: Final = ("default", "off", "control", "ours", "counted")
SUBMIT: Final = "parsl"


class Nothing(LogConfig):
    """No process logs anything: Parsl's loggers stay at the level of the root, and have no handler."""

    def initialize_logging(self, *, log_dir: Path, log_name: str) -> Callable[[], None]:  # noqa: ARG002 - Parsl's signature
        """Do nothing."""
        return lambda: None


class Counted(ParslLogging):
    """Ours, and in each process a file as Parsl's own beside it, to which the records are compared."""

    def initialize_logging(self, *, log_dir: Path, log_name: str) -> Callable[[], None]:
        """Let each line become a record first, and then stand in the file."""
        end = super().initialize_logging(log_dir=log_dir, log_name=log_name)
        level = logging.DEBUG if log_name == SUBMIT else logging.INFO
        end_file = FileLogging(level=level).initialize_logging(log_dir=log_dir, log_name=log_name)

        def end_both() -> None:
            end_file()
            end()

        return end_both


def configuration(mode: str, directory: Path, workers: int) -> parsl.Config:
    """Return the configuration of a mode: one block on this machine, without monitoring and scaling."""
    executor = HighThroughputExecutor(
        address="127.0.0.1",
        max_workers_per_node=workers,
        cores_per_worker=1e-3,
        heartbeat_period=1,
        provider=LocalProvider(init_blocks=1, min_blocks=1, max_blocks=1),
    )
    return parsl.Config(
        executors=[executor],
        initialize_logging=_logging(mode, directory),
        run_dir=str(directory / "runinfo"),
        strategy="none",
        strategy_period=0.2,
    )


def _logging(mode: str, directory: Path) -> Any:
    if mode == "default":
        return True
    if mode in ("off", "control"):
        return Nothing()
    kind = Counted if mode == "counted" else ParslLogging
    return kind(Config(service_name="parsl", level="DEBUG", directory=directory / "logs"))


@parsl.python_app
def die() -> None:
    """Kill the worker that runs this."""
    os.kill(os.getpid(), signal.SIGKILL)


def main(mode: str, directory: Path, workers: int = 1) -> None:
    """Run tasks until the input ends: of a line, a number of empty ones, or `die`."""
    with parsl.load(configuration(mode, directory, workers)):
        perf.app("").result()
        print("ready", flush=True)
        for line in sys.stdin:
            if line.strip() == "die":
                print(type(die().exception()).__name__, flush=True)
            else:
                perf.performance(resources={}, target_t=1.0, args_extra_size=0, iterate_mode=[int(line)])
                sys.stdout.flush()
    print("ended", flush=True)


if __name__ == "__main__":
    from loadtests.engine import parsl_load

    parsl_load.main(sys.argv[1], Path(sys.argv[2]).absolute(), *map(int, sys.argv[3:]))
