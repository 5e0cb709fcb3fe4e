"""A segment as the file that is uploaded, read once and in blocks: memory does not grow with it.

The file lies beside the segments, in a folder of the shipper's that is emptied at its start. Only whole lines go into
it: the end of a line that its listener did not live to write is no record, and is cut off by compression too, so that
both forms of a segment have one digest.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

from inference_logging.errors import CorruptLineError, MissingExtraError
from inference_logging.read.segments import Segment
from inference_logging.read.segments.columns import OTHER, RESOURCE, TABLES, of_resource, row
from inference_logging.read.segments.reading import DamagedError, LineJoiner, blocks
from inference_logging.read.table.engine import SETTINGS, ParquetFile, connected
from inference_logging.ship.s3.manifest import Account, Content
from inference_logging.ship.s3.place import JSON_LINES

LEVEL: Final = 3
_BLOCK_BYTES: Final = 256 << 10

Parsed: TypeAlias = tuple[bytes, dict[str, Any]]
"""The line of a record, and what it says."""


@dataclass(frozen=True)
class Staged:
    """The file of a segment, and what it holds."""

    segment: Segment
    form: str
    path: Path
    object: Content
    plain: Content
    account: Account

    def resource(self, name: str) -> str:
        """Return an attribute of the process that wrote the segment; empty if its header does not say."""
        declared = self.account.header.get("resource")
        value = declared.get(name) if isinstance(declared, dict) else None
        return value if isinstance(value, str) else ""


class Staging:
    """The folder, for one segment at a time."""

    def __init__(self, folder: Path) -> None:
        """Empty it: what is there is of an earlier life."""
        self._folder = folder
        shutil.rmtree(folder, ignore_errors=True)

    def stage(self, segment: Segment, form: str) -> Staged:
        """Make the file. Raises OSError (FileNotFoundError: the segment is gone), ``CorruptLineError``."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / "object"
        path.unlink(missing_ok=True)
        account, digest, bytes_ = Account(), hashlib.sha256(), 0
        joiner = LineJoiner()
        sink = _JsonLines(path) if form == JSON_LINES else _Parquet(path, account)
        for lines in whole_lines(segment):
            digest.update(lines)
            bytes_ += len(lines)
            records = [
                (line, record)
                for line in joiner.add(lines)
                if (record := account.add(line)) is not None and isinstance(line, bytes)
            ]
            sink.add(lines, records)
        sink.close()
        return Staged(segment, form, path, content_of(path), Content(bytes_, digest.hexdigest()), account)

    def close(self) -> None:
        """Remove the folder. Idempotent."""
        shutil.rmtree(self._folder, ignore_errors=True)


def content_of(path: Path) -> Content:
    """Return the size and the digest of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(_BLOCK_BYTES), b""):
            digest.update(block)
        return Content(file.tell(), digest.hexdigest())


def whole_lines(segment: Segment) -> Iterator[bytes]:
    """Iterate over the whole lines of a segment, in blocks. Raises OSError, ``CorruptLineError``."""
    left = b""
    try:
        for block in blocks(segment.path):
            end = block.rfind(b"\n") + 1
            if end:
                yield left + block[:end]
                left = block[end:]
            else:
                left += block
    except DamagedError as damage:
        raise CorruptLineError(str(segment.path), 0, str(damage)) from None


class _JsonLines:
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._writer = _zstandard().ZstdCompressor(level=LEVEL, write_checksum=True).stream_writer(self._file)

    def add(self, lines: bytes, _records: list[Parsed]) -> None:
        self._writer.write(lines)

    def close(self) -> None:
        self._writer.close()


class _Parquet:
    def __init__(self, path: Path, account: Account) -> None:
        self._account = account
        connection = connected("format=parquet", "query", **SETTINGS)
        self._table = ParquetFile(connection, path, {**TABLES["records"], OTHER: "JSON", **RESOURCE})

    def add(self, _lines: bytes, records: list[Parsed]) -> None:
        given = of_resource(self._account.header.get("resource"))
        for raw, record in records:
            self._table.add(_row(raw, record, given))

    def close(self) -> None:
        self._table.close()


def _row(raw: bytes, record: dict[str, Any], given: dict[str, str]) -> bytes:
    """Return a record's row as JSON. One that nests deeper than our lines do is wholly in ``other``, as it was read."""
    try:
        return orjson.dumps({**row(record), **given})
    except TypeError:
        head = row({name: value for name, value in record.items() if not isinstance(value, dict | list)})
        head.pop(OTHER, None)
        return orjson.dumps({**head, **given, OTHER: orjson.Fragment(raw)})


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise MissingExtraError("object storage", "zstandard", "s3") from None
    return zstandard
