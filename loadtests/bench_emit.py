"""What a call costs its caller: the median, and the tail with 16 threads.

``emit``: each round times ours, QueueHandler and an empty Python call in turn, twice. *Batch-timed*: the median of
batches of 1,000 calls, loop included, divided by 1,000; nothing subtracted, and the listener's work that holds the GIL
is in it. *Individually timed*: the median of single calls between two readings of the clock, minus the empty call's.
Between contenders the queues are drained, so none pays for another; the listeners run while their logger is timed.

``tail``: 16 threads call at once, each call individually timed; p99.9 of all threads' calls of a round, ours minus the
empty call's of the same round. Each thread's block is longer than the GIL's switch interval, so threads do meet. The
queue is larger than its default, so that no call takes the (cheaper) way of a refusal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import sub, truediv
from statistics import median
from time import perf_counter_ns

from bench_loggers import (
    VALUES,
    Emit,
    Ours,
    emit_many,
    empty_call,
    fitting_queue_bytes,
    ours,
    scratch_directory,
    standard,
)
from bench_report import Report, at_least, at_most, pairwise, percentile

THREADS = 16
BATCH = 1000


def emit(quick: bool) -> Report:
    """Measure the median call."""
    rounds, batches, singles = (2, 3, 300) if quick else (15, 20, 10_000)
    batched: dict[str, list[float]] = {"ours": [], "stdlib": [], "empty": []}
    single: dict[str, list[float]] = {"ours": [], "stdlib": [], "empty": []}
    with scratch_directory() as directory, ours(directory / "ours") as mine, standard(directory / "stdlib") as theirs:
        contenders: dict[str, tuple[Emit, Callable[[], None]]] = {
            "ours": (mine.emit, mine.settle),
            "stdlib": (theirs.emit, theirs.settle),
            "empty": (empty_call, lambda: None),
        }
        for _ in range(rounds):
            for name, (call, settle) in contenders.items():
                batched[name].append(_batch_timed_us(call, batches, settle))
                single[name].append(median(time_calls_ns(call, singles)) / 1000)
                settle()
        mine.check_books(rounds * ((batches + 1) * BATCH + singles))
    return _emit_report(batched, single)


def _emit_report(batched: dict[str, list[float]], single: dict[str, list[float]]) -> Report:
    net = {name: pairwise(sub, single[name], single["empty"]) for name in ("ours", "stdlib")}
    report = Report("emit: p50 of a call, 10-field record, one thread")
    report.add("ours, batch-timed, nothing subtracted", "µs", batched["ours"], at_most(0.25))
    report.add("ours, individually timed − empty call", "µs", net["ours"], at_most(0.25))
    report.add("QueueHandler, batch-timed", "µs", batched["stdlib"])
    report.add("QueueHandler, individually timed − empty call", "µs", net["stdlib"])
    report.add("empty Python call, batch-timed", "µs", batched["empty"])
    report.add(
        "QueueHandler ÷ ours, batch-timed", "×", pairwise(truediv, batched["stdlib"], batched["ours"]), at_least(20)
    )
    single_ratio = pairwise(truediv, single["stdlib"], single["ours"])
    report.add("QueueHandler ÷ ours, individually timed, nothing subtracted", "×", single_ratio, at_least(20))
    return report


def tail(quick: bool) -> Report:
    """Measure the tail with many threads."""
    rounds, calls = (2, 200) if quick else (9, 20_000)
    mine_ns: list[float] = []
    empty_ns: list[float] = []
    records_per_round = THREADS * calls
    with scratch_directory() as directory, ours(directory, queue_bytes=fitting_queue_bytes(1 << 28)) as mine:
        first_lap = _write_first_lap(mine, 1000 if quick else 1_500_000)
        for _ in range(rounds):
            empty_ns.append(_p999_ns(empty_call, calls))
            mine_ns.append(_p999_ns(mine.emit, calls))
            mine.settle()
        mine.check_books(first_lap + rounds * records_per_round)
    report = Report(f"tail: p99.9 of a call, {THREADS} threads at once, {records_per_round:,} calls a round")
    report.add("ours", "µs", [value / 1000 for value in mine_ns])
    report.add("empty Python call", "µs", [value / 1000 for value in empty_ns])
    excess = [value / 1000 for value in pairwise(sub, mine_ns, empty_ns)]
    report.add("ours − empty call", "µs", excess, at_most(1.0))
    return report


def _batch_timed_us(call: Emit, batches: int, settle: Callable[[], None]) -> float:
    emit_many(call, BATCH)  # the first calls after a pause find cold caches and a sleeping listener
    settle()
    taken = []
    for _ in range(batches):
        start = perf_counter_ns()
        emit_many(call, BATCH)
        taken.append((perf_counter_ns() - start) / BATCH / 1000)
    settle()
    return median(taken)


def time_calls_ns(call: Emit, count: int) -> list[int]:
    """Time each of ``count`` calls by itself, in nanoseconds (the clock's own reading is in each)."""
    method, path, status, duration_s, model, stream, error, tokens, user, cost = VALUES
    samples = [0] * count
    clock = perf_counter_ns
    for position in range(count):
        start = clock()
        call(method, path, status, duration_s, model, stream, error, tokens, user, cost)
        samples[position] = clock() - start
    return samples


def _p999_ns(call: Emit, calls: int) -> float:
    samples: list[list[int]] = []
    together = threading.Barrier(THREADS)

    def work() -> None:
        together.wait()
        samples.append(time_calls_ns(call, calls))

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return percentile(sorted(value for block in samples for value in block), 0.999)


def _write_first_lap(mine: Ours, count: int) -> int:
    # Every page of the queue has been touched once, as in a server that has run for some seconds.
    for batch in range(count // BATCH):
        emit_many(mine.emit, BATCH)
        if batch % 100 == 0:
            mine.settle()
    mine.settle()
    return count // BATCH * BATCH
