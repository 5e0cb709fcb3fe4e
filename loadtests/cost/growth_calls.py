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
from loadtests.cost.bench_loggers import EVENT, FIELDS, VALUES, Emit, empty_call
from loadtests.cost.growth_quantity import Place, Quantity, Sample, accepted, settle, take_turns

_TEXT: Final = "x" * 100
_BATCH: Final = 3000
_BATCH_BYTES: Final = 4 << 20
_LARGEST_RECORD: Final = 1 << 17
_THREADS_QUEUE_BYTES: Final = 1 << 26
_THREADS_BATCH: Final = 64_000
_SWITCH_INTERVAL_S: Final = 1e-4
_START_S: Final = 120.0


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


PROCESSES: Final = Quantity(
    "processes", "Processes on one host, one queue directory", "processes", "a call", "the number of processes",
    "process", (1, 2, 4, 8, 16), (1, 2), _of_processes,
)  # fmt: skip
"""One of them is the listener of all; the median process is shown. CPU time of the calling thread has no waiting."""
RECORD_BYTES: Final = Quantity(
    "record-bytes", "Size of a record", "of text in a record", "a call", "the text",
    "KiB", (100, 1024, 4096, 16384, 65536), (100, 65536), _of_record_bytes, 1024,
)  # fmt: skip
"""One thread, a record of ten fields, one of them a text of this size; max_record_bytes is 128 KiB."""
THREADS: Final = Quantity(
    "threads", "Threads of one process", "threads", "a call", "the number of threads",
    "thread", (1, 4, 16, 64), (1, 4), _of_threads,
)  # fmt: skip
"""The interpreter switches threads every 0.1 ms instead of every 5 ms, so that they meet within a slice, which fits
into a queue of 64 MiB."""
