"""The rows of lines, in a table of the engine: of a live segment while it grows, of a sealed one until it is a file.

The core reads lines whose members are those of the columns; any other line is judged by Python's reader, as all other
readers of segments do it. A build takes the lines of one segment, block by block, until there are no more.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import index
from typing import TYPE_CHECKING, Any, Final

import orjson

from inference_logging._native import RowReader
from inference_logging.errors import CorruptLineError
from inference_logging.read.segments import Segment
from inference_logging.read.segments.columns import RESOURCE
from inference_logging.read.segments.following import Followed
from inference_logging.read.segments.reading import Line, compressed_lines, is_framing
from inference_logging.read.table.columns import ALL, COLUMNS, REFUSED, TEXTS, TIMESTAMP
from inference_logging.read.table.engine import connected, name, text, write_parquet
from inference_logging.read.table.lines import Identity, Source

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from inference_logging._native import Rows

_ROW_GROUP: Final = 20_480
_READER: Final = RowReader([(TIMESTAMP, ALL[TIMESTAMP]), *COLUMNS.items()], TEXTS, REFUSED)
_MANY_LINES: Final = 4000
_NUMBERS = itertools.count()


class Part:
    """The rows of a segment's lines, taken block by block."""

    def __init__(self, segment: str, begun_ns: int) -> None:
        """Begin; records without a readable time have that of the record before, the first ones ``begun_ns``."""
        self.tables: tuple[str, ...] = ()
        """Those that are in the engine, after ``show``."""
        self._rows: list[Rows] = []
        """Those that are not."""
        self.segment = segment
        self.resource: dict[str, str] = {}
        self.rows = self.odd = self.unreadable = 0
        self.last_is_footer = False
        self.dropped: list[tuple[str, str, str, str, int]] = []
        self.times: tuple[int, int] | None = None
        self._last_ns = begun_ns
        self._has_small = False
        """The last table takes further rows."""

    def take(self, lines: Sequence[bytes], offsets: Sequence[int]) -> None:
        """Add the rows of whole lines, given with the offset of each."""
        if not lines:
            return
        self.take_header(lines[0])
        self.last_is_footer = False
        found = _READER.read(lines, offsets, self._last_ns, self._judge)
        self._rows.append(found)
        self.rows += found.rows
        self.odd += found.odd
        self._last_ns = found.last_ns
        if found.times is not None:
            both = (self.times or found.times, found.times)
            self.times = min(first for first, _ in both), max(last for _, last in both)
        last = _parsed(lines[-1])
        self.last_is_footer = last is not None and last.get("event_name") == "segment.footer" and is_framing(last)

    def take_header(self, line: bytes) -> None:
        """Take what the first line of a segment says of its process, if it is a header."""
        if self.rows or self.resource or b"segment.header" not in line:
            return
        header = _parsed(line) or {}
        found = header.get("resource")
        if header.get("event_name") == "segment.header" and is_framing(header) and isinstance(found, dict):
            self.resource = {key: one for key, one in found.items() if key in RESOURCE and isinstance(one, str)}

    def show(self, cursor: DuckDBPyConnection) -> None:
        """Put all rows into tables of the engine."""
        if self._rows:
            with self._source(cursor) as source:
                cursor.execute(f"INSERT INTO {self._table_for(cursor)} {source}")
            self._rows.clear()

    def write(self, cursor: DuckDBPyConnection, path: Path) -> None:
        """Write the rows as a Parquet file."""
        # Each thread keeps row groups of its own: one takes half the memory of two, and as long. To open takes 35 ms.
        writer = cursor if self.tables or self.rows <= _ROW_GROUP else connected(threads="1")
        with self._source(writer) as rows:
            source = " UNION ALL ".join([*(f"FROM {table}" for table in self.tables), rows])
            write_parquet(writer, source, path, _ROW_GROUP, level=1)

    def drop(self, cursor: DuckDBPyConnection) -> None:
        """Remove the rows from memory."""
        for table in self.tables:
            cursor.execute(f"DROP TABLE {table}")
        self.tables = ()
        self._rows.clear()

    def _table_for(self, cursor: DuckDBPyConnection) -> str:
        """Return the table for the rows; to add many to a table takes the engine longer than a new one."""
        is_small = sum(rows.rows for rows in self._rows) < _MANY_LINES
        if not (self._has_small and is_small):
            columns = ", ".join(f"{name(column)} {kind}" for column, kind in ALL.items())
            self.tables = (*self.tables, f"part_{next(_NUMBERS)}")
            cursor.execute(f"CREATE TABLE {self.tables[-1]} ({columns})")
        self._has_small = is_small
        return self.tables[-1]

    @contextmanager
    def _source(self, cursor: DuckDBPyConnection) -> Iterator[str]:
        """Let the engine read the rows that it does not have; yields them as SQL."""
        given = {key: text(self.resource[key]) if key in self.resource else "NULL::VARCHAR" for key in RESOURCE}
        more = ", ".join(f"{value} AS {name(key)}" for key, value in given.items())
        all_rows = self._rows or [_READER.read([], [], 0, self._judge)]
        named = {f"rows_{number}": rows for number, rows in enumerate(all_rows)}
        for view, rows in named.items():
            cursor.register(view, rows)
        try:
            yield " UNION ALL ".join(f"SELECT {text(self.segment)} AS segment, *, {more} FROM {view}" for view in named)
        finally:
            for view in named:
                cursor.unregister(view)

    def _judge(self, line: bytes) -> str | None:
        """Return the time of a record, or what it has as such; None for another line, which counts as one.

        Header and footer do not.
        """
        record = _parsed(line)
        if record is None:
            self.unreadable += 1
            return None
        if is_framing(record):
            self._take_dropped(record)
            return None
        time = record.get(TIMESTAMP)
        return time if isinstance(time, str) else ""

    def _take_dropped(self, footer: dict[str, Any]) -> None:
        try:
            self.dropped += [
                (str(footer.get(TIMESTAMP)), *one)
                for process in footer.get("processes", ())
                for one in dropped(process.get("boot_id"), process.get("dropped", {}))
            ]
        except (AttributeError, TypeError):
            self.unreadable += 1


def dropped(boot_id: Any, reasons: Any) -> list[tuple[str, str, str, int]]:
    """Return process, reason, level and number of the records that a process reports as dropped.

    Raises AttributeError, TypeError for what no listener reports.
    """
    return [
        (str(boot_id), reason, level, index(number))
        for reason, levels in reasons.items()
        for level, number in levels.items()
    ]


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None


_BLOCK_BYTES: Final = 8 << 20
"""What is read at once: of smaller parts the engine takes far longer."""
_BLOCK_LINES: Final = 50_000


class Build:
    """A table that is being made: the rows so far, and where the next line begins."""

    def __init__(self, segment: Segment, identity: Identity) -> None:
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
