"""The lines of one segment by their offsets, plain or compressed, and whether the file is still the same."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

from inference_logging.errors import CorruptLineError
from inference_logging.read.segments import Segment
from inference_logging.read.segments.following import is_locked
from inference_logging.read.segments.reading import LONGEST_LINE_BYTES, compressed_lines

_USUAL_LINE: Final = 4096
_AT_ONCE_BYTES: Final = 4 << 20
_GAP_BYTES: Final = 64 << 10
"""Lines that are nearer to each other are read together."""


class Identity(NamedTuple):
    """What differs between two files, and in one file after a change."""

    compressed: bool
    inode: int
    bytes: int
    modified_ns: int


class Source:
    """An open segment."""

    def __init__(self, directory: Path, name: str) -> None:
        """Open the plain form, else the compressed one. Raises OSError, FileNotFoundError if there is neither."""
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        path = directory / name
        try:
            self.descriptor = os.open(path, flags)
        except FileNotFoundError:
            path = directory / f"{name}.zst"
            self.descriptor = os.open(path, flags)
        facts = os.fstat(self.descriptor)
        segment = Segment.parse(path)
        if not stat.S_ISREG(facts.st_mode) or segment is None:
            os.close(self.descriptor)
            raise OSError(f"{path}: no file of records")
        self.segment = segment
        self.identity = Identity(segment.compressed, facts.st_ino, facts.st_size, facts.st_mtime_ns)

    def __enter__(self) -> Source:
        """Stay open until the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def is_sealed(self) -> bool:
        """Return whether no writer holds the segment."""
        return self.identity.compressed or not is_locked(self.descriptor)

    def content_bytes(self) -> int | None:
        """Return the length of the content; None where a compressed file does not state it."""
        if not self.identity.compressed:
            return self.identity.bytes
        try:
            import zstandard
        except ImportError:
            return None
        try:
            size = zstandard.frame_content_size(os.pread(self.descriptor, 18, 0))
        except zstandard.ZstdError:
            return None
        return size if size >= 0 else None

    def is_compressed_form_of(self, then: Identity, content_bytes: int) -> bool:
        """Return whether it holds what a plain file did: compression keeps the time, and states the length."""
        return (
            self.identity.compressed
            and not then.compressed
            and self.identity.modified_ns == then.modified_ns
            and self.content_bytes() == content_bytes
        )

    def at(self, places: Sequence[tuple[int, int]]) -> Iterator[bytes | None]:
        """Iterate over lines by offset and length, in ascending order; None for one that is not there."""
        if self.identity.compressed:
            yield from self._in_stream(places)
            return
        first = 0
        while first < len(places):
            last, begin = first, places[first][0]
            while last + 1 < len(places):
                here, following = sum(places[last]), places[last + 1]
                if following[0] - here > _GAP_BYTES or sum(following) - begin > _AT_ONCE_BYTES:
                    break
                last += 1
            block = self._read(begin, sum(places[last]) - begin)
            for offset, length in places[first : last + 1]:
                line = block[offset - begin : offset - begin + length]
                yield line if len(line) == length else None
            first = last + 1

    def line(self, offset: int) -> bytes | None:
        """Return the line that begins at an offset; None if none does, or it has no end."""
        if self.identity.compressed:
            return next(self._in_stream([(offset, -1)]), None)
        if offset > 0 and self._read(offset - 1, 1) != b"\n":
            return None
        size = _USUAL_LINE
        while True:
            block = self._read(offset, size)
            line, newline, _ = block.partition(b"\n")
            if newline:
                return line
            if len(block) < size or size > LONGEST_LINE_BYTES:
                return None
            size *= 16

    def lines_from(self, begin: int, end: int) -> tuple[list[bytes], list[int], int]:
        """Return the whole lines of a plain file in a range, their offsets, and where the last one ends."""
        block = self._read(begin, end - begin)
        # The first line is a part of one, unless the segment begins with it.
        first = block.find(b"\n") + 1 if begin > 0 else 0
        last = block.rfind(b"\n") + 1
        if last <= first:
            return [], [], begin
        lines = block[first : last - 1].split(b"\n")
        offsets = list(accumulate((len(line) + 1 for line in lines[:-1]), initial=begin + first))
        return lines, offsets, begin + last

    def _in_stream(self, places: Sequence[tuple[int, int]]) -> Iterator[bytes | None]:
        """Iterate over lines of a compressed file, which has no middle: all pass until the last one that is wanted."""
        position, lines = 0, compressed_lines(self.segment)
        line = b""
        for offset, _ in places:
            begin = position
            try:
                while position <= offset:
                    begin = position
                    found = next(lines)
                    line = found if isinstance(found, bytes) else b""
                    position += len(found) + 1
            except (StopIteration, CorruptLineError, OSError):
                yield None
                continue
            yield line if begin == offset else None

    def _read(self, offset: int, size: int) -> bytes:
        parts = []
        while size > 0 and (part := os.pread(self.descriptor, size, min(offset, (1 << 63) - 1 - size))):
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)
