"""How the cost of logging grows: with processes, with the size of a record, with concurrent streams, with threads.

    python -m loadtests.cost.growth [--quick] [--json PATH]

At each place the same work is done with and without logging, by turns, in slices of the same length; CPU time of the
threads that do it is read around each slice, so what other processes do meanwhile counts little. The places take turns
as well: a round goes through all of them, the next one back. What logging adds at the last place is divided by what it
adds at the first within each round, and so is the work without logging: that ratio is the control.

The listener writes what waits between slices, so no record is refused: it is checked that all of them arrived.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from inference_logging import Config, InferenceLoggingMiddleware, Logger
from inference_logging.prove.bench.child import places
from inference_logging.prove.bench.configurations_round import CHUNKS, STREAM, application
from inference_logging.prove.bench.text import bytes_text, time_text
from inference_logging.read.stats.interval import Interval, bootstrap, ratio
from inference_logging.record.asgi.lifespan import ASGIApp, Message
from loadtests import harness
from loadtests.cost.loggers import DRAIN_S, EVENT, FIELDS, VALUES, Emit, empty_call

_ROUNDS: Final = 5
_QUICK_ROUNDS: Final = 2
_TEXT: Final = "x" * 100
_BATCH: Final = 3000
_BATCH_BYTES: Final = 4 << 20
_LARGEST_RECORD: Final = 1 << 17
_THREADS_QUEUE_BYTES: Final = 1 << 26
_THREADS_BATCH: Final = 64_000
_SWITCH_INTERVAL_S: Final = 1e-4
_START_S: Final = 120.0
_LEAST_STREAMS: Final = 256
"""A slice has at least as many, some after others where fewer are concurrent."""

Work = Callable[[], object]


class Place(NamedTuple):
    """Where segments and queues lie."""

    segments: Path
    queues: Path

    def config(self, **settings: object) -> Config:
        """Return a configuration of this place, otherwise with defaults."""
        return Config(directory=self.segments, queue_directory=self.queues, server_record="off", **settings)

    def arrived(self, event: str = EVENT) -> int:
        """Count the records of an event in the files."""
        return len(harness.lines(self.segments, f'"event_name":"{event}"'.encode()))


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
    """What grows, from place to place, how it is named in the sentence about it, and how it is measured."""

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
    if (found := int(logger.stats()["accepted"])) != made:
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


def _calls(emit: Emit, text: str, count: int) -> None:
    values = (*VALUES[:-1], text)
    for _ in range(count):
        emit(*values)


def _of_record_bytes(place: Place, record_bytes: int, quick: bool) -> Sample:
    count, slices = max(20, min(_BATCH, _BATCH_BYTES // record_bytes)), 4 if quick else 20
    text = "x" * record_bytes
    with Logger(place.config(max_record_bytes=_LARGEST_RECORD)) as logger:
        logged = partial(_calls, logger.event(EVENT, FIELDS), text, count)
        control = partial(_calls, empty_call, text, count)
        logged_ns, control_ns = take_turns(logged, control, partial(settle, logger), slices)
        found = accepted(logger, count * (slices + 1))
    return Sample(logged_ns / count, control_ns / count, found, place.arrived())


def _of_threads(place: Place, count: int, quick: bool) -> Sample:
    each, slices = _THREADS_BATCH // count // (8 if quick else 1), 2 if quick else 12
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        with Logger(place.config(queue_bytes=_THREADS_QUEUE_BYTES)) as logger:
            emits = (logger.event(EVENT, FIELDS), empty_call)
            logged_ns, control_ns = _threads_take_turns(emits, count, each, slices, partial(settle, logger))
            found = accepted(logger, each * count * (slices + 1))
    finally:
        sys.setswitchinterval(before_s)
    return Sample(logged_ns / each, control_ns / each, found, place.arrived())


def _threads_take_turns(
    emits: tuple[Emit, Emit], count: int, each: int, slices: int, settle: Callable[[], None]
) -> tuple[float, float]:
    """Let all threads do the same slice at once; return the median over slices of a thread's mean CPU time."""
    together = threading.Barrier(count + 1)
    taken: list[list[int]] = [[] for _ in range(2 * (slices + 1))]

    def work() -> None:
        for number, of_slice in enumerate(taken):
            together.wait(_START_S)
            begin = time.thread_time_ns()
            _calls(emits[number % 2], _TEXT, each)
            of_slice.append(time.thread_time_ns() - begin)
            together.wait(_START_S)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for _ in taken:
        together.wait(_START_S)
        together.wait(_START_S)
        settle()
    for thread in threads:
        thread.join()
    means = [sum(of_slice) / count for of_slice in taken]
    return median(means[2::2]), median(means[3::2])


_barrier: Barrier | None = None
"""What the processes that are measured wait at."""


def _begin(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603 - a barrier reaches a process of a pool only where it starts
    _barrier = barrier


def _in_a_process(place: Place, slices: int) -> tuple[float, float, int]:
    assert _barrier is not None
    with Logger(place.config()) as logger:
        logged = partial(_calls, logger.event(EVENT, FIELDS), _TEXT, _BATCH)
        control = partial(_calls, empty_call, _TEXT, _BATCH)
        _barrier.wait(_START_S)
        logged_ns, control_ns = take_turns(logged, control, partial(settle, logger), slices)
        # A process that has left would leave the machine to the others.
        _barrier.wait(_START_S)
        return logged_ns, control_ns, accepted(logger, _BATCH * (slices + 1))


def _of_processes(place: Place, count: int, quick: bool) -> Sample:
    slices, context = 2 if quick else 10, multiprocessing.get_context("spawn")
    pool: dict[str, Any] = {"mp_context": context, "initializer": _begin, "initargs": (context.Barrier(count),)}
    with ProcessPoolExecutor(count, **pool) as processes:
        # Each waits at the barrier, so each gets one.
        found = list(processes.map(_in_a_process, [place] * count, [slices] * count))
    logged_ns, control_ns = (median(one[arm] for one in found) / _BATCH for arm in (0, 1))
    return Sample(logged_ns, control_ns, sum(one[2] for one in found), place.arrived())


async def _let_others_go_on(_message: Message) -> None:
    await asyncio.sleep(0)


def _streams(loop: asyncio.AbstractEventLoop, app: ASGIApp, concurrent: int, times: int) -> None:
    async def together() -> None:
        for _ in range(times):
            await asyncio.gather(*(app(STREAM.scope(), STREAM.receive, _let_others_go_on) for _ in range(concurrent)))

    loop.run_until_complete(together())


def _of_streams(place: Place, concurrent: int, quick: bool) -> Sample:
    times, slices = max(1, _LEAST_STREAMS // concurrent), 1 if quick else 6
    each, config, loop = concurrent * times, place.config(), asyncio.new_event_loop()
    try:
        with Logger(config) as logger:
            logged = partial(_streams, loop, InferenceLoggingMiddleware(application, config), concurrent, times)
            control = partial(_streams, loop, application, concurrent, times)
            gc.collect()
            logged_ns, control_ns = take_turns(logged, control, partial(settle, logger), slices)
            count = accepted(logger, each * (slices + 1))
    finally:
        loop.close()
    return Sample(logged_ns / each, control_ns / each, count, place.arrived("request"))


PROCESSES: Final = Quantity(
    "processes", "a call", "the number of processes", "process", (1, 2, 4, 8, 16), (1, 2), _of_processes
)
"""One of them is the listener of all; the median process is shown. CPU time of the calling thread has no waiting."""
RECORD_BYTES: Final = Quantity(
    "of text in a record", "a call", "the text", "KiB", (100, 1024, 4096, 16384, 65536), (100, 65536),
    _of_record_bytes, 1024,
)  # fmt: skip
"""One thread, a record of ten fields, one of them a text of this size; max_record_bytes is 128 KiB."""
STREAMS: Final = Quantity(
    "concurrent streams", f"a stream of {CHUNKS} chunks", "the number of streams", "stream",
    (1, 10, 100, 1000, 5000), (1, 50), _of_streams,
)  # fmt: skip
"""The requests are open at once in one event loop; each streams one chunk at a time, by turns with all others."""
THREADS: Final = Quantity("threads", "a call", "the number of threads", "thread", (1, 4, 16, 64), (1, 4), _of_threads)
"""The interpreter switches threads every 0.1 ms instead of every 5 ms, so that they meet within a slice, which fits
into a queue of 64 MiB."""
QUANTITIES: Final = (PROCESSES, RECORD_BYTES, STREAMS, THREADS)

Series = dict[str, Any]
"""What a quantity's growth does to the cost: the points, and what they prove as a ``sentence``."""


def growth(quick: bool, show: Callable[[Series], object]) -> list[Series]:
    """Measure each quantity, ``show`` it as soon as it is known, and return all.

    Raises ``RuntimeError`` if a record that was accepted did not arrive, or one was refused.
    """
    found = []
    for quantity in QUANTITIES:
        xs = quantity.quick_places if quick else quantity.places
        samples: dict[int, list[Sample]] = {x: [] for x in xs}
        for number in range(_QUICK_ROUNDS if quick else _ROUNDS):
            for x in xs if number % 2 == 0 else reversed(xs):
                with places() as (segments, memory):
                    samples[x].append(quantity.measure(Place(segments, memory), x, quick))
        found.append(series_of(quantity, samples))
        show(found[-1])
    return found


def series_of(quantity: Quantity, samples: dict[int, list[Sample]]) -> Series:
    """Put the samples of all rounds together."""
    points = [
        {
            "x": x,
            **bootstrap([sample.logged_ns for sample in of_place]).as_json(),
            "control": bootstrap([sample.control_ns for sample in of_place]).as_json(),
        }
        for x, of_place in samples.items()
    ]
    every = [sample for of_place in samples.values() for sample in of_place]
    accepted, arrived = sum(sample.accepted for sample in every), sum(sample.arrived for sample in every)
    sentence, grown = _sentence(quantity, samples)
    books = f"{accepted:,} accepted records"
    books = f"All {books} arrived." if arrived == accepted else f"Of {books} {arrived:,} arrived."
    return {
        "name": quantity.noun,
        "points": points,
        "growth": grown.as_json() if grown else None,
        "sentence": f"{sentence} {books}",
        "accepted": accepted,
        "arrived": arrived,
    }


def _sentence(quantity: Quantity, samples: dict[int, list[Sample]]) -> tuple[str, Interval | None]:
    """Say what the figures prove; also return what logging adds at the last place ÷ at the first, if that is known."""
    first, last = min(samples), max(samples)
    below, above = ([sample.added_ns for sample in samples[x]] for x in (first, last))
    first_ns, last_ns = median(below), median(above)
    begin, end = (bytes_text(x) if quantity.unit == 1024 else f"{x:,}" for x in (first, last))
    way = f"From {begin} to {end} {quantity.noun}, what logging adds to {quantity.work} goes"
    way += f" from {time_text(first_ns)} to {time_text(last_ns)}"
    if min(*above, *below) <= 0:
        return f"{way}: not measured, since in some round the work with logging took no longer than without.", None
    grown = ratio(above, below)
    first_control, last_control = ([sample.control_ns for sample in samples[x]] for x in (first, last))
    control = ratio(last_control, first_control)
    per_unit = time_text((last_ns - first_ns) / (last - first) * quantity.unit)
    slope = f", {per_unit} for each further {quantity.unit_title}" if grown.low > max(1, control.high) else ""
    return (
        f"{way} of CPU time, {_ratio(grown)}; the same work without logging {_ratio(control)}. While "
        f"{quantity.x_title} grows {_times(last / first)}, {_verdict(grown, control)}{slope}."
    ), grown


def _verdict(grown: Interval, control: Interval) -> str:
    if grown.high < 1:
        return "it falls"
    if grown.low <= 1:
        return "it does not grow, as far as this run knows"
    if grown.low <= control.high:
        return "it grows no more than the same work without logging, as far as this run knows"
    return f"it grows {_times(grown.value)}"


def _ratio(found: Interval) -> str:
    return f"× {found.value:.3g} ({found.low:.3g} … {found.high:.3g})"


def _times(factor: float) -> str:
    return f"{factor:,.3g}-fold" if factor < 1000 else f"{factor:,.0f}-fold"


def main() -> None:
    """Measure all quantities; each sentence is printed as soon as it is known."""
    options = harness.parser(__doc__).parse_args()
    series = growth(options.quick, lambda one: print(one["sentence"], flush=True))
    harness.write(options.json, {"command": "make bench-growth", "quick": options.quick, "growth": series})


if __name__ == "__main__":
    main()
