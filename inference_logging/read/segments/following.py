"""Follow the segments of a directory while they grow, through rotation, compression and removal."""

from __future__ import annotations

import fcntl
import heapq
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import orjson

from inference_logging.read.segments.reading import (
    BLOCK_BYTES,
    CLOCKS_S,
    Line,
    LineJoiner,
    OnCorrupt,
    Prefix,
    Record,
    Segment,
    is_footer,
    is_framing,
    parse,
    read_segment,
    segments,
)

Kind: TypeAlias = Literal["begun", "ended", "truncated", "removed"]

_Found = TypeVar("_Found")

_BEGIN = b'{"timestamp":"'
_STAMP_BYTES = len("2026-01-01T00:00:00.000000000Z")
_LAST_LINE_BYTES = 256 << 10  # more than the longest footer


class Change(NamedTuple):
    """What happened to a segment that is followed."""

    kind: Kind
    segment: Segment


class Stop(Protocol):
    """What ends ``follow_records``; ``threading.Event`` is one."""

    def wait(self, timeout: float, /) -> bool:
        """Wait ``timeout`` seconds or until it is set; return whether it is."""


def follow_records(
    directory: str | os.PathLike[str],
    *,
    prefix: Prefix = None,
    keep: Callable[[Record], bool] | None = None,
    begin: Literal["start", "end"] = "end",
    last: int = 0,
    since_unix_s: float = 0.0,
    framing: bool = False,
    poll_interval_s: float = 0.2,
    stop: Stop | None = None,
    on_corrupt: OnCorrupt | None = None,
    on_change: Callable[[Change], object] | None = None,
) -> Iterator[Record]:
    """Iterate over records as they are written, from segment to segment, until ``stop`` is set.

    ``keep``: only the records for which it is true. ``begin``: with the oldest segment, or with the records that are
    written from now on, after the ``last`` records before them, by time over all segments; segments last written before
    ``since_unix_s`` are skipped. It checks every ``poll_interval_s`` seconds, and once more when ``stop`` is set; it
    waits for a directory that doesn't exist yet. Several live segments (of several queue directories) are followed at
    once. ``on_change`` is called when a segment begins, ends (its footer was read, or its writer died), was truncated
    from outside (it is then read from its start), or was removed (an open one is still read to its end).

    Raises as ``read_records``.
    """
    stop = stop if stop is not None else threading.Event()
    follower = _Follower(Path(directory), prefix, keep, on_corrupt, on_change)
    try:
        if begin == "end":
            yield from follower.skip_to_end(last, since_unix_s)
        stopped = False
        while True:
            for record in follower.look():
                if framing if is_framing(record) else keep is None or keep(record):
                    yield record
            if stopped:
                return
            stopped = stop.wait(poll_interval_s)
    finally:
        follower.close()


def _stamp(record: Record) -> str:
    return str(record.get("timestamp", ""))


def _stamp_of_line(numbered: tuple[int, Line]) -> str:
    _, line = numbered
    if not isinstance(line, bytes):
        return ""
    if line.startswith(_BEGIN):  # as the listener writes it: no need to parse
        return line[len(_BEGIN) : len(_BEGIN) + _STAMP_BYTES].decode("ascii", "replace")
    try:
        return _stamp(orjson.loads(line))
    except (orjson.JSONDecodeError, AttributeError):
        return ""


def _latest(found: Iterable[_Found], last: int, stamp: Callable[[_Found], str]) -> list[_Found]:
    """Return the ``last`` by time, in that order: the lines of several processes are not quite in it."""
    numbered = heapq.nlargest(last, enumerate(found), key=lambda one: (stamp(one[1]), one[0]))
    return [one for _, one in reversed(numbered)]


def _as_stamp(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class _End(NamedTuple):
    """The position in a segment: up to ``offset`` in whole lines, up to ``size`` in an unfinished one."""

    offset: int
    size: int
    modified_ns: int
    passed: int
    """How much of an unfinished line above the limit is known to hold no line break."""


def is_locked(descriptor: int) -> bool:
    """Return whether a listener holds the lock of an open segment."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


class Followed:
    """An open plain segment and its position: ``offset`` is always just after a newline."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.descriptor = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.offset = 0
        self.number = 0
        self.has_footer = False
        self._end = _End(0, 0, 0, 0)

    def lines(self) -> Iterator[Line]:
        """Return the whole lines that were not read yet."""
        facts, end = os.fstat(self.descriptor), self._end
        if end[:3] == (self.offset, facts.st_size, facts.st_mtime_ns):
            return  # what stands behind has not grown
        joiner = LineJoiner(end.passed if end.offset == self.offset and end.size <= facts.st_size else 0)
        position = self.offset + joiner.bytes
        while block := os.pread(self.descriptor, BLOCK_BYTES, position):
            position += len(block)
            for line in joiner.add(block):
                self.offset += len(line) + 1
                self.number += 1
                yield line
        self._end = _End(self.offset, position, facts.st_mtime_ns, joiner.bytes if joiner.is_long else 0)

    def is_truncated(self) -> bool:
        """Return whether it is shorter than the part that was read; then begin again."""
        if os.fstat(self.descriptor).st_size >= self.offset:
            return False
        self.offset = self.number = 0
        return True

    def has_writer(self) -> bool:
        """Return whether a process holds the lock of the live segment; only checked once there is a header."""
        return self.offset == 0 or is_locked(self.descriptor)

    def ends_with_footer(self) -> bool:
        """Return whether it is sealed, by the last line alone."""
        size = os.fstat(self.descriptor).st_size
        block = os.pread(self.descriptor, _LAST_LINE_BYTES, max(0, size - _LAST_LINE_BYTES))
        try:
            record = orjson.loads(block[block.rfind(b"\n", 0, -1) + 1 :]) if block.endswith(b"\n") else None
        except orjson.JSONDecodeError:
            return False
        return isinstance(record, dict) and is_footer(record)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)


class _Follower:
    """The growing segments of a directory, and the names of the finished ones."""

    def __init__(
        self,
        directory: Path,
        prefix: Prefix,
        keep: Callable[[Record], bool] | None,
        on_corrupt: OnCorrupt | None,
        on_change: Callable[[Change], object] | None,
    ) -> None:
        self._directory, self._prefix, self._keep = directory, prefix, keep
        self._on_corrupt, self._on_change = on_corrupt, on_change
        self._open: dict[str, Followed] = {}
        self._done: set[str] = set()

    def skip_to_end(self, last: int, since_unix_s: float) -> list[Record]:
        """Skip the present records; return the ``last`` of them, by time, of segments written since then."""
        kept: list[Record] = []
        for written_unix_s, segment in sorted(((s.written_unix_s(), s) for s in self._listed()), reverse=True):
            # Only segments that were written since can have records younger than the kept ones.
            end_unix_s = written_unix_s + CLOCKS_S
            is_passed = end_unix_s < since_unix_s or (
                len(kept) == last and (not kept or _stamp(kept[0]) > _as_stamp(end_unix_s))
            )
            followed = None if segment.compressed else self._begin(segment)
            found: Iterable[Record] = ()
            if followed is not None:
                found = self._skip(followed, 0 if is_passed else last)
            elif not is_passed:
                found = _latest(filter(self._keep, read_segment(segment, on_corrupt=self._on_corrupt)), last, _stamp)
            if followed is None:
                self._done.add(segment.name)
            if found:
                kept = sorted([*found, *kept], key=_stamp)[-last:]
        return kept

    def _skip(self, followed: Followed, last: int) -> list[Record]:
        is_sealed = followed.ends_with_footer()
        records: list[Record] = []
        if last or not is_sealed:
            lines: Iterable[tuple[int, Line]] = ((followed.number, line) for line in followed.lines())
            if self._keep is None or not last:
                lines = _latest(lines, last + 2, _stamp_of_line)  # with header and footer
            parsed = (parse(line, followed.segment, number, self._on_corrupt) for number, line in lines if last)
            found = (record for record in parsed if record is not None and not is_framing(record))
            records = _latest(filter(self._keep, found), last, _stamp)
        if is_sealed:
            self._end(followed)
        return records

    def look(self) -> Iterator[Record]:
        """Return the records that came since the last look."""
        listed = self._listed()
        names = {segment.name for segment in listed}
        self._done &= names
        for followed in list(self._open.values()):
            # One that was removed or compressed meanwhile is still open here: nothing of it is lost.
            yield from self._rest(followed, is_listed=followed.segment.name in names)
        for segment in listed:
            if segment.name not in self._done and segment.name not in self._open:
                yield from self._first(segment)

    def _first(self, segment: Segment) -> Iterator[Record]:
        followed = None if segment.compressed else self._begin(segment)
        if followed is not None:
            self._report_change("begun", segment)
            yield from self._rest(followed, is_listed=True)
        elif segment.compressed:
            self._done.add(segment.name)
            self._report_change("begun", segment)
            yield from read_segment(segment, framing=True, on_corrupt=self._on_corrupt)
            self._report_change("ended", segment)

    def _rest(self, followed: Followed, *, is_listed: bool) -> Iterator[Record]:
        if followed.is_truncated():
            self._report_change("truncated", followed.segment)
        # Checked before the last read: records that were written before the lock was released are then read here.
        has_writer = followed.has_writer()
        for line in followed.lines():
            record = parse(line, followed.segment, followed.number, self._on_corrupt)
            if record is not None:
                followed.has_footer = is_footer(record)
                yield record
        if followed.has_footer or (is_listed and not has_writer):
            self._end(followed)
            self._report_change("ended", followed.segment)
        elif not is_listed:
            self._end(followed)
            self._report_change("removed", followed.segment)

    def _listed(self) -> list[Segment]:
        try:
            return segments(self._directory, self._prefix)
        except FileNotFoundError:
            return []

    def _begin(self, segment: Segment) -> Followed | None:
        try:
            followed = Followed(segment)
        except FileNotFoundError:
            return None  # removed or compressed since it was listed: the next look shows which
        self._open[segment.name] = followed
        return followed

    def _end(self, followed: Followed) -> None:
        followed.close()
        del self._open[followed.segment.name]
        self._done.add(followed.segment.name)

    def _report_change(self, kind: Kind, segment: Segment) -> None:
        if self._on_change is not None:
            self._on_change(Change(kind, segment))

    def close(self) -> None:
        """Close what is open."""
        for followed in self._open.values():
            followed.close()
        self._open.clear()
