"""How quickly the listener turns a full queue into JSON lines on tmpfs, on one core.

Each round fills a large queue first, through a logger that does not listen. Then a second logger on the same
queue directory starts its listener thread; its affinity is set to one core just before, which the thread inherits, and
nobody emits meanwhile. So the listener has the core to itself and never waits for input.

*wall*: JSON bytes written (the listener's own count) divided by the time from opening the second logger until the
filled queue is empty. Starting the thread, electing it, opening and rotating segments are in it; the segments are on
tmpfs, so no disk is. *CPU* divides by the listener thread's CPU time instead, which is the same thing on an idle
machine.

A first round is thrown away, and the queue is no larger than it must be: in a virtual machine the first touch of memory
that the host has not given yet costs the toucher three times what the listener does with it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from inference_logging import Logger
from loadtests.cost.bench_loggers import DRAIN_S, Ours, emit_many, fitting_queue_bytes, ours
from loadtests.cost.bench_report import Report, at_least
from loadtests.harness import memory_directory, scratch_directory

CHUNK = 1000
ALL_PATTERNS = ("email", "phone", "card", "key", "bearer")
REDACTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "nothing found": {"redact_patterns": ALL_PATTERNS, "redact_fields": ("password", "customer.email")},
    "one field of each record replaced": {"redact_patterns": ALL_PATTERNS, "redact_fields": ("user",)},
}


def listener(quick: bool) -> Report:
    """Measure bytes of JSON lines per second, also with redaction on."""
    rounds, queue_bytes = (2, 1 << 20) if quick else (9, fitting_queue_bytes(1 << 26))
    wall, cpu, line_bytes = [], [], 0.0
    redacting: dict[str, list[float]] = {name: [] for name in REDACTIONS}
    _drain_full_queue(queue_bytes)
    for _ in range(rounds):
        written, count, taken_s, cpu_s = _drain_full_queue(queue_bytes)
        wall.append(written / taken_s / 1e6)
        cpu.append(written / cpu_s / 1e6)
        line_bytes = written / count
        for name, parameters in REDACTIONS.items():
            written, _, _, cpu_s = _drain_full_queue(queue_bytes, **parameters)
            redacting[name].append(written / cpu_s / 1e6)
    report = Report(f"listener: a full queue of {queue_bytes >> 20} MiB to JSON lines on tmpfs, one core")
    report.add("JSON lines, wall time", "MB/s", wall, at_least(500))
    report.add("JSON lines, CPU time of the thread", "MB/s", cpu, at_least(500))
    for name, rates in redacting.items():
        report.add(f"the same, redacting: {name}", "MB/s", rates)
    report.remarks.append(f"{line_bytes:.0f} bytes of JSON per record on average")
    report.remarks.append(f"redacting: all patterns ({', '.join(ALL_PATTERNS)}) and one or two fields")
    return report


def _drain_full_queue(queue_bytes: int, **redaction: tuple[str, ...]) -> tuple[int, int, float, float]:
    with (
        scratch_directory(memory_directory()) as directory,
        ours(directory, queue_bytes=queue_bytes, listener="external", **redaction) as filler,
    ):
        count = _fill(filler)
        cores = os.sched_getaffinity(0)
        first_bytes = _size(directory)
        os.sched_setaffinity(0, {max(cores)})
        try:
            start = time.perf_counter()
            drainer = Logger(filler.logger.config.model_copy(update={"listener": "thread"}))
        finally:
            os.sched_setaffinity(0, cores - {max(cores)} or cores)
        with drainer:
            _wait_until_empty(filler)
            taken_s = time.perf_counter() - start
            published = drainer.stats()["listener"]
        os.sched_setaffinity(0, cores)
        _check(filler, count)
    return published["bytes_written"] - first_bytes, count, taken_s, published["listener_cpu_s"]


def _fill(filler: Ours) -> int:
    count = 0
    while filler.logger.stats()["bytes_in_queue"] < 0.75 * filler.logger.config.queue_bytes:
        emit_many(filler.emit, CHUNK)
        count += CHUNK
    return count


def _wait_until_empty(filler: Ours) -> None:
    patience = time.monotonic() + DRAIN_S
    while filler.logger.stats()["in_queue"]:
        if time.monotonic() > patience:
            raise RuntimeError(f"the listener did not write everything within {DRAIN_S} s: {filler.logger.stats()}")
        time.sleep(0.0005)


def _check(filler: Ours, count: int) -> None:
    books = filler.logger.stats()
    if not books["accepted"] == books["written"] == count:
        raise RuntimeError(f"{count} records emitted, but the books say {books}")


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())
