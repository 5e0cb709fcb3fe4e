"""The statement at the end of an export: what is in the file, what is not and why, by the servers' own books.

Two accounts are joined. Of requests: read = exported + filtered out + left out, counted here. Of records: what `verify`
proves from sequences, footers and queues, so that a lost one shows although nothing is left of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from inference_logging.read import verify
from inference_logging.read.export.requests import Request, number
from inference_logging.read.segments import Segment
from inference_logging.read.times import stamp

VERSION: Final = 1
ADVICE: Final = {
    "no_input_tokens": "the answers had no usage; in streams clients ask for it with stream_options.include_usage",
    "no_output_tokens": "the answers had no usage; in streams clients ask for it with stream_options.include_usage",
    "no_body": "set capture_body: raw (or capture_input: full) on the servers; the records have no body",
    "body_truncated": "raise capture_text_bytes on the servers; the recorded text ends before the body does",
    "body_hashed": "set capture_input: full on the servers; hashes cannot be sent again",
    "media": "set capture_body: raw on the servers; no other field has images and sounds",
    "unknown_api": "set capture_body: raw on the servers; bodies of this path cannot be rebuilt",
    "body_not_json": "choose requests with a JSON body, with --where",
    "not_post": "choose requests with a body: --where method=POST",
    "no_text": "set capture_input: full and capture_output: full on the servers; the records have no texts",
    "text_truncated": "raise capture_text_bytes on the servers; the recorded texts are cut",
    "no_time": "inference-logging verify says what is wrong with the records",
    "damaged": "inference-logging verify says what is wrong with the records",
}
"""The reasons for which a format can't hold a request, and what to do."""
NOT_MEANT: Final = frozenset({"not_post", "body_not_json"})
"""Those of requests that are not meant for a format."""
_COUNTS: Final = ("accepted", "written", "in_queue", "removed", "lost", "missing", "doubled")


@dataclass
class Requests:
    """Counts of request records."""

    read: int = 0
    exported: int = 0
    filtered_out: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    """By reason: the format can't hold them."""
    by_outcome: dict[str, int] = field(default_factory=dict)
    """Of the exported ones."""
    stands_for: float = 0.0
    """Requests that the exported ones stand for, by their adjusted_count."""
    unknown_weight: int = 0
    """Exported ones without an adjusted_count: how many others they stand for is not known."""
    damaged_lines: int = 0
    first_arrival_nano: int | None = None
    last_arrival_nano: int | None = None

    def leave_out(self, reason: str) -> None:
        """Count a request that the format can't hold."""
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def export(self, request: Request) -> None:
        """Count a request that is in the file."""
        self.exported += 1
        outcome = str(request.record.get("outcome", "unknown"))
        self.by_outcome[outcome] = self.by_outcome.get(outcome, 0) + 1
        weight = number(request.record, "adjusted_count")
        self.stands_for += 1.0 if weight is None else weight
        self.unknown_weight += weight is None
        arrival, first, last = request.arrival_nano, self.first_arrival_nano, self.last_arrival_nano
        self.first_arrival_nano = arrival if first is None else min(first, arrival)
        self.last_arrival_nano = arrival if last is None else max(last, arrival)


@dataclass(frozen=True)
class Books:
    """What `verify` found; ``error`` in words if it could not look."""

    found: Mapping[str, Any]
    error: str = ""

    @classmethod
    def look(cls, arguments: Sequence[str]) -> Books:
        """Run `verify` with these arguments."""
        return cls(*verify.answer(verify.start(arguments)))

    def counts(self) -> dict[str, Any]:
        """Return the totals over all processes, and by reason what was dropped and what was sampled out."""
        totals, sampled_out = self.found.get("totals", {}), dict[str, int]()
        for process in self._processes():
            for reason, count in (process.get("sampled_out") or {}).items():
                sampled_out[reason] = sampled_out.get(reason, 0) + count
        return {
            **{name: totals.get(name, 0) for name in _COUNTS},
            "dropped": totals.get("dropped", {}),
            "sampled_out": sampled_out,
        }

    def faults(self, since: str, segments: Collection[Segment]) -> list[str]:
        """Return in words each part of the traffic that is not on record.

        ``since``: nothing before this time matters; ``segments``: nor do faults of other segments than these.
        """
        if self.error:
            return [f"the books could not be read: {self.error}"]
        processes = [one for one in self._processes() if (one.get("last_time") or "~") >= since]
        known = {one.get("boot_id") for one in processes} | {None}
        read = {segment.name for segment in segments}
        return [
            *(fault for process in processes for fault in _faults_of(process, since)),
            # Missing records are named above, with their gap.
            *(
                f"{problem['kind']}: {problem['text']}"
                for problem in self.found.get("problems", ())
                if problem["kind"] != "missing" and problem.get("boot_id") in known and _is_of(problem, read)
            ),
        ]

    def _processes(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self.found.get("processes", ())
        return found


def _is_of(problem: Mapping[str, Any], names: Collection[str]) -> bool:
    """Return whether a problem is of one of these segments, or of none."""
    segment = Segment.parse(problem.get("segment") or "")
    return segment is None or segment.name in names


def _faults_of(process: Mapping[str, Any], since: str) -> list[str]:
    name = f"process {process.get('boot_id')} (pid {process.get('pid')})"
    faults = [
        f"{name}: {gap['records']:,} records: {gap['reason']}{f', {detail}' if (detail := gap.get('detail')) else ''}"
        for gap in process.get("gaps", ())
        if (gap.get("to") or "~") >= since
    ]
    for reason, levels in (process.get("dropped") or {}).items():
        # Torn and corrupt records were accepted, and are gaps.
        if (count := sum(levels.values())) and reason not in ("torn", "corrupt"):
            faults.append(f"{name}: {count:,} records refused: {reason}")
    if count := process.get("in_queue", 0):
        faults.append(f"{name}: {count:,} records wait in its queue")
    if (count := process.get("in_flight", 0)) and process.get("state") != "alive":
        faults.append(f"{name}: {count:,} requests in flight when it ended wait in its queue")
    return faults


@dataclass(frozen=True)
class Statement:
    """The whole statement."""

    format: str
    source: str
    conditions: Mapping[str, Any]
    requests: Requests
    books: Books
    faults: Sequence[str]

    @property
    def is_complete(self) -> bool:
        """Whether every request that was to be recorded is accounted for, and none of it lost."""
        return not self.faults

    def as_json(self) -> dict[str, Any]:
        """Return the statement for `--statement`."""
        counted = self.requests
        return {
            "version": VERSION,
            "format": self.format,
            "source": self.source,
            "conditions": dict(self.conditions),
            "complete": self.is_complete,
            "faults": list(self.faults),
            "requests": {
                "read": counted.read,
                "exported": counted.exported,
                "filtered_out": counted.filtered_out,
                "left_out": counted.left_out,
                "by_outcome": counted.by_outcome,
                "stands_for": counted.stands_for,
                "unknown_weight": counted.unknown_weight,
                "first_arrival": _time(counted.first_arrival_nano),
                "last_arrival": _time(counted.last_arrival_nano),
            },
            "records": {**self.books.counts(), "damaged_lines": counted.damaged_lines},
        }

    def words(self) -> list[str]:
        """Return the statement in lines for people."""
        counted, books = self.requests, self.books.counts()
        left_out = sum(counted.left_out.values())
        reasons = f": {_reasons(counted.left_out)}" if left_out else ""
        read = f"{counted.read:,} read = {counted.exported:,} exported + {counted.filtered_out:,} filtered out"
        lines = [
            f"requests: {read} + {left_out:,} that {self.format} can't hold{reasons}",
            f"records: {', '.join(f'{books[name]:,} {name}' for name in _COUNTS).replace('_', ' ')}",
        ]
        if counted.exported:
            stands_for = f"they stand for {counted.stands_for:,.10g} requests"
            lines.insert(1, f"exported: {_reasons(counted.by_outcome)}; {stands_for}")
        if counted.unknown_weight:
            lines.append(f"weight: {counted.unknown_weight:,} exported requests don't say how many they stand for")
        counts = ((name, books[name]) for name in ("dropped", "sampled_out") if any(books[name].values()))
        lines += [f"{name.replace('_', ' ')}: {_reasons(found)}" for name, found in counts]
        lines += [f"not complete: {fault}" for fault in self.faults]
        if self.is_complete and counted.exported:
            lines.append("complete: nothing lost, nothing missing")
        return lines


def _reasons(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{count:,} {name}" for name, count in ordered if count)


def _time(unix_nano: int | None) -> str | None:
    return None if unix_nano is None else stamp(unix_nano)
