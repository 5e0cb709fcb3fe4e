"""The manifest of an object: the segment that it holds, its records by process and sequence, and digests.

It is put after its object, so that what a manifest names was there. ``sha256`` of ``object`` is of the bytes in the
bucket, that of ``plain`` of the segment's whole lines, whatever its form. Keys are below the prefix: objects that are
copied into another bucket or prefix together with their manifests can be verified there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from inference_logging.read.segments import Segment
from inference_logging.read.segments.reading import Line, LongLine, is_framing

VERSION: Final = 1
_REMOVED: Final = "segments.removed"
_NO_FACTS: Final = frozenset({"timestamp", "severity_text", "event_name", "boot_id", "pid", "seq", "trace_id"})


class ManifestError(ValueError):
    """Bytes that are no manifest of this version."""


@dataclass
class Span:
    """The records of one process: their first and last sequence, and how many there are."""

    first: int
    last: int
    records: int


class Account:
    """What the lines of a segment are, counted while they pass."""

    def __init__(self) -> None:
        self.records = 0
        self.spans: dict[tuple[str, int], Span] = {}
        self.header: dict[str, Any] = {}
        self.footer: dict[str, Any] = {}
        self.removed: list[dict[str, Any]] = []
        """What records of these lines say that retention has removed."""

    def add(self, line: Line) -> dict[str, Any] | None:
        """Count a line; return it, parsed, if it is a record."""
        try:
            record = {} if isinstance(line, LongLine) else orjson.loads(line)
        except orjson.JSONDecodeError:
            record = None
        if not isinstance(record, dict):
            return None
        if is_framing(record):
            if record["event_name"] == "segment.header":
                self.header = record
            else:
                self.footer = record
            return None
        self.records += 1
        self._number(record.get("boot_id"), record.get("pid"), record.get("seq"))
        if record.get("event_name") == _REMOVED:
            self.removed.append({name: value for name, value in record.items() if name not in _NO_FACTS})
        return record

    def _number(self, boot_id: Any, pid: Any, seq: Any) -> None:
        if not isinstance(seq, int) or not isinstance(pid, int):
            return
        span = self.spans.get((str(boot_id), pid))
        if span is None:
            self.spans[str(boot_id), pid] = Span(seq, seq, 1)
            return
        span.first, span.last, span.records = min(span.first, seq), max(span.last, seq), span.records + 1

    def processes(self) -> list[dict[str, Any]]:
        """Return the spans as a manifest has them."""
        return [
            {"boot_id": boot_id, "pid": pid, "first": span.first, "last": span.last, "records": span.records}
            for (boot_id, pid), span in sorted(self.spans.items())
        ]


@dataclass(frozen=True)
class Content:
    """The size and the digest of bytes."""

    bytes: int
    sha256: str

    def json(self) -> dict[str, Any]:
        """Return both as a manifest has them."""
        return {"bytes": self.bytes, "sha256": self.sha256}


@dataclass(frozen=True)
class Manifest:
    """What a manifest says."""

    key: str
    """Of the object, below the prefix."""
    segment: str
    form: str
    object: Content
    plain: Content
    records: int
    processes: list[dict[str, Any]]
    header: dict[str, Any]
    footer: dict[str, Any]

    @classmethod
    def read(cls, raw: bytes) -> Manifest:
        """Read a manifest. Raises ``ManifestError``."""
        try:
            said = orjson.loads(raw)
            if said["version"] != VERSION:
                raise ManifestError(f"version={said['version']!r}: this reader knows {VERSION}")
            made, plain = (Content(int(said[part]["bytes"]), str(said[part]["sha256"])) for part in ("object", "plain"))
            return cls(
                str(said["object"]["key"]), str(said["segment"]), str(said["format"]), made, plain,
                int(said["records"]), list(said["processes"]), dict(said["header"]), dict(said["footer"]),
            )  # fmt: skip
        except ManifestError:
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise ManifestError(f"not a manifest: {type(error).__name__} {error}") from None


def manifest(
    segment: Segment, key: str, form: str, made: Content, plain: Content, account: Account, writer: str
) -> bytes:
    """Return the manifest of an object, as it is put."""
    return orjson.dumps(
        {
            "version": VERSION,
            "segment": segment.name,
            "boot_id": segment.boot_id,
            "number": segment.number,
            "format": form,
            "object": {"key": key, **made.json()},
            "plain": plain.json(),
            "records": account.records,
            "processes": account.processes(),
            "sealed": bool(account.footer),
            "removed_before": account.removed,
            "header": account.header,
            "footer": account.footer,
            "writer": writer,
        },
        option=orjson.OPT_INDENT_2,
    )


def sequences(processes: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return spans in a form that compares."""
    return sorted(tuple(one.get(name) for name in ("boot_id", "pid", "first", "last", "records")) for one in processes)
