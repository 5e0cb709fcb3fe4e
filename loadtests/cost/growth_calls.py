"""What a call costs with more processes in one queue directory, with a larger record, and with more threads."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing.synchronize import Barrier
from statistics import median
from typing import Any, Final

from inference_logging import Logger
from loadtests.cost.growth_quantity import DRAIN_S, EVENT, Place, Quantity, Sample, take_turns

FIELDS: Final = ("method", "path", "status", "duration_s", "model", "stream", "error", "tokens", "user", "text")
VALUES: Final = ("POST", "/v1/chat/completions", 200, 0.0123, "llama-3.1-8b", True, None, 128, "user-7f3a9c")
_TEXT: Final = "x" * 100
_BATCH: Final = 3000
_BATCH_BYTES: Final = 4 << 20
_LARGEST_RECORD: Final = 1 << 17
_THREADS_QUEUE_BYTES: Final = 1 << 26
_THREADS_BATCH: Final = 64_000
_SWITCH_INTERVAL_S: Final = 1e-4
_START_S: Final = 120.0

Emit = Callable[..., object]


def empty_call(
    _method: object,
    _path: object,
    _status: object,
    _duration_s: object,
    _model: object,
    _stream: object,
    _error: object,
    _tokens: object,
    _user: object,
    _text: object,
) -> bool:
    """Do nothing: what a Python call with the record's values costs by itself."""
    return True


def _calls(emit: Emit, text: str, count: int) -> None:
    values = (*VALUES, text)
    for _ in range(count):
        emit(*values)


def _settle(logger: Logger) -> None:
    if not logger.flush(DRAIN_S):
        raise RuntimeError(f"the listener did not write everything within {DRAIN_S:g} s: {logger.stats()}")


def _accepted(logger: Logger, called: int) -> int:
    """Return how many records were accepted; raises ``RuntimeError`` if one was refused."""
    accepted = int(logger.stats()["accepted"])
    if accepted != called:
        raise RuntimeError(f"{called} calls were made, but {accepted} records accepted")
    return accepted


def _of_record_bytes(place: Place, record_bytes: int, quick: bool) -> Sample:
    count, slices = max(20, min(_BATCH, _BATCH_BYTES // record_bytes)), 4 if quick else 20
    text = "x" * record_bytes
    with Logger(place.config(max_record_bytes=_LARGEST_RECORD)) as logger:
        logged = partial(_calls, logger.event(EVENT, FIELDS), text, count)
        control = partial(_calls, empty_call, text, count)
        logged_ns, control_ns = take_turns(logged, control, partial(_settle, logger), slices)
        accepted = _accepted(logger, count * (slices + 1))
    return Sample(logged_ns / count, control_ns / count, accepted, place.arrived())


def _of_threads(place: Place, count: int, quick: bool) -> Sample:
    each, slices = _THREADS_BATCH // count // (8 if quick else 1), 2 if quick else 12
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        with Logger(place.config(queue_bytes=_THREADS_QUEUE_BYTES)) as logger:
            emits = (logger.event(EVENT, FIELDS), empty_call)
            logged_ns, control_ns = _threads_take_turns(emits, count, each, slices, partial(_settle, logger))
            accepted = _accepted(logger, each * count * (slices + 1))
    finally:
        sys.setswitchinterval(before_s)
    return Sample(logged_ns / each, control_ns / each, accepted, place.arrived())


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
"""Of a process that is measured: what all of them wait at."""


def _begin(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603 - a barrier reaches a process of a pool only where it starts
    _barrier = barrier


def _in_a_process(place: Place, slices: int) -> tuple[float, float, int]:
    assert _barrier is not None
    with Logger(place.config()) as logger:
        logged = partial(_calls, logger.event(EVENT, FIELDS), _TEXT, _BATCH)
        control = partial(_calls, empty_call, _TEXT, _BATCH)
        _barrier.wait(_START_S)
        logged_ns, control_ns = take_turns(logged, control, partial(_settle, logger), slices)
        # A process that has left would leave the machine to the others.
        _barrier.wait(_START_S)
        return logged_ns, control_ns, _accepted(logger, _BATCH * (slices + 1))


def _of_processes(place: Place, count: int, quick: bool) -> Sample:
    slices, context = 2 if quick else 10, multiprocessing.get_context("spawn")
    pool: dict[str, Any] = {"mp_context": context, "initializer": _begin, "initargs": (context.Barrier(count),)}
    with ProcessPoolExecutor(count, **pool) as processes:
        # Each waits at the barrier, so each gets one.
        found = list(processes.map(_in_a_process, [place] * count, [slices] * count))
    logged_ns, control_ns = (median(one[arm] for one in found) / _BATCH for arm in (0, 1))
    return Sample(logged_ns, control_ns, sum(one[2] for one in found), place.arrived())


PROCESSES: Final = Quantity(
    name="processes",
    title="Processes on one host, one queue directory",
    noun="processes",
    work="a call",
    x_title="the number of processes",
    y_title="CPU time of a call",
    words=(
        "So many processes log into one queue directory at once; one of them is the listener of all. Each makes "
        f"slices of {_BATCH:,} calls and of as many empty calls, by turns; the median process is shown. CPU time is "
        "that of the calling thread, so waiting for a core is not in it."
    ),
    control_title="the empty call",
    places=(1, 2, 4, 8, 16),
    quick_places=(1, 2),
    measure=_of_processes,
    unit_title="process",
)
RECORD_BYTES: Final = Quantity(
    name="record-bytes",
    title="Size of a record",
    noun="of text in a record",
    work="a call",
    x_title="the text",
    y_title="CPU time of a call",
    words=(
        "One thread, a record of ten fields, one of them a text of this size. Slices of calls and of empty calls take "
        "turns. max_record_bytes is 128 KiB here, so that the largest fits; else the defaults."
    ),
    control_title="the empty call",
    places=(100, 1024, 4096, 16384, 65536),
    quick_places=(100, 65536),
    measure=_of_record_bytes,
    unit=1024,
    unit_title="KiB",
    is_bytes=True,
)
THREADS: Final = Quantity(
    name="threads",
    title="Threads of one process",
    noun="threads",
    work="a call",
    x_title="the number of threads",
    y_title="CPU time of a call",
    words=(
        f"So many threads call at once, {_THREADS_BATCH:,} calls in a slice of all of them; slices of empty calls take "
        "turns with them. The interpreter switches threads every 0.1 ms here instead of every 5 ms, so that they meet "
        "within a slice; the queue has 64 MiB, so that a slice fits."
    ),
    control_title="the empty call",
    places=(1, 4, 16, 64),
    quick_places=(1, 4),
    measure=_of_threads,
    unit_title="thread",
)
