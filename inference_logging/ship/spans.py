"""A ``request`` record as spans: one for the request, and one for each part of it that the engine timed.

Times, ids and status come from the record alone, so the same record always gives the same spans, with the same ids: a
batch that is sent twice is one trace. docs/spans.md has the mapping.

Sources: OpenTelemetry's semantic conventions 1.41 for spans of HTTP servers, RPC servers and exceptions; its
specification of consistent probability sampling for ``th``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from inference_logging.read.segments import Record
from inference_logging.read.segments.columns import is_number
from inference_logging.ship.line import Line
from inference_logging.ship.openinference import openinference

REQUEST: Final = "request"
"""The event name of the records that become spans."""
INTERNAL, SERVER = 1, 2
"""OTLP's numbers of a span's kind."""
UNSET, ERROR = 0, 2
"""OTLP's numbers of a span's status."""

PHASES: Final = {"queue": "engine.queued_s", "prefill": "engine.prefill_s", "decode": "engine.decode_s"}
"""Spans below that of the request, in the order of their times, and the field that has the seconds of each."""

_ABORTS: Final = frozenset({"client_disconnect", "timeout", "server_shutdown", "aborted", "process_died"})
_FAILURES: Final = frozenset({"error", "timeout", "server_shutdown", "aborted", "process_died"})
_EXCEPTION: Final = ("exception.type", "exception.message", "exception.stacktrace")
_APART: Final = frozenset(
    {"timestamp", "event_name", "trace_id", "span_id", "parent_span_id", "trace_flags", *_EXCEPTION}
)
_NANO: Final = 1_000_000_000
_LONGEST_S: Final = 1e9
_HAS_IS_REMOTE, _IS_REMOTE = 0x100, 0x200
"""OTLP's flags of a span beside W3C's: whether it is known where the parent is, and whether that is elsewhere."""
_RANDOM_BITS: Final = 56
_TRACE_BYTES, _SPAN_BYTES = 16, 8


class Event(NamedTuple):
    """What happened at a point in time."""

    name: str
    unix_nano: int
    attributes: Mapping[str, Any]


class Span(NamedTuple):
    """A span of OpenTelemetry's data model; ids as bytes, times as Unix nanoseconds."""

    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    """Empty if there is none."""
    name: str
    kind: int
    start: int
    end: int
    attributes: Mapping[str, Any]
    """Values are texts, numbers, truth values or lists of these."""
    events: Sequence[Event] = ()
    status: int = UNSET
    message: str = ""
    """Why it failed."""
    flags: int = 0
    trace_state: str = ""


def is_request(line: Line) -> bool:
    """Return whether the line becomes spans."""
    return line.record.get("event_name") == REQUEST


def spans_of(line: Line) -> list[Span]:
    """Return the spans of a request's line: that of the request, then those of its parts."""
    record = line.record
    trace_id = _id(record.get("trace_id"), _TRACE_BYTES) or _hashed(_TRACE_BYTES, line.segment, line.offset)
    span_id, parent, is_remote = _span_ids(record)
    span_id = span_id or _hashed(_SPAN_BYTES, line.segment, line.offset)
    end = max(0, line.unix_nano() - _nano(record.get("after_response_s")))
    start = max(0, end - _nano(record.get("duration_s")))
    flags = int.from_bytes(_id(record.get("trace_flags"), 1), "big")
    status, message = _status(record)
    request = Span(
        trace_id,
        span_id,
        parent,
        _name(record),
        INTERNAL if parent and not is_remote else SERVER,
        start,
        end,
        {**_attributes(record), **openinference(record)},
        list(_events(record, start, end)),
        status,
        message,
        flags | (_HAS_IS_REMOTE if parent else 0) | (_IS_REMOTE if is_remote else 0),
        _trace_state(record, trace_id),
    )
    return [request, *_phases(record, request, flags | _HAS_IS_REMOTE)]


def _span_ids(record: Record) -> tuple[bytes, bytes, bool]:
    """Return the span's id, its parent's, and whether the parent is another process's.

    A tracer beside this package makes a span of its own for the request, and the record has that span's id. A second
    span of the same id would replace it; so ours takes the request's id, and is below the tracer's.
    """
    span_id, own = _id(record.get("span_id"), _SPAN_BYTES), _id(record.get("request_id"), _SPAN_BYTES)
    if span_id and own and own != span_id:
        return own, span_id, False
    parent = _id(record.get("parent_span_id"), _SPAN_BYTES)
    return span_id or own, parent, bool(parent)


def _name(record: Record) -> str:
    if method := _text(record, "rpc.method"):
        return method
    if method := _text(record, "http.request.method"):
        return f"{method} {_text(record, 'http.route')}".rstrip()
    return _text(record, "triton.model_name") or _text(record, "http.route") or REQUEST


def _status(record: Record) -> tuple[int, str]:
    """Return the status and why. A whole answer of 4xx is the failure of the client, not of the server's span."""
    answered = record.get("http.response.status_code")
    status, error_type = answered if isinstance(answered, int) else 0, _text(record, "error.type")
    is_the_clients = 400 <= status < 500 and not error_type
    if status < 500 and (is_the_clients or _text(record, "outcome") not in _FAILURES):
        return UNSET, ""
    return ERROR, _text(record, "exception.message") or error_type


def _events(record: Record, start: int, end: int) -> Iterator[Event]:
    first_s = record.get("gen_ai.response.time_to_first_chunk")
    if _seconds(first_s) is not None:
        at = min(start + _nano(first_s), end)
        yield Event("first_chunk", at, {"gen_ai.response.time_to_first_chunk": first_s})
    exception = {name: record[name] for name in _EXCEPTION if isinstance(record.get(name), str)}
    if exception:
        yield Event("exception", end, exception)
    outcome, error_type = _text(record, "outcome"), _text(record, "error.type")
    if outcome in _ABORTS:
        yield Event(outcome, end, {"error.type": error_type} if error_type else {})


def _phases(record: Record, request: Span, flags: int) -> Iterator[Span]:
    """Return the spans of what the engine timed, one behind the other from the request's start.

    The engine reports how long each took, not when it began.
    """
    at = request.start
    for name, field in PHASES.items():
        if _seconds(record.get(field)) is None:
            continue
        start, at = at, min(at + _nano(record[field]), request.end)
        attributes = {"openinference.span.kind": "CHAIN", field: record[field]}
        if engine_id := _text(record, "engine.request_id"):
            attributes["engine.request_id"] = engine_id
        span_id = _hashed(_SPAN_BYTES, request.trace_id.hex(), request.span_id.hex(), name)
        yield Span(request.trace_id, span_id, request.span_id, name, INTERNAL, start, at, attributes, flags=flags)


def _attributes(record: Record) -> dict[str, Any]:
    """Return the fields that have no place of their own in a span."""
    made: dict[str, Any] = {}
    for name, value in record.items():
        if name in _APART:
            continue
        if isinstance(value, dict):
            made.update((f"{name}.{inner}", _plain(one)) for inner, one in value.items() if one is not None)
        elif value is not None:
            made[name] = _plain(value)
    return made


def _plain(value: Any) -> Any:
    """Return a value as every viewer takes it: what is nested is JSON text."""
    is_list = isinstance(value, list) and all(isinstance(one, str | int | float) for one in value)
    return value if is_list or isinstance(value, str | int | float) else orjson.dumps(value).decode()


def _trace_state(record: Record, trace_id: bytes) -> str:
    """Return the sampling threshold behind ``adjusted_count``, where the trace id is above it.

    Elsewhere another thing than the trace id has decided, and a collector would take the threshold for a contradiction.
    """
    count = record.get("adjusted_count")
    if not isinstance(count, int | float) or not 1 <= count <= 2**_RANDOM_BITS:
        return ""
    digits = _threshold(count)
    if trace_id.hex()[-_RANDOM_BITS // 4 :] < digits:
        return ""
    return f"ot=th:{digits.rstrip('0') or '0'}"


def _threshold(count: float) -> str:
    """Return the fewest hex digits of a threshold whose adjusted count this is."""
    for length in range(1, _RANDOM_BITS // 4):
        steps = 16**length
        rejected = min(round((1 - 1 / count) * steps), steps - 1)
        if math.isclose(steps / (steps - rejected), count, rel_tol=1e-9):
            return f"{rejected:0{length}x}"
    return f"{2**_RANDOM_BITS - round(2**_RANDOM_BITS / count):014x}"


def _seconds(value: Any) -> float | None:
    return value if is_number(value) and value >= 0 else None


def _nano(value: Any) -> int:
    """Return seconds as nanoseconds; 0 if they are none."""
    return round(min(_seconds(value) or 0.0, _LONGEST_S) * _NANO)


def _text(record: Record, name: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) else ""


def _id(value: Any, length: int) -> bytes:
    """Return an id of ``length`` bytes; empty if it is none, or only zeros."""
    try:
        found = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        return b""
    return found if len(found) == length and any(found) else b""


def _hashed(length: int, *parts: object) -> bytes:
    """Return an id that depends on ``parts`` alone."""
    return hashlib.sha256(":".join(map(str, parts)).encode()).digest()[:length]
