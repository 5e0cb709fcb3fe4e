"""The columns of the table: every field of the catalogue that is one number, text or truth value, and where a row is.

A record whose fields the columns do not have exactly is *odd*: a value of another type, a column's key twice, an object
on the way to a dotted name (``"gen_ai": {…}``), a name that the segment's header gives, no readable time, no process.
Its row says where it is and when; what it holds is read from its line.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Final

from inference_logging.read.segments.columns import FIELDS, RESOURCE
from inference_logging.read.where import ALIASES

_SCALARS: Final = ("VARCHAR", "BIGINT", "UBIGINT", "DOUBLE", "BOOLEAN")
_TEXTS_OF_USERS: Final = frozenset({
    "message", "exception.message", "exception.stacktrace", "http.request.body", "openai.request.metadata",
})  # fmt: skip
"""What people and models have written, at any length: it stays in the segments alone."""

TIMESTAMP: Final = "timestamp"
SEVERITY: Final = "severity"
"""The number of ``severity_text``, which no record has."""
COLUMNS: Final[Mapping[str, str]] = {
    field.name: field.kind
    for field in FIELDS.values()
    if field.source in ("head", "server", "listener", "log")
    and field.kind in _SCALARS
    and field.name not in _TEXTS_OF_USERS
}
"""Those of the record itself, with DuckDB's types."""
PLACE: Final[Mapping[str, str]] = {
    "segment": "VARCHAR", "offset": "BIGINT", "length": "BIGINT", "odd": "BOOLEAN", TIMESTAMP: "TIMESTAMP_NS",
}  # fmt: skip
"""Where the line is, in bytes of the plain segment; whether it is odd; when it was."""
ALL: Final = {**PLACE, **COLUMNS, **RESOURCE}
FINGERPRINT: Final = zlib.crc32(repr(sorted(ALL.items())).encode())
"""Changes with the columns, so that a file of others is made anew."""
KINDS: Final[Mapping[str, str]] = {**COLUMNS, **RESOURCE, TIMESTAMP: "TIMESTAMP", SEVERITY: "BIGINT"}
"""All fields that the table knows, with the types that `query` shows."""

_FIRST_OF_FOUR: Final = {"TRACE": 1, "DEBUG": 5, "INFO": 9, "WARN": 13, "ERROR": 17, "FATAL": 21}
SEVERITIES: Final = {
    f"{name}{step or ''}": first + max(0, step - 1) for name, first in _FIRST_OF_FOUR.items() for step in (0, 2, 3, 4)
}
"""The numbers of OpenTelemetry by the texts."""

_WAYS: Final = {name[:at] for name in (*COLUMNS, *RESOURCE) for at, sign in enumerate(name) if sign == "."}
TEXTS: Final = sorted(_WAYS & FIELDS.keys())
"""Members on the way to a dotted name: a record is odd in which they are no texts."""
REFUSED: Final = sorted({*RESOURCE, SEVERITY, *ALIASES, *(_WAYS - FIELDS.keys())})
"""Members of no record that is not odd."""


def with_derived(record: dict[str, Any], resource: Mapping[str, str]) -> dict[str, Any]:
    """Add to a record what its segment gives to each, and its severity's number, and return it."""
    for name, value in resource.items():
        record.setdefault(name, value)
    number = SEVERITIES.get(record["severity_text"]) if isinstance(record.get("severity_text"), str) else None
    if number is not None:
        record.setdefault(SEVERITY, number)
    return record
