"""The content of a directory's segments: their names, their order, their records.

The format is described in ``native/segments/src/segment.rs``. Plain segments and those that were compressed
(``.jsonl.zst``) are read alike, also while one turns into the other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import orjson

from inference_logging.errors import CorruptLineError, MissingExtraError

Record: TypeAlias = dict[str, Any]
"""One line, parsed: keys as they stand in the segment."""

Prefix: TypeAlias = str | Collection[str] | None
"""Which segments: of one ``service_name``, of several, or all."""

OnCorrupt: TypeAlias = Callable[[CorruptLineError], object]
"""What is called for a line that is not a record; ``errors.append`` collects them."""

CLOCKS_S = 1.0
"""How far a file's time may lie behind the records in it: the file system's clock ticks more slowly."""

BLOCK_BYTES = 1 << 20

LONGEST_LINE_BYTES = 128 << 20
"""More than the line of any record; of a longer one only the length is read, whatever a segment holds."""

_NAME = re.compile(
    r"(?P<prefix>[A-Za-z0-9_-][A-Za-z0-9._-]{0,99})-(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)\.(\d{3})Z-(?P<boot_id>[0-9a-f]{16})-"
    r"(?P<number>\d{6}|[1-9]\d{6,19})\.jsonl(?:\.zst)?",
    re.ASCII,
)
_COMPRESSED_BLOCK_BYTES = 64 << 10
_COMPRESSED_STEP_BYTES = 1 << 10  # zeroes grow to 32 MiB


class LongLine:
    """A line above ``LONGEST_LINE_BYTES``, with only its length."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        """Return its bytes, without the newline."""
        return self._length


Line: TypeAlias = bytes | LongLine


class LineJoiner:
    """Makes lines of blocks, in linear time and bounded memory. ``bytes``: the known part of the unfinished line."""

    def __init__(self, passed: int = 0) -> None:
        """Begin; ``passed``: this many bytes of a line above the limit were read before."""
        self.bytes, self.is_long = passed, passed > 0
        self._parts: list[bytes] = []

    def add(self, block: bytes) -> Iterator[Line]:
        """Take a block and return the lines that end in it."""
        first, *others = block.split(b"\n")
        self._keep(first)
        if others:
            line: Line = LongLine(self.bytes) if self.is_long else b"".join(self._parts)
            self.bytes, self.is_long = 0, False
            self._parts.clear()
            self._keep(others.pop())
            yield line
            yield from others

    def _keep(self, part: bytes) -> None:
        self.bytes += len(part)
        self.is_long = self.is_long or self.bytes > LONGEST_LINE_BYTES
        if self.is_long:
            self._parts.clear()
        elif part:
            self._parts.append(part)


class Segment(NamedTuple):
    """One segment of a directory. Segments compare by the order in which they were begun."""

    begun: datetime
    boot_id: str
    number: int
    prefix: str
    path: Path

    @classmethod
    def parse(cls, path: str | os.PathLike[str]) -> Segment | None:
        """Return the segment that ``path`` names, or None if it is not a segment's name."""
        match = _NAME.fullmatch(Path(path).name)
        if match is None:
            return None
        year, month, day, hour, minute, second, milli = map(int, match.groups()[1:8])
        try:
            begun = datetime(year, month, day, hour, minute, second, milli * 1000, timezone.utc)
        except ValueError:
            return None
        return cls(begun, match["boot_id"], int(match["number"]), match["prefix"], Path(path))

    @property
    def name(self) -> str:
        """The name it was given; the same before and after compression."""
        return self.path.name.removesuffix(".zst")

    @property
    def compressed(self) -> bool:
        """Whether ``path`` is the compressed form."""
        return self.path.suffix == ".zst"

    def written_unix_s(self) -> float:
        """Return the time of the last write, 0 if the file is gone: no record in it is younger."""
        try:
            return self.path.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def size_bytes(self) -> int:
        """Return its size on disk, 0 if the file is gone: ``progress`` adds up to these sizes."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0


def segments(directory: str | os.PathLike[str], prefix: Prefix = None) -> list[Segment]:
    """Return the segments of ``directory`` in the order of their beginning, each once.

    If a segment exists plain and compressed (compression is under way, or was interrupted), the plain one is listed.
    Symbolic links and files with other names are skipped. ``prefix``: only the segments of this ``service_name``, or of
    these. Raises OSError if the directory can't be read.
    """
    chosen = (prefix,) if isinstance(prefix, str) else prefix
    found: dict[str, Segment] = {}
    # Twice: a directory that changes under the look may show neither the plain form, already removed, nor the
    # compressed one, just created. The second look then shows it, and what only the first one shows is removed by now,
    # or compressed, which a reader finds out.
    for segment in (*_look(directory), *_look(directory)):
        if chosen is not None and segment.prefix not in chosen:
            continue
        if segment.name not in found or found[segment.name].compressed:
            found[segment.name] = segment
    return sorted(found.values())


def _look(directory: str | os.PathLike[str]) -> list[Segment]:
    with os.scandir(directory) as entries:
        named = ((entry, Segment.parse(entry.path)) for entry in entries)
        return [segment for entry, segment in named if segment is not None and entry.is_file(follow_symlinks=False)]


def read_records(
    path: str | os.PathLike[str],
    *,
    prefix: Prefix = None,
    framing: bool = False,
    on_corrupt: OnCorrupt | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Record]:
    """Iterate over the records of a directory's segments, or of the one segment at ``path``, unchanged.

    The last line of a segment is left out while it has no newline (it is being written, or its listener died in it).
    With ``framing``, headers and footers (``event_name`` ``segment.header``, ``segment.footer``) are included.
    ``on_corrupt`` is called for each line that is not a record; without it such a line raises. ``progress`` is called
    with the bytes just read from disk, which add up to the sizes of the segments. A segment that is removed meanwhile
    is skipped.

    Raises ``CorruptLineError`` naming file and line, ``MissingExtraError`` if a segment is compressed and the extra
    ``cli`` isn't installed, OSError if something can't be read, ValueError if ``path`` is a file of another name.
    """
    if Path(path).is_dir():
        chosen = segments(path, prefix)
    else:
        segment = Segment.parse(path)
        if segment is None:
            raise ValueError(f"path={os.fspath(path)!r}: neither a directory nor named like a segment")
        Path(path).stat()  # raises where there is none: only of a directory may a segment vanish meanwhile
        chosen = [segment]
    for segment in chosen:
        yield from read_segment(segment, framing=framing, on_corrupt=on_corrupt, progress=progress)


def read_segment(
    segment: Segment,
    *,
    framing: bool = False,
    on_corrupt: OnCorrupt | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Record]:
    """Iterate over the records of one segment; see ``read_records``."""
    number = 0
    try:
        for number, line in enumerate(_lines(blocks(segment.path, progress)), 1):
            record = parse(line, segment, number, on_corrupt)
            if record is not None and (framing or not is_framing(record)):
                yield record
    except FileNotFoundError:
        if segment.compressed:
            return
        # It was compressed or removed since it was listed: then this finds nothing either.
        compressed = segment._replace(path=segment.path.with_name(segment.name + ".zst"))
        yield from read_segment(compressed, framing=framing, on_corrupt=on_corrupt, progress=progress)
    except DamagedError as damage:
        _report(CorruptLineError(str(segment.path), number + 1, str(damage)), on_corrupt)


def header_of(segment: Segment) -> Record:
    """Return the header of a segment; empty if it has none, or cannot be read."""
    try:
        first = next(read_segment(segment, framing=True), {})
    except (CorruptLineError, OSError):
        return {}
    return first if first.get("event_name") == "segment.header" and is_framing(first) else {}


def compressed_lines(segment: Segment) -> Iterator[Line]:
    """Iterate over the lines of a compressed segment, without their newlines.

    Raises ``CorruptLineError`` if the rest can't be read, FileNotFoundError, ``MissingExtraError``.
    """
    number = 0
    try:
        for line in _lines(blocks(segment.path, None)):
            number += 1
            yield line
    except DamagedError as damage:
        raise CorruptLineError(str(segment.path), number + 1, str(damage)) from None


def parse(
    line: Line,
    segment: Segment,
    number: int,
    on_corrupt: OnCorrupt | None,
) -> Record | None:
    """Return the record of a line; None, after a report, if it is none."""
    if isinstance(line, LongLine):
        _report(CorruptLineError(str(segment.path), number, f"longer than {LONGEST_LINE_BYTES} bytes"), on_corrupt)
        return None
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        _report(CorruptLineError(str(segment.path), number, f"not JSON: {error}"), on_corrupt)
        return None
    if not isinstance(record, dict):
        _report(CorruptLineError(str(segment.path), number, "JSON, but not an object"), on_corrupt)
        return None
    return record


def is_framing(record: Mapping[str, Any]) -> bool:
    """Return whether the line is the segment's own: its header or footer. Records name their process, it does not."""
    return record.get("event_name") in ("segment.header", "segment.footer") and "pid" not in record


def is_footer(record: Mapping[str, Any]) -> bool:
    """Return whether the line is a segment's footer, the last line."""
    return record.get("event_name") == "segment.footer" and is_framing(record)


class DamagedError(Exception):
    """The rest of a compressed segment can't be read."""


def _report(error: CorruptLineError, on_corrupt: OnCorrupt | None) -> None:
    if on_corrupt is None:
        raise error
    on_corrupt(error)


def _lines(found: Iterator[bytes]) -> Iterator[Line]:
    joiner = LineJoiner()
    for block in found:
        yield from joiner.add(block)
    if joiner.is_long:
        yield LongLine(joiner.bytes)


def blocks(path: Path, progress: Callable[[int], object] | None = None) -> Iterator[bytes]:
    """Iterate over the content of a segment's file, plain or compressed. Raises OSError, ``DamagedError``.

    ``progress`` is called with the bytes read from disk.
    """
    with path.open("rb", buffering=0) as file:
        decompress = _decompressor(path) if path.suffix == ".zst" else None
        while block := file.read(BLOCK_BYTES if decompress is None else _COMPRESSED_BLOCK_BYTES):
            yield from (block,) if decompress is None else decompress(block)
            if progress is not None:
                progress(len(block))
        if decompress is not None:
            yield from decompress(b"")


def _decompressor(path: Path) -> Callable[[bytes], Iterator[bytes]]:
    """Return the function that turns the blocks of a file, and at last an empty one, into what they hold."""
    try:
        import zstandard  # an extra: who doesn't compress doesn't need it
    except ImportError:
        raise MissingExtraError(f"reading the compressed segment {path.name}", "zstandard", "cli") from None
    # Frame by frame: so a file that ends within one is recognised as cut off.
    frame = zstandard.ZstdDecompressor().decompressobj()
    is_whole = False

    def decompress(block: bytes) -> Iterator[bytes]:
        if not block and not is_whole:
            raise DamagedError("the compressed segment is cut off")
        for begin in range(0, len(block), _COMPRESSED_STEP_BYTES):
            yield from decompress_step(block[begin : begin + _COMPRESSED_STEP_BYTES])

    def decompress_step(block: bytes) -> Iterator[bytes]:
        nonlocal frame, is_whole
        while block:
            try:
                content = frame.decompress(block)
            except zstandard.ZstdError as error:
                raise DamagedError(f"the compressed segment is damaged: {error}") from None
            block, is_whole = frame.unused_data, frame.eof
            if is_whole:
                frame = zstandard.ZstdDecompressor().decompressobj()
            yield content

    return decompress
