"""What recording costs, from slices with it and without it that took turns on a server that was serving.

Each pair of slices gives one ratio of each measure, so what changes more slowly than a pair cancels. Neighbouring pairs
are taken together where one alone has too few requests. A request belongs to the arm in which it began. Where requests
outlast a slice, a part of what happens in it belongs to the other arm, and a difference between slices is that much
smaller than the one that is wanted: it is divided by the difference of the shares (Wald's estimator, 1940).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from inference_logging.read.stats.interval import Interval, ratio

LEAST_EVENTS: Final = 20
"""The requests or chunks that each arm of a block has at least."""
LEAST_BLOCKS: Final = 6
"""The blocks that an interval needs."""
LEAST_CONTRAST: Final = 0.25
"""The least difference of the shares of recorded events with which a difference between slices means something."""


class Window(NamedTuple):
    """The counted part of a slice."""

    seconds: float
    requests: int
    """Requests that began in it."""
    cpu_s: float
    """CPU time of the processes; 0 if none of them can be seen."""
    recorded_events: int
    """Beginnings and chunks of recorded requests, whenever those began; and of all requests."""
    events: int


class Times(NamedTuple):
    """The times of one arm's requests, wherever they ended."""

    first_chunks: int
    first_chunks_s: float
    later_chunks: int
    later_chunks_s: float


class Slice(NamedTuple):
    """A slice: the counted part, and the times of the requests of its arm."""

    window: Window
    times: Times


class Pair(NamedTuple):
    """A slice without and a slice with recording, one after the other in some order."""

    off: Slice
    on: Slice


class Amount(NamedTuple):
    """An amount, the number or time that it is divided by, and the events behind it, which must not be too few."""

    amount: float
    per: float
    events: int

    def __add__(self, other: Amount) -> Amount:  # type: ignore[override]  # it adds up, as numbers do
        """Return both together."""
        return Amount(self.amount + other.amount, self.per + other.per, self.events + other.events)

    @property
    def is_enough(self) -> bool:
        """Whether a ratio can be built on it."""
        return self.events >= LEAST_EVENTS and self.amount > 0 and self.per > 0


class Measure(NamedTuple):
    """One row of the result: how it is read from a slice."""

    name: str
    unit: str
    of: Callable[[Slice], Amount]
    by_slice: bool
    """Whether it belongs to a slice, with all that happens in it, and not to the requests of an arm."""


MEASURES: Final = (
    Measure("requests/s", "1/s", lambda at: Amount(at.window.requests, at.window.seconds, at.window.requests), True),
    Measure(
        "time to first chunk",
        "s",
        lambda at: Amount(at.times.first_chunks_s, at.times.first_chunks, at.times.first_chunks),
        False,
    ),
    Measure(
        "time per chunk",
        "s",
        lambda at: Amount(at.times.later_chunks_s, at.times.later_chunks, at.times.later_chunks),
        False,
    ),
    Measure("CPU per request", "s", lambda at: Amount(at.window.cpu_s, at.window.requests, at.window.requests), True),
    Measure("CPU in all", "cores", lambda at: Amount(at.window.cpu_s, at.window.seconds, at.window.events), True),
)


@dataclass(frozen=True)
class Row:
    """A measure without and with recording, and the difference as a share of the value without; None: too little."""

    name: str
    unit: str
    off: float | None
    on: float | None
    difference: Interval | None

    @property
    def is_found(self) -> bool:
        """Whether there is a difference: its interval leaves out 0."""
        return self.difference is not None and not self.difference.holds(0)


@dataclass(frozen=True)
class Compared:
    """The result of a comparison."""

    rows: tuple[Row, ...]
    contrast: float
    """The share of recorded events in slices with recording, less that in slices without: 1 if requests are much
    shorter than slices, towards 0 if they are much longer."""
    request_s: float
    """The time of a request from its beginning to its last chunk; 0 without any."""

    @property
    def is_resolved(self) -> bool:
        """Whether slices differ enough in what is recorded."""
        return self.contrast >= LEAST_CONTRAST


def compare(pairs: Sequence[Pair]) -> Compared:
    """Return the difference that recording makes in each measure."""
    found = contrast(pairs)
    return Compared(tuple(_row(measure, pairs, found) for measure in MEASURES), found, _request_s(pairs))


def contrast(pairs: Sequence[Pair]) -> float:
    """Return the share of recorded events in slices with recording, less that in slices without; 1 without events."""
    return _share([pair.on.window for pair in pairs], 1.0) - _share([pair.off.window for pair in pairs], 0.0)


def _share(windows: Sequence[Window], otherwise: float) -> float:
    events = sum(window.events for window in windows)
    return sum(window.recorded_events for window in windows) / events if events else otherwise


def blocks(measure: Measure, pairs: Sequence[Pair]) -> Iterator[tuple[Amount, Amount]]:
    """Iterate over neighbouring pairs, off and on, each taken together with the next ones until both are enough."""
    nothing = Amount(0, 0, 0)
    off, on = nothing, nothing
    for pair in pairs:
        off, on = off + measure.of(pair.off), on + measure.of(pair.on)
        if off.is_enough and on.is_enough:
            yield off, on
            off, on = nothing, nothing


def _row(measure: Measure, pairs: Sequence[Pair], contrast: float) -> Row:
    found = list(blocks(measure, pairs))
    if not found:
        return Row(measure.name, measure.unit, None, None, None)
    off, on = (_mean([block[arm] for block in found]) for arm in (0, 1))
    if len(found) < LEAST_BLOCKS or (measure.by_slice and contrast < LEAST_CONTRAST):
        return Row(measure.name, measure.unit, off, on, None)
    change = ratio([block[1].amount / block[1].per for block in found], [b[0].amount / b[0].per for b in found])
    by = contrast if measure.by_slice else 1.0
    ends = (math.expm1(math.log(value) / by) for value in (change.value, change.low, change.high))
    return Row(measure.name, measure.unit, off, on, Interval(*ends))


def _mean(amounts: Sequence[Amount]) -> float:
    return sum(one.amount for one in amounts) / sum(one.per for one in amounts)


def _request_s(pairs: Sequence[Pair]) -> float:
    times = [at.times for pair in pairs for at in pair]
    requests = sum(one.first_chunks for one in times)
    return sum(one.first_chunks_s + one.later_chunks_s for one in times) / requests if requests else 0.0
