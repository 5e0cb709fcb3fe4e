"""Segments as the listener writes them, also those that grow while they are followed."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import orjson
import zstandard

from inference_logging.segments import follow_records

BOOT_ID = "00000000deadbeef"
BEGUN = datetime(2026, 11, 21, 5, 0, tzinfo=timezone.utc)


def stamp(second: float) -> str:
    """Return the timestamp ``second`` seconds after 05:00 of the test's day."""
    return (BEGUN + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def log(second: float, message: str = "hello", **fields: Any) -> dict[str, Any]:
    """Return an application record."""
    head = {"timestamp": stamp(second), "severity_text": "INFO", "event_name": "log", "boot_id": BOOT_ID, "pid": 1}
    return {**head, "seq": int(second * 1000), "logger": "app", "message": message, **fields}


def request(second: float, outcome: str = "ok", **fields: Any) -> dict[str, Any]:
    """Return a request record; ``fields`` with ``__`` for a dot (``http__route``) go before the usual ones."""
    head = {"timestamp": stamp(second), "severity_text": "INFO", "event_name": "request", "boot_id": BOOT_ID, "pid": 1}
    usual = {
        "seq": int(second * 1000),
        "trace_id": f"{int(second * 1000):032x}",
        "request_id": f"{int(second * 1000):016x}",
        "outcome": outcome,
        "http.request.method": "POST",
        "url.path": "/v1/chat/completions",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200 if outcome == "ok" else 500,
        "duration_s": 0.5,
    }
    return {**head, **usual, **{name.replace("__", "."): value for name, value in fields.items()}}


def write_segment(
    directory: Path,
    records: Iterable[Mapping[str, Any]],
    *,
    number: int = 1,
    prefix: str = "svc",
    second: int = 0,
    compressed: bool = False,
    dropped: Mapping[str, Mapping[str, int]] | None = None,
    sealed: bool = True,
    tail: bytes = b"",
    resource: Mapping[str, str] | None = None,
) -> Path:
    """Write a segment with header and, where ``sealed``, footer; ``tail`` is what stands behind."""
    begun = (BEGUN + timedelta(seconds=second)).strftime("%Y%m%dT%H%M%S.000Z")
    head = {"timestamp": stamp(second), "event_name": "segment.header", "schema_version": 1, "segment": number}
    head |= {"resource": resource} if resource is not None else {}
    process = {"boot_id": BOOT_ID, "pid": 1, "accepted": 9, "written": 9, "in_queue": 0, "dropped": dropped or {}}
    foot = {"timestamp": stamp(second), "event_name": "segment.footer", "segment": number, "processes": [process]}
    content = b"".join(orjson.dumps(line) + b"\n" for line in [head, *records, *([foot] if sealed else [])]) + tail
    directory.mkdir(exist_ok=True)
    path = directory / f"{prefix}-{begun}-{BOOT_ID}-{number:06}.jsonl{'.zst' if compressed else ''}"
    path.write_bytes(zstandard.ZstdCompressor().compress(content) if compressed else content)
    return path


def name(number: int, second: int = 0, prefix: str = "svc", boot_id: str = BOOT_ID) -> str:
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


class Steps:
    """A ``Stop`` that does one thing at each wait, and is set with the last."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = list(steps)

    def wait(self, timeout: float, /) -> bool:
        """Do the next step."""
        if self._steps:
            self._steps.pop(0)()
        return not self._steps


def until_set(directory: Path, *steps: Callable[[], object], **options: Any) -> Iterator[dict[str, Any]]:
    return follow_records(directory, stop=Steps(*steps), **options)


class Writer:
    """A live segment, locked as the listener does it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path.open("ab", buffering=0)
        fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def append(self, content: bytes) -> Callable[[], object]:
        return lambda: self.file.write(content)

    def die(self) -> None:
        self.file.close()
