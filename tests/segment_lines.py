"""Small segments of the tests: a name by number, lines by number, plain or compressed as the name says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import zstandard

BOOT = "00000000deadbeef"


def name(number: int, second: int = 0, prefix: str = "svc", boot_id: str = BOOT) -> str:
    return f"{prefix}-20261121T0500{second:02}.000Z-{boot_id}-{number:06}.jsonl"


def lines(*numbers: int, header: bool = True, footer: bool = True, **of_header: Any) -> bytes:
    events: list[dict[str, Any]] = [{"event_name": "log", "n": n} for n in numbers]
    head = [{"event_name": "segment.header", "segment": 1, **of_header}] if header else []
    foot = [{"event_name": "segment.footer", "segment": 1, "records": len(numbers)}] if footer else []
    return b"".join(orjson.dumps(event) + b"\n" for event in [*head, *events, *foot])


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(
        zstandard.ZstdCompressor(write_checksum=True).compress(content) if path.suffix == ".zst" else content
    )
    return path


def numbers(records: Iterator[dict[str, Any]]) -> list[int]:
    return [record["n"] for record in records]
