"""The words that a source, the shipper and destinations share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from inference_logging.read.segments import Record, Segment
from inference_logging.read.segments.columns import OTHER, of_resource, row
from inference_logging.read.times import unix_nano
from inference_logging.ship.letters import Letter

Resource: TypeAlias = Mapping[str, Any]
"""Attributes of the process that wrote a segment, by OpenTelemetry's names; ``service.name`` is always there."""

_LONGEST_DETAIL: Final = 500


@dataclass(frozen=True)
class Line:
    """One record and its place; ``offset`` counts the bytes of the segment before compression."""

    service_name: str
    segment: str
    offset: int
    raw: bytes
    record: Record
    resource: Resource
    """As the segment's header has it; lines of one segment share one object."""

    @property
    def place(self) -> tuple[str, int]:
        """Segment and offset, which no other line has."""
        return self.segment, self.offset

    def unix_nano(self) -> int:
        """Return the record's time; 0 if it has none that can be read."""
        return unix_nano(str(self.record.get("timestamp", "")))

    def row(self) -> dict[str, Any]:
        """Return the record as a row, with its resource and place. A time that is none is replaced by its segment's."""
        made = row(self.record)
        if self.unix_nano() == 0:
            if "timestamp" in self.record:
                made[OTHER] = {**made.get(OTHER, {}), "timestamp": self.record["timestamp"]}
            segment = Segment.parse(self.segment)
            made["timestamp"] = f"{segment.begun:%Y-%m-%dT%H:%M:%S.%fZ}" if segment else "1970-01-01T00:00:00Z"
        return {**made, **of_resource(self.resource), "segment": self.segment, "offset": self.offset}


@dataclass
class Sent:
    """The result of sending lines to a destination: lines not named here are acknowledged."""

    failed: Sequence[Line] = ()
    """To be sent again."""
    error: str = ""
    """Why they failed, in words."""
    error_type: str = ""
    """The same as a label: the status, the error's code or its class."""
    retry_after_s: float = 0.0
    """When the destination wants to be asked again, if it says so."""
    refused: dict[str, int] = field(default_factory=dict)
    """Records that the destination will never take, by reason."""
    letters: list[Letter] = field(default_factory=list)
    """Those of them that the destination names."""
    left_out: int = 0
    """Records that were not sent, since what was configured does not ask for them."""

    @classmethod
    def failing(cls, lines: Sequence[Line], error: Exception) -> Sent:
        """Return that none has arrived, for an ``error`` that is not the destination's answer."""
        return cls(lines, f"{type(error).__name__}: {error}", type(error).__name__)

    def refuse(self, line: Line, reason: str, detail: str = "") -> Sent:
        """Note that a record will never be taken; ``detail``: why, in words. Returns itself."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
        shown = " ".join(detail.split())[:_LONGEST_DETAIL]
        self.letters.append(Letter(line.segment, line.offset, line.raw, reason, shown))
        return self

    def joined(self, other: Sent) -> Sent:
        """Return the result of two sendings as one; ``left_out`` stays that of the caller."""
        refused = {
            name: self.refused.get(name, 0) + other.refused.get(name, 0) for name in self.refused | other.refused
        }
        worse = other if other.failed else self
        return Sent(
            [*self.failed, *other.failed],
            worse.error,
            worse.error_type,
            worse.retry_after_s,
            refused,
            [*self.letters, *other.letters],
        )


def in_halves(lines: Sequence[Line], send: Callable[[Sequence[Line]], Sent]) -> Sent:
    """Send both halves of what was refused as a whole: so the record that is the cause is alone in the end."""
    half = len(lines) // 2
    return send(lines[:half]).joined(send(lines[half:]))


class Destination(Protocol):
    """A destination of lines. It does not raise if the destination fails, only for a line that it cannot convert."""

    def send(self, lines: Sequence[Line]) -> Sent:
        """Send ``lines`` and wait until they are acknowledged, or for as long as ``ship_timeout_s`` says."""

    def convert(self, line: Line, /) -> object:
        """Make what would be sent of one line, as ``send`` does; raises where it cannot be made."""

    def close(self) -> None:
        """Close connections; the next shipper sends what was not acknowledged."""
