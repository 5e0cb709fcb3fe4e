"""What gets through from the first call to the file, and what a record costs in CPU time under the GIL.

``throughput``: records per second from the first call until the last record is in the file (``flush`` of ours; the
standard library's listener through with its queue). Ours has a bounded queue, so a refused record is tried again after
50 µs; what is counted afterwards in the files must be exactly what was accepted. Both write to the same file system,
the temporary directory's; each round runs both. A second pair of lines repeats it on tmpfs, to take the disk out.

``cpu``: CPU time per record that other Python threads have to wait for. Of ours that is the emitting thread's, taken
around bursts that fit into the queue (a thread that sleeps because it was refused would not be counted, so none is).
The listener never holds the GIL; its CPU time stands beside it. Of the standard library it is emitter and listener,
since both run Python (the write itself, a system call of some µs, releases the GIL and is counted all the same).
"""

from __future__ import annotations

import time
from operator import truediv
from pathlib import Path

from bench_loggers import (
    count_records,
    emit_many,
    emit_until_accepted,
    memory_directory,
    ours,
    scratch_directory,
    standard,
)
from bench_report import Report, at_least, at_most, pairwise

BURST = 20_000


def throughput(quick: bool) -> Report:
    """Measure records per second, end to end."""
    report = Report("throughput: records/s from the first call until all are in the file, one thread")
    _compare(report, quick, "", None)
    if memory_directory():
        _compare(report, quick, " (tmpfs)", memory_directory())
    report.remarks.append("records that arrived = records accepted, in every round of both")
    return report


def _compare(report: Report, quick: bool, place: str, below: Path | None) -> None:
    rounds, our_count, their_count = (2, 5_000, 500) if quick else (7, 1_000_000, 30_000)
    mine, theirs, refusals = [], [], 0
    for _ in range(rounds):
        rate, refused = _our_rate(below, our_count)
        mine.append(rate)
        refusals += refused
        theirs.append(_standard_rate(below, their_count))
    goal = None if place else at_least(25)
    report.add(f"ours{place}", "1/s", mine)
    report.add(f"QueueHandler{place}", "1/s", theirs)
    report.add(f"ours ÷ QueueHandler{place}", "×", pairwise(truediv, mine, theirs), goal)
    report.remarks.append(f"refused and tried again{place}: {refusals / rounds / our_count:.2%} of our records")


def _our_rate(below: Path | None, count: int) -> tuple[float, int]:
    with scratch_directory(below) as directory, ours(directory) as mine:
        start = time.perf_counter()
        refused = emit_until_accepted(mine.emit, count)
        mine.settle()
        taken = time.perf_counter() - start
        mine.check_books(count + refused, refused)
    return count / taken, refused


def _standard_rate(below: Path | None, count: int) -> float:
    with scratch_directory(below) as directory, standard(directory) as theirs:
        start = time.perf_counter()
        emit_many(theirs.emit, count)
        theirs.settle()
        taken = time.perf_counter() - start
        if (arrived := count_records(directory)) != count:
            raise RuntimeError(f"QueueHandler: {arrived} records arrived of {count}")
    return count / taken


def cpu(quick: bool) -> Report:
    """Measure CPU time per record."""
    rounds, bursts, their_count = (2, 1, 300) if quick else (7, 10, 20_000)
    emitting, listening, theirs = [], [], []
    for _ in range(rounds):
        emitter_us, listener_us = _our_cpu_us(bursts)
        emitting.append(emitter_us)
        listening.append(listener_us)
        theirs.append(_standard_cpu_us(their_count))
    report = Report("cpu: CPU time per record, 10-field record, one thread")
    report.add("ours, under the GIL (emitter)", "µs", emitting, at_most(0.3))
    report.add("ours, outside the GIL (listener thread)", "µs", listening)
    report.add("QueueHandler, under the GIL (emitter and listener)", "µs", theirs)
    report.add("QueueHandler ÷ ours, under the GIL", "×", pairwise(truediv, theirs, emitting))
    return report


def _our_cpu_us(bursts: int) -> tuple[float, float]:
    with scratch_directory() as directory, ours(directory) as mine:
        used = 0.0
        for _ in range(bursts):
            start = time.thread_time()
            emit_many(mine.emit, BURST)
            used += time.thread_time() - start
            mine.settle()
        records = mine.check_books(bursts * BURST)
        return used / records * 1e6, mine.listener_cpu_s() / records * 1e6


def _standard_cpu_us(count: int) -> float:
    with scratch_directory() as directory, standard(directory) as theirs:
        start = time.process_time()  # two threads run, and both hold the GIL for nearly all they do
        emit_many(theirs.emit, count)
        theirs.settle()
        return (time.process_time() - start) / count * 1e6
