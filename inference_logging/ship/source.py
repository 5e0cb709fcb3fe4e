"""The records of a directory's segments in the order of their beginning, from the shipper's position on.

Each segment is read from its own offset: plain ones while they grow, and through a descriptor that stays open, so that
one that is compressed or removed meanwhile is read to its end; compressed ones by counting their content. Lines that
are not records are counted as refused. Headers and footers are the segments' own and are not sent; what a header says
about the resource goes with each line of its segment.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from inference_logging.errors import CorruptLineError
from inference_logging.read.segments import Segment, segments
from inference_logging.read.segments.following import Followed
from inference_logging.read.segments.reading import LongLine, Record, compressed_lines, is_footer, is_framing
from inference_logging.ship.letters import Letter
from inference_logging.ship.line import Line, Resource
from inference_logging.ship.offsets import Offsets, Progress

CORRUPT: Final = "corrupt"
"""The reason of a letter that is no record."""
_LONGEST_HEADER_BYTES = 64 << 10
_SETTLED_NS: Final = 2_000_000_000
"""A change that is younger may bear the same time as the next one: file systems count in steps, up to two seconds."""


class Stand(NamedTuple):
    """The position in a segment, and whether nothing more will come."""

    offset: int
    is_whole: bool


@dataclass
class Batch:
    """Lines to be sent together, and the positions of their segments once they are acknowledged."""

    lines: list[Line] = field(default_factory=list)
    stands: dict[str, Stand] = field(default_factory=dict)
    corrupt: list[Letter] = field(default_factory=list)
    """What could not be read as a record."""
    unread: list[OSError] = field(default_factory=list)
    """Of directories that could not be read, where others could."""
    footers: set[str] = field(default_factory=set)
    """Segments whose last line was read."""
    bytes: int = 0


class _Compressed:
    """The lines of a compressed segment, and the position in them."""

    def __init__(self, segment: Segment, offset: int) -> None:
        self.offset = offset
        self.first: bytes | LongLine = b""
        """The first line, once it was read."""
        self._lines = self._keeping_first(compressed_lines(segment))
        passed = 0
        while passed < offset and (line := next(self._lines, None)) is not None:
            passed += len(line) + 1

    def _keeping_first(self, lines: Iterator[bytes | LongLine]) -> Iterator[bytes | LongLine]:
        for line in lines:
            self.first = self.first or line
            yield line

    def lines(self) -> Iterator[bytes | LongLine]:
        """Return the lines that were not read yet."""
        for line in self._lines:
            self.offset += len(line) + 1
            yield line


class Listing:
    """The segments of ``directory``, listed again once it has changed: it was created anew, or something in it was."""

    def __init__(self, directory: Path) -> None:
        """Keep it; it need not be there yet."""
        self._directory = directory
        self._listed: tuple[tuple[int, int, int] | None, list[Segment]] = (None, [])

    def segments(self) -> list[Segment]:
        """Return them as ``segments``; the list is not the caller's. Raises as ``segments``. For several threads."""
        facts = self._directory.stat()
        version = (facts.st_dev, facts.st_ino, facts.st_ctime_ns)
        known, listed = self._listed
        if version != known:
            is_settled = time.time_ns() - facts.st_ctime_ns > _SETTLED_NS
            listed = segments(self._directory)
            self._listed = (version if is_settled else None, listed)
        return listed


class Source:
    """The segments of ``directory``, for the shipper that has come as far as ``offsets`` says, or for that of a name.

    ``suffix`` follows the name of the service in their prefixes. ``once``: records that are written after its first
    look are left to the next one. ``repeats``: a batch that was planned and not acknowledged is read again as it was,
    also by the next shipper. Raises ``OpenError`` for a name, as ``Offsets``.
    """

    def __init__(
        self, directory: Path, offsets: str | Progress, *, suffix: str = "", once: bool = False, repeats: bool = False
    ) -> None:
        self.directory, self._suffix = directory, suffix
        self._offsets = Offsets(directory, offsets) if isinstance(offsets, str) else offsets
        self._listing = Listing(directory)
        self._open: dict[str, Followed] = {}
        self._unpacked: dict[str, _Compressed] = {}
        self._resources: dict[str, Resource] = {}
        self._done: set[str] = set()
        self._once, self._ends, self._repeats = once, dict[str, int](), repeats

    def read(self, most_records: int, most_bytes: int) -> Batch:
        """Return what comes next, up to a limit; empty if there is nothing new. Raises OSError, MissingExtraError."""
        batch = self._planned()
        if batch.stands:
            return batch
        for segment in self._unfinished(forgets=True):
            for line in self._lines(segment, batch):
                batch.lines.append(line)
                batch.bytes += len(line.raw)
                if len(batch.lines) >= most_records or batch.bytes >= most_bytes:
                    return batch
        return batch

    def has_plan(self) -> bool:
        """Return whether what comes next was planned before, and is not acknowledged."""
        return self._repeats and bool(self._offsets.sending)

    def _planned(self) -> Batch:
        """Return the batch that was planned last; empty if it is acknowledged, or nothing of it is there any more."""
        batch, ends = Batch(), self._offsets.sending if self.has_plan() else {}
        for segment in self._unfinished() if ends else ():
            if segment.name in ends:
                for line in self._lines(segment, batch, ends[segment.name]):
                    batch.lines.append(line)
                    batch.bytes += len(line.raw)
        return batch

    def plan(self, batch: Batch) -> None:
        """Save what is going to be sent, if it must be possible to send the same again. Raises OSError."""
        if self._repeats:
            self._offsets.sending = {segment: stand.offset for segment, stand in batch.stands.items()}
            self._offsets.save()

    def acknowledge(self, batch: Batch) -> None:
        """Save that a batch has arrived. Raises OSError; this source goes on all the same, the next begins earlier."""
        self._offsets.sending = {}
        for segment, stand in batch.stands.items():
            self._offsets.of[segment] = stand.offset
        if batch.stands:
            self._offsets.save()
        for segment in [segment for segment, stand in batch.stands.items() if stand.is_whole]:
            self._finish(segment)

    def give_up(self, letters: Sequence[Letter]) -> int:
        """Put records of this directory into the file of dead letters; return how many have room. Raises OSError."""
        return self._offsets.letters.add(self.directory, letters)

    def lag_bytes(self) -> int:
        """Return how many bytes of segments are not acknowledged; for a compressed one all of its bytes on disk."""
        of = {one: 0 if one.compressed else self._offsets.of.get(one.name, 0) for one in self._unfinished()}
        return sum(max(0, one.size_bytes() - offset) for one, offset in of.items())

    def has_writers(self) -> bool:
        """Return whether one of the segments that were read still has a writer."""
        return any(followed.has_writer() for followed in self._open.values())

    def is_over(self) -> bool:
        """Return whether the directory is gone, and all that was open of it is read."""
        return not self._open and not self.directory.is_dir()

    def _finish(self, segment: str) -> None:
        path = self.directory / segment
        if path.exists() or path.with_name(f"{segment}.zst").exists():
            self._offsets.mark(segment)
        self._offsets.of.pop(segment, None)
        self._done.add(segment)
        self._unpacked.pop(segment, None)
        self._resources.pop(segment, None)
        if segment in self._open:
            self._open.pop(segment).close()

    def _unfinished(self, *, forgets: bool = False) -> list[Segment]:
        """Return what waits. Only who reads ``forgets``: the list of another thread may be older than a mark."""
        try:
            listed = self._listing.segments()
            if forgets:
                self._offsets.keep({segment.name for segment in listed})
        except FileNotFoundError:
            listed = []
        if self._once:
            self._ends = self._ends or {segment.name: segment.size_bytes() for segment in listed}
            listed = [segment for segment in listed if segment.name in self._ends]
        names = {segment.name for segment in listed}
        self._done &= names
        self._done |= {name for name in names - self._done if self._offsets.is_done(name)}
        # A removed segment that is still open here is read to its end.
        gone = [followed.segment for name, followed in self._open.items() if name not in names]
        for name in [name for name in self._offsets.of if name not in names and name not in self._open]:
            del self._offsets.of[name]
        return sorted(gone + [segment for segment in listed if segment.name not in self._done])

    def _lines(self, segment: Segment, batch: Batch, most: float = math.inf) -> Iterator[Line]:
        """Return the new lines of a segment, those before ``most``; returned lines are in the batch's stands."""
        offset = self._offsets.of.get(segment.name, 0)
        followed = self._followed(segment, offset)
        if followed is None:
            yield from self._rest_of_compressed(segment, offset, batch, most)
            return
        followed.offset = 0 if followed.is_truncated() else offset
        # Checked before the last read: records that were written before the lock was released are then read here.
        has_writer = followed.has_writer()
        # Without a writer nothing more comes.
        end = min(most, self._ends.get(segment.name, math.inf) if has_writer else math.inf)
        for raw in followed.lines() if followed.offset < end else ():
            yield from self._take(raw, segment, followed.offset, batch)
            if followed.offset >= end:
                break
        if most == math.inf and (segment.name in batch.footers or not has_writer):
            batch.stands[segment.name] = Stand(followed.offset, is_whole=True)

    def _followed(self, segment: Segment, offset: int) -> Followed | None:
        if segment.name in self._open:
            return self._open[segment.name]
        if segment.compressed:
            return None
        try:
            followed = Followed(segment)
        except FileNotFoundError:
            return None
        followed.offset = offset
        self._open[segment.name] = followed
        return followed

    def _rest_of_compressed(self, segment: Segment, offset: int, batch: Batch, most: float) -> Iterator[Line]:
        if offset >= most:
            return
        try:
            unpacked = self._unpacked.get(segment.name)
            if unpacked is None or unpacked.offset != offset:
                unpacked = self._unpacked[segment.name] = _Compressed(segment, offset)
            for raw in unpacked.lines():
                offset = unpacked.offset
                yield from self._take(raw, segment, offset, batch)
                if offset >= most:
                    return
        except FileNotFoundError:
            return  # removed: the next look shows it
        except CorruptLineError as error:
            batch.corrupt.append(Letter(segment.name, offset, b"", CORRUPT, str(error)))
        batch.stands[segment.name] = Stand(offset, is_whole=True)

    def _take(self, raw: bytes | LongLine, segment: Segment, end: int, batch: Batch) -> Iterator[Line]:
        """Note that a line before ``end`` is read, and return it if it is a record."""
        batch.stands[segment.name] = Stand(end, is_whole=False)
        begun = end - len(raw) - 1
        if isinstance(raw, LongLine):
            text = f"{segment.path}, byte {begun}: {len(raw)} bytes without a line break"
            batch.corrupt.append(Letter(segment.name, begun, b"", CORRUPT, text))
            return
        try:
            record: Record = orjson.loads(raw)
            is_frame = is_framing(record)
        except (orjson.JSONDecodeError, AttributeError):
            text = f"{segment.path}, byte {begun}: no record"
            batch.corrupt.append(Letter(segment.name, begun, raw, CORRUPT, text))
            return
        if not is_frame:
            service_name = segment.prefix.removesuffix(self._suffix)
            yield Line(service_name, segment.name, begun, raw, record, self._resource(segment, service_name))
        elif is_footer(record):
            batch.footers.add(segment.name)

    def _resource(self, segment: Segment, service_name: str) -> Resource:
        """Return the resource of a segment; of one whose header says nothing, the name of the service."""
        if segment.name not in self._resources:
            declared = _declared(self._first_line(segment))
            self._resources[segment.name] = {"service.name": service_name, **declared}
        return self._resources[segment.name]

    def _first_line(self, segment: Segment) -> bytes:
        if segment.name in self._open:
            first = os.pread(self._open[segment.name].descriptor, _LONGEST_HEADER_BYTES, 0)
        else:
            unpacked = self._unpacked[segment.name]
            first = unpacked.first if isinstance(unpacked.first, bytes) else b""
        return first.partition(b"\n")[0]

    def close(self) -> None:
        """Let another shipper go on."""
        for followed in self._open.values():
            followed.close()
        self._open.clear()
        self._offsets.close()


def _declared(header: bytes) -> dict[str, str]:
    """Return what the line that a segment begins with says about its resource."""
    try:
        record = orjson.loads(header)
        declared = record.get("resource") if is_framing(record) else None
    except (orjson.JSONDecodeError, AttributeError):
        return {}
    found = declared.items() if isinstance(declared, dict) else ()
    return {name: value for name, value in found if isinstance(value, str)}
