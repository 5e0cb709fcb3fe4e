"""Counts what segments hold: one after the other, or where there is much, in as many processes as there are cores.

Parsing takes most of the time, and counts can be merged, so segments can be counted apart.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any, Final, NamedTuple

import orjson

from inference_logging.errors import CorruptLineError
from inference_logging.read.segments import Segment, read_segment
from inference_logging.read.stats.counts import Counts
from inference_logging.read.times import timestamp

PARALLEL_FROM_BYTES: Final = 128 << 20
"""Below this, starting processes takes longer than it saves."""

MAX_PROCESSES: Final = 8
MAX_REPORTED: Final = 20
"""Damaged lines of one segment that are reported; all are counted."""


_REQUEST: Final = b',"event_name":"request",'
_HEAD_BYTES: Final = 128
_GAPS: Final = b',"chunk_gaps_us":['


class Counted(NamedTuple):
    """The counts, and the damage that was found."""

    counts: Counts
    damage: list[str]


class Window(NamedTuple):
    """The times of records that count, in the records' form: from ``first`` on, before ``end``."""

    first: str = ""
    end: str = "~"

    @classmethod
    def of(cls, since: float | None, until: float | None) -> Window:
        """Make one of seconds since the Unix epoch; None is open."""
        return cls(
            timestamp(since) if since is not None else cls().first, timestamp(until) if until is not None else cls().end
        )


def count(chosen: Sequence[Segment], window: Window, advance: Callable[[int], object]) -> Counted:
    """Count the records of all segments; ``advance`` is called with the bytes read."""
    processes = min(len(chosen), len(os.sched_getaffinity(0)), MAX_PROCESSES)
    if processes < 2 or sum(segment.size_bytes() for segment in chosen) < PARALLEL_FROM_BYTES:
        return _joined([_count_one(segment, window, advance) for segment in chosen])
    return _count_apart(chosen, window, advance, processes)


def _count_apart(
    chosen: Sequence[Segment], window: Window, advance: Callable[[int], object], processes: int
) -> Counted:
    parts = []
    # Spawned, not forked: the progress bar has a thread.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _leave_interrupts_to_the_parent)
    try:
        under_way = {pool.submit(_count_one, segment, window): segment.size_bytes() for segment in chosen}
        for done in as_completed(under_way):
            parts.append(done.result())
            advance(under_way[done])
    finally:
        pool.shutdown(cancel_futures=True)
    return _joined(parts)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _count_one(segment: Segment, window: Window, advance: Callable[[int], object] | None = None) -> Counted:
    counts = Counts()
    damage: list[str] = []

    def report(error: CorruptLineError) -> None:
        counts.corrupt_lines += 1
        if len(damage) < MAX_REPORTED:
            damage.append(str(error))

    for record in read_segment(segment, framing=True, on_corrupt=report, progress=advance, loads=_without_gaps):
        stamp = record.get("timestamp")
        if not isinstance(stamp, str) or window.first <= stamp < window.end:
            counts.add(record)
    return Counted(counts, damage)


def _without_gaps(line: bytes) -> Any:
    """Parse a line without the list of gaps, which is not counted here and is most of a long stream's record."""
    if _REQUEST in line[:_HEAD_BYTES]:
        # Within text the quotes would be escaped, and a request record has no nested values: this is the list.
        begin = line.find(_GAPS)
        end = line.find(b"]", begin)
        if 0 < begin < end:
            line = line[:begin] + line[end + 1 :]
    return orjson.loads(line)


def _joined(parts: Sequence[Counted]) -> Counted:
    whole = Counted(Counts(), [])
    for part in parts:
        whole.counts.merge(part.counts)
        whole.damage.extend(part.damage)
    return whole
