"""What `growth` changes, and what it gets from measuring at one place in one round."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from inference_logging import Config, Logger
from loadtests.cost.bench_loggers import DRAIN_S, EVENT

Work = Callable[[], object]


class Place(NamedTuple):
    """Where segments and queues lie."""

    segments: Path
    queues: Path

    def config(self, **settings: object) -> Config:
        """Return a configuration of this place, otherwise with defaults."""
        return Config(directory=self.segments, queue_directory=self.queues, **settings)

    def arrived(self, event: str = EVENT) -> int:
        """Count the records of an event in the files."""
        words = f'"event_name":"{event}"'.encode()
        files = (path for path in self.segments.iterdir() if not path.is_symlink())
        return sum(words in line for path in files for line in path.read_bytes().splitlines())


class Sample(NamedTuple):
    """What one unit of work took with and without logging, in one round."""

    logged_ns: float
    control_ns: float
    accepted: int
    arrived: int

    @property
    def added_ns(self) -> float:
        """What logging adds."""
        return self.logged_ns - self.control_ns


class Quantity(NamedTuple):
    """What grows, from place to place, how it is measured there, and how it is named in the sentence about it."""

    name: str
    title: str
    noun: str
    work: str
    x_title: str
    unit_title: str
    places: Sequence[int]
    quick_places: Sequence[int]
    measure: Callable[[Place, int, bool], Sample]
    unit: int = 1


def settle(logger: Logger) -> None:
    """Wait until everything is written; raises ``RuntimeError`` if that takes too long."""
    if not logger.flush(DRAIN_S):
        raise RuntimeError(f"the listener did not write everything within {DRAIN_S:g} s: {logger.stats()}")


def accepted(logger: Logger, made: int) -> int:
    """Return how many records were accepted; raises ``RuntimeError`` if one was refused."""
    found = int(logger.stats()["accepted"])
    if found != made:
        raise RuntimeError(f"{made} calls were made, but {found} records accepted")
    return found


def take_turns(logged: Work, control: Work, settle: Work, slices: int) -> tuple[float, float]:
    """Do both works by turns, and return the median CPU time of this thread for a slice of each, in nanoseconds.

    Which one comes first alternates. The first slice of each is not counted: it finds cold caches.
    """
    taken: dict[Work, list[int]] = {logged: [], control: []}
    for number in range(slices + 1):
        for work in (logged, control) if number % 2 else (control, logged):
            begin = time.thread_time_ns()
            work()
            taken[work].append(time.thread_time_ns() - begin)
            settle()
    return median(taken[logged][1:]), median(taken[control][1:])
