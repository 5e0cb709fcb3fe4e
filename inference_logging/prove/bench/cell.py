"""One cell of the benchmark, in a process of its own: libraries of one peer cannot disturb another's.

The parent gives an `Order` as JSON on standard input and reads the answer from a file, since standard output belongs to
the peers that write there. The order of things: room for times, memory before, the peer is opened, a warm-up whose
records arrive before anything is measured, threads released by one barrier, the drain, and the files read back.

The process leaves without its interpreter's end: a peer that is still draining must not hold it up.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

from inference_logging.prove.bench.loops import Schedule, Timings, batched, closed, paced, space
from inference_logging.prove.bench.machine import forget_peak, interpreter_cpu_ns, memory_bytes
from inference_logging.prove.bench.peers import Opened, Peer, Place, peer
from inference_logging.prove.bench.record import (
    FIRST_NUMBER,
    NUMBERS_PER_THREAD,
    WARM_UP_NUMBER,
    count_arrived,
    text_of,
    wrong_fields,
)
from inference_logging.read.stats.interval import quantile

BYTES_PER_CELL: Final = 64 << 20
"""A closed loop ends earlier once it may have made this many bytes of records: files would fill the disk's cache."""
DRAIN_S: Final = 5.0
"""How long a peer may take to write what it has accepted."""
WARM_UP_CALLS: Final = 50_000
_WARM_UP_SHARE: Final = 1 / 3
_SETTLE_S: Final = 2.0
_BATCH: Final = 200
_LEAD_NS: Final = 5_000_000
"""From the barrier to the first call that is due: every thread is awake by then."""
_LATE: Final = 0.1
"""Share of the planned time by which the last call of an open loop may end late."""
_FLUSH_S: Final = 0.5
"""How much later the last record may be in the file: the longest interval at which a peer writes by default."""
_TIMER_SLACK: Final = 29
"""PR_SET_TIMERSLACK: without it the kernel wakes a thread up to 50 µs after it is due."""


@dataclass(frozen=True)
class Order:
    """What a cell measures; ``loop`` is `call` for batches of calls below the level.

    The parent adds the places: the directories for files and in memory, and the file of the answer.
    """

    peer: str
    threads: int
    loop: Literal["closed", "open", "call"]
    record_bytes: int
    seconds: float
    rate_per_s: float
    files: str = ""
    memory: str = ""
    answer: str = ""


def measure(order: Order, measured: Peer) -> dict[str, Any]:
    """Open a peer and measure it; returns the figures of `CellRound` but its round, or those of a call."""
    place = Place(Path(order.files), Path(order.memory))
    text = text_of(order.record_bytes)
    if order.loop == "call":
        with measured.opened(place, text) as opened:
            return _measure_calls(order, opened, measured, place)
    all_timings = [Timings(space(calls)) for calls in _room(order)]
    counts_peak, before = forget_peak(), memory_bytes("VmRSS")
    with measured.opened(place, text) as opened:
        _warm_up(order, opened, measured)
        figures = _measure_load(order, opened, all_timings)
        figures["peak_bytes"] = max(memory_bytes("VmHWM") - before, 0) if counts_peak else None
        return {**figures, **_arrivals(figures, measured, place, text)}


def _room(order: Order) -> list[int]:
    """Return how many calls each thread times at most."""
    if order.loop == "open":
        return [_schedule(order, thread, 0).calls for thread in range(order.threads)]
    # Threads of a closed loop get uneven shares: the interpreter lets one run for 5 ms, and then another.
    share = 1 if order.threads == 1 else 2
    return [max(share * BYTES_PER_CELL // order.record_bytes // order.threads, 1)] * order.threads


def _schedule(order: Order, thread: int, start_ns: int) -> Schedule:
    return Schedule.of_thread(thread, order.threads, start_ns, order.rate_per_s, order.seconds)


def _warm_up(order: Order, opened: Opened, measured: Peer) -> None:
    """Make records for a while, and wait until they have arrived or the peer has been given enough time."""
    limit_ns = time.perf_counter_ns() + int(order.seconds * _WARM_UP_SHARE * 1e9)
    made = 0
    while made < min(WARM_UP_CALLS, BYTES_PER_CELL // 4 // order.record_bytes) and time.perf_counter_ns() < limit_ns:
        opened.call(WARM_UP_NUMBER + made)
        made += 1
    if opened.settle is not None:
        _within(opened.settle, _SETTLE_S)
    elif measured.writes:
        time.sleep(_SETTLE_S)  # this peer cannot be waited for


def _measure_load(order: Order, opened: Opened, all_timings: list[Timings]) -> dict[str, Any]:
    dropped_before = opened.dropped() if opened.dropped is not None else 0
    start_ns, cpu_before = _run_threads(order, opened, all_timings)
    ended_ns = max(timings.ended_ns for timings in all_timings)
    drained = _within(opened.drain, DRAIN_S)
    drained_ns = time.perf_counter_ns()
    cpu = interpreter_cpu_ns() - cpu_before
    calls = sum(timings.calls for timings in all_timings)
    refused = sum(timings.refused for timings in all_timings)
    if opened.dropped is not None:
        refused += opened.dropped() - dropped_before
    accepted = calls - refused
    times = sorted(chain.from_iterable(timings.times() for timings in all_timings))
    late_ns = start_ns + int(order.seconds * (1 + _LATE) * 1e9)
    in_time = ended_ns <= late_ns and drained_ns <= late_ns + int(_FLUSH_S * 1e9)
    return {
        **{name: quantile(times, share) if times else None for name, share in _QUANTILES.items()},
        "interpreter_cpu_ns": cpu / accepted if accepted else None,
        "calls": calls,
        "accepted": accepted,
        "refused": refused,
        "seconds": (ended_ns - start_ns) / 1e9,
        "end_to_end_s": max(drained_ns - start_ns, 1) / 1e9,
        "drained": drained,
        "kept_up": in_time and not any(timings.not_made for timings in all_timings) if order.loop == "open" else None,
    }


_QUANTILES: Final = {"p50_ns": 0.5, "p99_ns": 0.99, "p999_ns": 0.999, "max_ns": 1.0}


def _run_threads(order: Order, opened: Opened, all_timings: list[Timings]) -> tuple[int, int]:
    """Run the threads to their end; return when they began, and the CPU time spent before.

    Raises what a call has raised.
    """
    began: list[int] = []

    def begin() -> None:
        began.append(interpreter_cpu_ns())
        began.append(time.perf_counter_ns() + (_LEAD_NS if order.loop == "open" else 0))

    together = threading.Barrier(order.threads, action=begin)
    failed: list[Exception] = []

    def work(thread: int) -> None:
        _wake_in_time()
        together.wait()
        number = FIRST_NUMBER + thread * NUMBERS_PER_THREAD
        try:
            if order.loop == "closed":
                closed(opened.call, all_timings[thread], number, began[1] + int(order.seconds * 1e9))
            else:
                paced(opened.call, all_timings[thread], number, _schedule(order, thread, began[1]))
        except Exception as error:  # noqa: BLE001 - whatever a peer raises is the cell's problem
            failed.append(error)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(order.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return began[1], began[0]


def _wake_in_time() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_TIMER_SLACK, 1, 0, 0, 0)


def _within(wait: Callable[[], object], limit_s: float) -> bool:
    """Run what waits in a thread of its own; return whether it came back within ``limit_s``."""
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(limit_s)
    return not thread.is_alive()


def _arrivals(figures: dict[str, Any], measured: Peer, place: Place, text: str) -> dict[str, Any]:
    """Read the files back. Raises ValueError for a line with other fields, or a record that is there twice."""
    if not measured.writes:
        return {"arrived": 0, "records_per_s": None, "arrived_ratio": None, "kept_ratio": None}
    arrived = count_arrived(place.files)
    if arrived.repeated:
        raise ValueError(f"{arrived.repeated} records arrived more than once")
    for line in arrived.samples if measured.is_json else ():
        if wrong := wrong_fields(line, text):
            raise ValueError(f"a line without {', '.join(wrong)}: {line[:200]!r}")
    accepted, calls = figures["accepted"], figures["calls"]
    # Nobody knows what would have become of the rest, had a peer been given more time.
    known = figures["drained"]
    return {
        "arrived": arrived.records,
        "records_per_s": arrived.records / figures["end_to_end_s"],
        "arrived_ratio": arrived.records / accepted if known and accepted else None,
        "kept_ratio": arrived.records / calls if known and calls else None,
    }


def _measure_calls(order: Order, opened: Opened, measured: Peer, place: Place) -> dict[str, Any]:
    """Return the time of a call below the level, in batches; null without one, or where the level lets it through."""
    if opened.filtered is None:
        return {"filtered_ns": None}
    _warm_up(order, opened, measured)
    end_ns = time.perf_counter_ns() + int(order.seconds * 1e9)
    filtered = median(batched(opened.filtered, FIRST_NUMBER, _BATCH, end_ns))
    _within(opened.drain, DRAIN_S)
    return {"filtered_ns": None if measured.writes and count_arrived(place.files).records else filtered}


def main() -> None:
    """Measure what standard input orders, write the answer, and leave at once."""
    order = Order(**json.load(sys.stdin))
    answer: dict[str, Any]
    try:
        _stdout_to(Path(order.files) / "stdout.jsonl")
        answer = {**measure(order, peer(order.peer)), "problem": None}
    except Exception as error:  # noqa: BLE001 - a peer that does not work is a row of the result, whatever it raises
        answer = {"problem": f"{type(error).__name__}: {error}"}
    Path(order.answer).write_text(json.dumps(answer), encoding="utf-8")
    os._exit(0)


def _stdout_to(path: Path) -> None:
    """Let standard output be a file, as it is in a container whose runtime keeps it."""
    sys.stdout.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, sys.stdout.fileno())
    os.close(descriptor)


if __name__ == "__main__":
    main()
