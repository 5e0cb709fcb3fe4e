"""One recorded request, and what formats need to know about it.

A record is written when its request has ended. Arrival = the record's time, less ``duration_s`` and less
``after_response_s``: all three are of one clock, so the arrival is exact to the microsecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from inference_logging.read.segments import Record
from inference_logging.read.segments.columns import is_number
from inference_logging.read.times import unix_nano

MAX_OPEN: Final = 4096
"""Requests whose chunks are kept until their own record comes; beyond that the oldest are forgotten."""


_LONGEST_S: Final = 10 * 366 * 86400.0
"""More than any request lasts; with a longer duration a record is damaged."""


class LeftOut(NamedTuple):
    """A request that a format can't hold, and the reason as one word of the statement."""

    reason: str


class Lengths(NamedTuple):
    """Tokens of the input and of the output, and where the second figure comes from: ``usage`` or ``chunks``."""

    input: int
    output: int
    output_from: str


class Request(NamedTuple):
    """One request; ``record`` has the fields of its segment's resource too."""

    record: Record
    arrival_nano: int
    chunks_s: tuple[float, ...] = ()
    """When each chunk was sent, seconds after the arrival, where that is on record."""

    @property
    def request_id(self) -> str:
        """This package's id of the request; empty for a record without one."""
        return str(self.record.get("request_id", ""))

    @property
    def duration_s(self) -> float:
        """Seconds until the last part of the answer."""
        return number(self.record, "duration_s") or 0.0

    def lengths(self) -> Lengths | LeftOut:
        """Return the tokens that were counted. A stream without a count has about as many as it had chunks."""
        record = self.record
        input_tokens = whole(record, "gen_ai.usage.input_tokens")
        if input_tokens is None:
            return LeftOut("no_input_tokens")
        output_tokens = whole(record, "gen_ai.usage.output_tokens")
        if output_tokens is not None:
            return Lengths(input_tokens, output_tokens, "usage")
        chunks = whole(record, "chunks")
        return Lengths(input_tokens, chunks, "chunks") if chunks else LeftOut("no_output_tokens")


def arrival_nano(record: Mapping[str, Any]) -> int | None:
    """Return when a request arrived, Unix nanoseconds; None if its record has no time."""
    ended = unix_nano(str(record.get("timestamp", "")))
    spent_s = (number(record, "duration_s") or 0.0) + (number(record, "after_response_s") or 0.0)
    return ended - round(spent_s * 1e9) if ended and 0 <= spent_s <= _LONGEST_S else None


def number(record: Mapping[str, Any], name: str) -> float | None:
    """Return a field that is a finite number, else None."""
    value = record.get(name)
    return float(value) if is_number(value) else None


def whole(record: Mapping[str, Any], name: str) -> int | None:
    """Return a field that is a whole number from 0 on, else None."""
    value = record.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def requests_of(records: Iterable[Record]) -> Iterator[Request | Record]:
    """Make requests of their records; a request record without a time comes as it is. Other events are left out.

    Chunks come from `request.chunk` records, which stand before their request's, or from its list of gaps.
    """
    open_requests: dict[str, list[float]] = {}
    for record in records:
        event = record.get("event_name")
        if event == "request.chunk":
            _keep_chunk(open_requests, record)
        elif event == "request":
            arrival = arrival_nano(record)
            sent_s = open_requests.pop(str(record.get("request_id", "")), None)
            chunks_s = tuple(sent_s) if sent_s else _from_gaps(record)
            yield record if arrival is None else Request(record, arrival, chunks_s)


def _keep_chunk(open_requests: dict[str, list[float]], record: Record) -> None:
    sent_s = number(record, "since_start_s")
    if sent_s is None:
        return
    open_requests.setdefault(str(record.get("request_id", "")), []).append(sent_s)
    if len(open_requests) > MAX_OPEN:
        del open_requests[next(iter(open_requests))]


def _from_gaps(record: Record) -> tuple[float, ...]:
    gaps, at_s = record.get("chunk_gaps_us"), number(record, "gen_ai.response.time_to_first_chunk")
    if at_s is None:
        return ()
    sent_s = [at_s]
    for gap in gaps if isinstance(gaps, list) else ():
        if not isinstance(gap, int):
            break
        sent_s.append(sent_s[-1] + gap / 1e6)
    return tuple(sent_s)
