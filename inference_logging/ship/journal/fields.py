"""A record as fields of a journal's entry.

``MESSAGE`` is what a person reads; ``INFERENCE_LOGGING_RECORD`` is the record as JSON, unchanged. Each member that is
text or a number is a field of its own too, ``INFERENCE_LOGGING_…``, by which ``journalctl`` finds entries.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from inference_logging.ship.line import Line
from inference_logging.ship.syslog.message import SEVERITIES

PREFIX: Final = "INFERENCE_LOGGING_"
RECORD: Final = f"{PREFIX}RECORD"
RESOURCE: Final = f"{PREFIX}RESOURCE_"
NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "inference_logging")
"""``MESSAGE_ID`` of an event is the UUID of version 5 of its name in this namespace."""

NAME_LETTERS: Final = 64
_NOTICE: Final = 5
_LONGEST_BYTES: Final = 1024
"""A longer text is in the record alone: a journal keeps an index of each value."""
_OTHER: Final = re.compile(r"[^A-Z0-9_]")
_CONTROLS: Final = re.compile(rb"[\x00-\x08\x0a-\x1f]")

Field = tuple[str, bytes]


def fields(line: Line) -> list[Field]:
    """Return the fields of a line's entry."""
    record, event = line.record, str(line.record.get("event_name", ""))
    return [
        ("MESSAGE", _text(record.get("message", event))),
        ("PRIORITY", b"%d" % SEVERITIES.get(str(record.get("severity_text")), _NOTICE)),
        ("SYSLOG_IDENTIFIER", _text(line.service_name)),
        ("SYSLOG_PID", _text(record.get("pid", 0))),
        ("MESSAGE_ID", stable_id(event).encode()),
        (RECORD, line.raw),
        *_members(PREFIX, {name: value for name, value in record.items() if name not in ("message", "record")}),
        *_members(RESOURCE, line.resource),
    ]


@lru_cache
def stable_id(name: str) -> str:
    """Return the 32 hexadecimal digits that stand for a name."""
    return uuid.uuid5(NAMESPACE, name).hex


def _members(prefix: str, values: Mapping[str, Any]) -> Iterable[Field]:
    for name, value in values.items():
        text = _text(value) if isinstance(value, str | int | float) else b""
        if text and len(text) <= _LONGEST_BYTES:
            yield f"{prefix}{_OTHER.sub('_', name.upper())}"[:NAME_LETTERS], text


def _text(value: Any) -> bytes:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.encode("utf-8", "replace")


def serialized(found: Iterable[Field]) -> bytes:
    """Return fields as journald's socket takes them: a value with control characters has its length before it."""
    return b"".join(_serialized(name.encode(), value) for name, value in found)


def _serialized(name: bytes, value: bytes) -> bytes:
    if _CONTROLS.search(value):
        return b"%b\n%b%b\n" % (name, struct.pack("<Q", len(value)), value)
    return b"%b=%b\n" % (name, value)
