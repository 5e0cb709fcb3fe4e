"""A table under construction: the lines of one segment become rows, block by block, until there are no more."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from inference_logging.errors import CorruptLineError
from inference_logging.read.segments import Segment
from inference_logging.read.segments.following import Followed
from inference_logging.read.segments.reading import Line, compressed_lines
from inference_logging.read.table.lines import Identity, Source
from inference_logging.read.table.part import Part

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BLOCK_BYTES: Final = 8 << 20
"""What is read at once: of smaller parts the engine takes far longer."""
_BLOCK_LINES: Final = 50_000


class Build:
    """A table that is being made: the rows so far, and where the next line begins."""

    def __init__(self, segment: Segment, identity: Identity) -> None:
        """Begin with an open segment. Raises OSError."""
        self.identity = identity
        self.part = Part(segment.name, max(0, int(segment.begun.timestamp() * 1000) * 1_000_000))
        self.offset = 0
        self.error: str | None = None
        self._stream: Iterator[Line] | None = compressed_lines(segment) if segment.compressed else None
        self._followed = None if segment.compressed else Followed(segment)
        if self._followed is not None and os.fstat(self._followed.descriptor).st_ino != identity.inode:
            self.keep()
            raise OSError("it was replaced meanwhile")

    def continues(self, source: Source) -> bool:
        """Return whether it can go on with the file as it is now."""
        if self._stream is not None or source.identity.compressed:
            return self.identity == source.identity
        is_open = self._followed is not None and self.identity.inode == source.identity.inode
        return is_open and source.identity.bytes >= self.offset

    def read(self, deadline_s: float) -> bool:
        """Read whole lines until the end or the deadline; return whether it was the end."""
        lines = self._stream if self._stream is not None else self._lines()
        while self._take(lines):
            if time.monotonic() >= deadline_s:
                return False
        return True

    def close(self, cursor: DuckDBPyConnection) -> None:
        """Let go of all."""
        self.part.drop(cursor)
        self.keep()

    def keep(self) -> None:
        """Close the file, and keep the rows."""
        if self._followed is not None:
            self._followed.close()
            self._followed = None

    def _lines(self) -> Iterator[Line]:
        assert self._followed is not None
        return self._followed.lines()

    def _take(self, stream: Iterator[Line]) -> bool:
        """Take a block; return whether there may be more."""
        lines, offsets, size = [], [], 0
        is_end = True
        try:
            for line in islice(stream, _BLOCK_LINES):
                if isinstance(line, bytes):
                    lines.append(line)
                    offsets.append(self.offset)
                else:
                    self.part.unreadable += 1
                self.offset += len(line) + 1
                size += len(line)
                if size >= _BLOCK_BYTES:
                    is_end = False
                    break
            else:
                is_end = len(lines) < _BLOCK_LINES
        except CorruptLineError as error:
            self.error = str(error)
            self.part.unreadable += 1
        self.part.take(lines, offsets)
        return not is_end
