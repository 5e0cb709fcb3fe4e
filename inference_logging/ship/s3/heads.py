"""The records of a Parquet file as lines of a segment, as far as the verification of segments reads them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from inference_logging.errors import CorruptLineError
from inference_logging.read.segments.rows import OTHER
from inference_logging.read.table.engine import connected
from inference_logging.ship.s3.manifest import Account, Manifest

_HEAD = ("severity_text", "event_name", "boot_id", "pid", "seq")
_ROWS = 1000


def write_heads(path: Path, said: Manifest, segment: Path) -> Account:
    """Write the rows of a Parquet file as a segment, between the header and the footer that its manifest has.

    The footer counts the lines as they are here. The chain of the audit lane is of the original lines, and left out.
    Raises ``CorruptLineError``, ``MissingExtraError``, OSError.
    """
    account, bytes_, crc32 = Account(), 0, 0
    with segment.open("wb") as file:
        if said.header:
            file.write(orjson.dumps(_unchained(said.header)) + b"\n")
        for line in records(path):
            account.add(line)
            bytes_, crc32 = bytes_ + len(line) + 1, zlib.crc32(line + b"\n", crc32)
            file.write(line + b"\n")
        if said.footer:
            counted = {"records": account.records, "bytes": bytes_, "crc32": f"{crc32:08x}"}
            file.write(orjson.dumps({**_unchained(said.footer), **counted}) + b"\n")
    return account


def _unchained(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if not name.startswith("chain")}


def records(path: Path) -> Iterator[bytes]:
    """Iterate over the rows. Raises ``CorruptLineError``, ``MissingExtraError``."""
    connection = connected("verifying Parquet", "query", threads="1")
    import duckdb

    try:
        answer = connection.execute(
            f"SELECT strftime(\"timestamp\", '%Y-%m-%dT%H:%M:%S.%f'), {', '.join(_HEAD)}, CAST({OTHER} AS VARCHAR) "
            "FROM read_parquet(?)",
            [str(path)],
        )
        while rows := answer.fetchmany(_ROWS):
            for time, *head, other in rows:
                known = {name: value for name, value in zip(_HEAD, head, strict=True) if value is not None}
                line = {**({"timestamp": f"{time}000Z"} if time else {}), **known}
                rest = _unchained(orjson.loads(other)) if other else {}
                yield orjson.dumps({**line, **rest})
        connection.close()
    except duckdb.Error as error:
        raise CorruptLineError(str(path), 0, str(error)) from None
