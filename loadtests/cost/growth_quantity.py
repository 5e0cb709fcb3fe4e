"""What `growth` changes, and what it gets from measuring at one place in one round."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from inference_logging import Config

EVENT: Final = "bench.growth"
DRAIN_S: Final = 60.0

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
        counted = 0
        for path in self.segments.iterdir():
            if not path.is_symlink():
                with path.open("rb") as lines:
                    counted += sum(f'"event_name":"{event}"'.encode() in line for line in lines)
        return counted


@dataclass(frozen=True)
class Sample:
    """What one unit of work took with and without logging, in one round."""

    logged_ns: float
    control_ns: float
    accepted: int
    arrived: int

    @property
    def added_ns(self) -> float:
        """What logging adds."""
        return self.logged_ns - self.control_ns


@dataclass(frozen=True)
class Quantity:
    """What grows, from place to place, and how it is measured there."""

    name: str
    title: str
    noun: str
    work: str
    x_title: str
    y_title: str
    words: str
    control_title: str
    places: Sequence[int]
    quick_places: Sequence[int]
    measure: Callable[[Place, int, bool], Sample]
    unit: int = 1
    unit_title: str = "one"
    is_bytes: bool = False


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
