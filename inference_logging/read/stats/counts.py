"""What `stats` counts: one pass over records, each looked at once and forgotten.

Memory is bounded, whatever is read: quantiles are sketches, the time line becomes coarser as it becomes longer, and
further pairs of model and route beyond ``MAX_GROUPS`` are counted as one. A sampled request counts as many times as its
``adjusted_count`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from inference_logging.read.outcomes import NOT_FAILED
from inference_logging.read.segments.columns import MODEL
from inference_logging.read.segments.reading import is_framing
from inference_logging.read.stats.sketch import Sketch
from inference_logging.read.times import unix_s

MAX_GROUPS: Final = 1000
MAX_NAMES: Final = 100
MAX_INTERVALS: Final = 240
OTHER: Final = "(other)"
NO_MODEL: Final = "(no model)"
NO_ROUTE: Final = "(no route)"
NO_STATUS: Final = "(no response)"

# A number that is not finite is text in a record.
_NUMBERS: Final = (float, int)


class Group:
    """The requests of one model and route, or of several."""

    __slots__ = (
        "chunk_gap",
        "duration",
        "first_chunk",
        "input_tokens",
        "outcomes",
        "output_tokens",
        "per_token",
        "records",
        "requests",
        "statuses",
        "tokens_per_s",
    )

    def __init__(self) -> None:
        """Begin empty."""
        self.records = 0
        self.requests = self.input_tokens = self.output_tokens = 0.0
        self.outcomes: dict[str, float] = {}
        self.statuses: dict[str, float] = {}
        self.duration, self.first_chunk, self.chunk_gap = Sketch(), Sketch(), Sketch()
        self.per_token, self.tokens_per_s = Sketch(), Sketch()

    @property
    def failed(self) -> float:
        """Requests that have failed."""
        return self.requests - sum(self.outcomes.get(outcome, 0.0) for outcome in NOT_FAILED)

    def add(self, record: Mapping[str, Any], weight: float) -> None:
        """Count one request record."""
        get = record.get
        self.records += 1
        self.requests += weight
        count_name(self.outcomes, str(get("outcome", "unknown")), weight)
        count_name(self.statuses, status_class(get("http.response.status_code")), weight)
        if isinstance(duration_s := get("duration_s"), _NUMBERS):
            self.duration.add(duration_s, weight)
        if isinstance(first_chunk_s := get("gen_ai.response.time_to_first_chunk"), _NUMBERS):
            self.first_chunk.add(first_chunk_s, weight)
        if isinstance(gap_us := get("chunk_gap_mean_us"), _NUMBERS):
            self.chunk_gap.add(gap_us * 1e-6, weight)
        if isinstance(per_token_s := get("gen_ai.response.time_per_output_token"), _NUMBERS):
            self.per_token.add(per_token_s, weight)
        if isinstance(tokens_per_s := get("gen_ai.response.output_tokens_per_second"), _NUMBERS):
            self.tokens_per_s.add(tokens_per_s, weight)
        if isinstance(tokens := get("gen_ai.usage.input_tokens"), int):
            self.input_tokens += tokens * weight
        if isinstance(tokens := get("gen_ai.usage.output_tokens"), int):
            self.output_tokens += tokens * weight

    def merge(self, other: Group) -> None:
        """Count all that ``other`` counted."""
        self.records += other.records
        self.requests += other.requests
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        for outcome, count in other.outcomes.items():
            count_name(self.outcomes, outcome, count)
        add_all(self.statuses, other.statuses)
        for name in ("duration", "first_chunk", "chunk_gap", "per_token", "tokens_per_s"):
            getattr(self, name).merge(getattr(other, name))


class Interval:
    """The requests that ended in one interval of the time line."""

    __slots__ = ("duration", "failed", "others")

    def __init__(self) -> None:
        """Begin empty."""
        self.others = self.failed = 0.0
        self.duration = Sketch()

    def merge(self, other: Interval) -> None:
        """Count all that ``other`` counted."""
        self.others += other.others
        self.failed += other.failed
        self.duration.merge(other.duration)


class TimeLine:
    """Requests by the time at which they ended, in at most ``MAX_INTERVALS`` intervals of equal width."""

    def __init__(self) -> None:
        """Begin with intervals of a second."""
        self.width_s = 1
        self.intervals: dict[int, Interval] = {}

    def add(self, at_unix_s: float, failed: bool, duration_s: Any, weight: float) -> None:
        """Count one request that ended at ``at_unix_s``."""
        interval = self.intervals.get(int(at_unix_s) // self.width_s)
        if interval is None:
            interval = self._begin(int(at_unix_s))
        if failed:
            interval.failed += weight
        else:
            interval.others += weight
        if isinstance(duration_s, _NUMBERS):
            interval.duration.add(duration_s, weight)

    def merge(self, other: TimeLine) -> None:
        """Count all that ``other`` counted."""
        while self.width_s < other.width_s:
            self._double()
        for index, interval in other.intervals.items():
            self._begin(index * other.width_s).merge(interval)

    def _begin(self, at_unix_s: int) -> Interval:
        """Return the interval of a time, which may be new and make the others wider."""
        index = at_unix_s // self.width_s
        while max(index, *self.intervals, index) - min(index, *self.intervals, index) >= MAX_INTERVALS:
            self._double()
            index = at_unix_s // self.width_s
        return self.intervals.setdefault(index, Interval())

    def _double(self) -> None:
        """Join neighbours: half as many intervals, twice as wide."""
        self.width_s *= 2
        narrow, self.intervals = self.intervals, {}
        for index, interval in narrow.items():
            self.intervals.setdefault(index // 2, Interval()).merge(interval)


class Dropped(NamedTuple):
    """Records that a process refused or lost, for one reason and level."""

    reason: str
    level: str


class Counts:
    """Counts of all records that were added."""

    def __init__(self) -> None:
        """Begin empty."""
        self.groups: dict[tuple[str, str], Group] = {}
        self.time_line = TimeLine()
        self.events: dict[str, int] = {}
        self.sampled_by: dict[str, int] = {}
        self.first = self.last = ""
        self.corrupt_lines = 0
        self._dropped: dict[str, dict[Dropped, int]] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Count one record, or the footer of a segment; one that isn't as the listener writes it counts as corrupt."""
        try:
            self._add(record)
        except (AttributeError, TypeError, ValueError):
            # As damaged as a line that is no JSON.
            self.corrupt_lines += 1

    def _add(self, record: Mapping[str, Any]) -> None:
        event = record.get("event_name")
        if is_framing(record):
            self._add_processes(record.get("processes", ()))
            return
        count_name(self.events, event if isinstance(event, str) else OTHER, 1)
        if event == "request":
            self._add_request(record)
        elif event == "log.dropped" and "seq" not in record:
            self._add_dropped(str(record.get("boot_id")), record.get("reasons", {}))

    def merge(self, other: Counts) -> None:
        """Count all that ``other`` counted."""
        for key, group in other.groups.items():
            self._group(key).merge(group)
        self.time_line.merge(other.time_line)
        for mine, theirs in ((self.events, other.events), (self.sampled_by, other.sampled_by)):
            for name, count in theirs.items():
                count_name(mine, name, count)
        self.corrupt_lines += other.corrupt_lines
        self._extend(other.first)
        self._extend(other.last)
        for boot_id, counts in other._dropped.items():
            self._keep_greatest(boot_id, counts.items())

    def total(self) -> Group:
        """Return all requests as one group."""
        whole = Group()
        for group in self.groups.values():
            whole.merge(group)
        return whole

    def by_model(self) -> dict[str, Group]:
        """Return the requests by model, the most used first."""
        return self._by(lambda key: key[0])

    def by_route(self) -> dict[str, Group]:
        """Return the requests by route, the most used first."""
        return self._by(lambda key: key[1])

    def dropped(self) -> dict[Dropped, int]:
        """Return the records refused or lost by reason and level, over all processes."""
        total: dict[Dropped, int] = {}
        for counts in self._dropped.values():
            add_all(total, counts)
        return total

    @property
    def seconds(self) -> float:
        """Time between the first and the last request record."""
        return max(0.0, unix_s(self.last) - unix_s(self.first)) if self.first else 0.0

    def _add_request(self, record: Mapping[str, Any]) -> None:
        get = record.get
        stamp = str(get("timestamp"))
        at_unix_s = unix_s(stamp)
        weight = get("adjusted_count", 1.0)
        weight = weight if isinstance(weight, _NUMBERS) and weight > 0 else 1.0
        model = next(filter(None, map(get, MODEL)), NO_MODEL)
        self._group((str(model), str(get("http.route") or NO_ROUTE))).add(record, weight)
        self.time_line.add(at_unix_s, get("outcome") not in NOT_FAILED, get("duration_s"), weight)
        count_name(self.sampled_by, str(get("sampled_by", "head")), 1)
        self._extend(stamp)

    def _group(self, key: tuple[str, str]) -> Group:
        group = self.groups.get(key)
        if group is None:
            group = self.groups.setdefault(key if len(self.groups) < MAX_GROUPS else (OTHER, OTHER), Group())
        return group

    def _extend(self, stamp: str) -> None:
        if stamp > self.last:
            self.last = stamp
        if stamp and (not self.first or stamp < self.first):
            self.first = stamp

    def _add_processes(self, processes: Iterable[Mapping[str, Any]]) -> None:
        for process in processes:
            self._add_dropped(str(process.get("boot_id")), process.get("dropped", {}))

    def _add_dropped(self, boot_id: str, reasons: Mapping[str, Mapping[str, int]]) -> None:
        found = [(Dropped(reason, level), n) for reason, levels in reasons.items() for level, n in levels.items()]
        self._keep_greatest(boot_id, found)

    def _keep_greatest(self, boot_id: str, found: Iterable[tuple[Dropped, int]]) -> None:
        """Keep the greatest count seen: footers and `log.dropped` records both count from a process's beginning."""
        if not found:
            return
        is_known = boot_id in self._dropped or len(self._dropped) < MAX_GROUPS
        counts = self._dropped.setdefault(boot_id if is_known else OTHER, {})
        for key, count in found:
            counts[key] = max(counts.get(key, 0), count)

    def _by(self, part: Callable[[tuple[str, str]], str]) -> dict[str, Group]:
        found: dict[str, Group] = {}
        for key, group in self.groups.items():
            found.setdefault(part(key), Group()).merge(group)
        return dict(sorted(found.items(), key=lambda item: (-item[1].requests, item[0])))


def status_class(status: Any) -> str:
    """Return the class of a response's status code: 2xx; (none) for a request without a response."""
    is_code = isinstance(status, int) and not isinstance(status, bool) and 100 <= status < 600
    return f"{status // 100}xx" if is_code else NO_STATUS if status is None else OTHER


def count_name(counts: dict[str, Any], name: str, count: float) -> None:
    """Add ``count`` to the name's; beyond ``MAX_NAMES`` names to the others'."""
    if name not in counts and len(counts) >= MAX_NAMES:
        name = OTHER
    counts[name] = counts.get(name, 0) + count


def add_all(to: dict[Any, Any], counts: Mapping[Any, Any]) -> None:
    """Add each of ``counts`` to the one in ``to``."""
    for key, count in counts.items():
        to[key] = to.get(key, 0) + count
