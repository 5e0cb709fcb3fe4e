"""What recording costs, from slices with it and without it that took turns on a server that was serving.

Each pair of slices gives one ratio of each measure, so what changes more slowly than a pair cancels. Neighbouring pairs
are taken together where one alone has too few requests. A request belongs to the arm in which it began. Where requests
outlast a slice, a part of what happens in it belongs to the other arm, and a difference between slices is that much
smaller than the one that is wanted: it is divided by the difference of the shares (Wald's estimator, 1940).

Five questions are asked at once, so each interval is one of 99 % (Bonferroni): all five hold in 95 % of comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist, StatisticsError, correlation
from typing import Final, NamedTuple

from inference_logging.read.stats.interval import LEAST_BLOCKS, Interval, ratio, width_of_few

LEAST_EVENTS: Final = 20
"""The requests or chunks that each arm of a block has at least."""
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
    is_of_load: bool = False
    """Whether clients that wait for each answer change it as soon as answers take longer."""


MEASURES: Final = (
    Measure(
        "requests/s",
        "1/s",
        lambda at: Amount(at.window.requests, at.window.seconds, at.window.requests),
        True,
        is_of_load=True,
    ),
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
    Measure(
        "CPU in all",
        "cores",
        lambda at: Amount(at.window.cpu_s, at.window.seconds, at.window.events),
        True,
        is_of_load=True,
    ),
)
TOGETHER: Final = 0.95
"""How often the intervals of all measures hold."""
LEVEL: Final = 1 - (1 - TOGETHER) / len(MEASURES)
"""How often each one holds."""
_SURE: Final = NormalDist().inv_cdf(0.99)


HIGHER, LOWER, NOT_FOUND, TOO_LITTLE = "higher", "lower", "not found", "too little traffic"
FOLLOWS: Final = "follows the time of requests"


@dataclass(frozen=True)
class Row:
    """A measure without and with recording, and the difference as a share of the value without; None: too little."""

    name: str
    unit: str
    off: float | None
    on: float | None
    difference: Interval | None
    is_judged: bool = True
    """Whether it says something of recording: no measure of the load does in a closed loop."""

    @property
    def verdict(self) -> str:
        """The answer: a difference is one whose interval leaves out 0."""
        if self.difference is None:
            return TOO_LITTLE
        if not self.is_judged:
            return FOLLOWS
        if self.difference.holds(0):
            return NOT_FOUND
        return HIGHER if self.difference.value > 0 else LOWER


@dataclass(frozen=True)
class Compared:
    """The result of a comparison."""

    rows: tuple[Row, ...]
    contrast: float
    """The share of recorded events in slices with recording, less that in slices without: 1 if requests are much
    shorter than slices, towards 0 if they are much longer."""
    request_s: float
    """The time of a request from its beginning to its last chunk; 0 without any."""
    is_closed: bool
    """Whether there were fewer requests where they took longer, as in a closed loop."""

    @property
    def is_resolved(self) -> bool:
        """Whether slices differ enough in what is recorded."""
        return self.contrast >= LEAST_CONTRAST


def compare(pairs: Sequence[Pair]) -> Compared:
    """Return the difference that recording makes in each measure."""
    found, is_closed = contrast(pairs), _is_closed([at for pair in pairs for at in pair])
    rows = tuple(_row(measure, pairs, found, is_closed) for measure in MEASURES)
    return Compared(rows, found, _mean_s([at.times for pair in pairs for at in pair]), is_closed)


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


def _row(measure: Measure, pairs: Sequence[Pair], contrast: float, is_closed: bool) -> Row:
    found = list(blocks(measure, pairs))
    if not found:
        return Row(measure.name, measure.unit, None, None, None)
    off, on = (_mean([block[arm] for block in found]) for arm in (0, 1))
    if len(found) < LEAST_BLOCKS or (measure.by_slice and contrast < LEAST_CONTRAST):
        return Row(measure.name, measure.unit, off, on, None)
    difference = _difference(found, contrast if measure.by_slice else 1.0)
    return Row(measure.name, measure.unit, off, on, difference, not (measure.is_of_load and is_closed))


def _difference(blocks: Sequence[tuple[Amount, Amount]], contrast: float) -> Interval:
    """Return on ÷ off, less 1, as it is between requests: slices differ by ``contrast`` of that."""
    change = ratio([on.amount / on.per for _, on in blocks], [off.amount / off.per for off, _ in blocks], LEVEL)
    value, width = math.log(change.value), width_of_few(len(blocks), LEVEL)
    ends = (value + width * (math.log(end) - value) for end in (change.value, change.low, change.high))
    return Interval(*(math.expm1(end / contrast) for end in ends))


def _mean(amounts: Sequence[Amount]) -> float:
    return sum(one.amount for one in amounts) / sum(one.per for one in amounts)


def _mean_s(times: Sequence[Times]) -> float:
    requests = sum(one.first_chunks for one in times)
    return sum(one.first_chunks_s + one.later_chunks_s for one in times) / requests if requests else 0.0


def _is_closed(slices: Sequence[Slice]) -> bool:
    """Return whether slices with longer requests had fewer of them: a correlation that chance has in 1 % (Fisher's z).

    Clients that do not wait send as many. Those that wait have a new request only for each answer.
    """
    rates = [(at.window.requests / at.window.seconds, _mean_s([at.times])) for at in slices if at.window.seconds > 0]
    logs = [(math.log(rate), math.log(request_s)) for rate, request_s in rates if rate > 0 and request_s > 0]
    if len(logs) < LEAST_BLOCKS:
        return False
    try:
        found = correlation(*zip(*logs, strict=True))
    except StatisticsError:  # all alike
        return False
    return found < -math.tanh(_SURE / math.sqrt(len(logs) - 3))
