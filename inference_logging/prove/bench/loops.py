"""The two kinds of load that each thread makes, each call timed by itself, and nothing subtracted.

Closed: a thread calls again as soon as the last call has returned. This shows what a call costs at the peer's highest
rate. A stall delays the calls behind it, so it counts once only.

Open: calls are due at a constant rate, whatever the last one took, and a call's time counts from when it was due. So a
stall counts in every call that it delays, as it does for requests that arrive meanwhile. A thread sleeps until a call
is due; what waking up takes is in the figures of every peer, and the empty call shows it.

A call that says that it was refused is counted, and its time is not: a refusal is quicker than a record.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from inference_logging.prove.bench.record import Call

Clock = Callable[[], int]
Sleep = Callable[[float], None]

GIVE_UP: Final = 2.0
"""A thread makes no more calls once it takes this many times as long as the calls were planned for."""


@dataclass
class Timings:
    """What one thread did: calls made, those refused, those that were due and never made, and the end of the last."""

    taken_ns: array[int]
    timed: int = 0
    calls: int = 0
    refused: int = 0
    not_made: int = 0
    ended_ns: int = 0

    def times(self) -> array[int]:
        """Return the times of the calls that were accepted, and those of calls that were never made."""
        return self.taken_ns[: self.timed]


def space(calls: int) -> array[int]:
    """Return room for the times of so many calls; its pages are touched, so that none is mapped while calls run."""
    return array("Q", bytes(8 * calls))


def closed(call: Call, timings: Timings, first_number: int, end_ns: int, clock: Clock = time.perf_counter_ns) -> None:
    """Call until ``end_ns``, or until there is no more room for times."""
    taken, timed, refused = timings.taken_ns, 0, 0
    number = first_number
    after = 0
    for number in range(first_number, first_number + len(taken)):
        before = clock()
        accepted = call(number)
        after = clock()
        if accepted is False:
            refused += 1
        else:
            taken[timed] = after - before
            timed += 1
        if after >= end_ns:
            break
    timings.calls, timings.timed, timings.refused, timings.ended_ns = number + 1 - first_number, timed, refused, after


@dataclass(frozen=True)
class Schedule:
    """When a thread's calls are due: ``calls`` of them from ``first_ns`` on, one each ``interval_ns``."""

    first_ns: int
    interval_ns: float
    calls: int

    @staticmethod
    def of_thread(thread: int, threads: int, start_ns: int, rate_per_s: float, seconds: float) -> Schedule:
        """Return the share of a thread in calls that come at ``rate_per_s`` in all, evenly."""
        gap_ns = 1e9 / rate_per_s
        in_all = max(int(rate_per_s * seconds), threads)
        calls = in_all // threads + (thread < in_all % threads)
        return Schedule(start_ns + int(thread * gap_ns), threads * gap_ns, calls)

    def due_ns(self, position: int) -> int:
        """Return when a call is due."""
        return self.first_ns + int(position * self.interval_ns)


def paced(
    call: Call,
    timings: Timings,
    first_number: int,
    schedule: Schedule,
    clock: Clock = time.perf_counter_ns,
    sleep: Sleep = time.sleep,
) -> None:
    """Make each call when it is due, or at once where that has passed; its time counts from when it was due.

    Calls that are not made for lack of time count as long as they have waited by then, which is less than they would
    have taken.
    """
    give_up_ns = schedule.first_ns + int(GIVE_UP * schedule.calls * schedule.interval_ns)
    for position in range(schedule.calls):
        due = schedule.due_ns(position)
        now = clock()
        if now >= give_up_ns:
            _leave(timings, schedule, position, now)
            break
        while now < due:
            sleep((due - now) / 1e9)
            now = clock()
        accepted = call(first_number + position)
        after = clock()
        timings.calls += 1
        timings.ended_ns = after
        if accepted is False:
            timings.refused += 1
        else:
            timings.taken_ns[timings.timed] = after - due
            timings.timed += 1


def _leave(timings: Timings, schedule: Schedule, position: int, now: int) -> None:
    for left in range(position, schedule.calls):
        timings.taken_ns[timings.timed] = max(now - schedule.due_ns(left), 0)
        timings.timed += 1
    timings.not_made = schedule.calls - position


def batched(call: Call, first_number: int, batch: int, end_ns: int, clock: Clock = time.perf_counter_ns) -> list[float]:
    """Return the time of a call in each batch of ``batch`` calls until ``end_ns``, the loop included."""
    means = []
    number = first_number
    while True:
        before = clock()
        for current in range(number, number + batch):
            call(current)
        after = clock()
        means.append((after - before) / batch)
        number += batch
        if after >= end_ns:
            return means
