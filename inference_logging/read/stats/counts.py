"""What `stats` asks the table of records: counts, sums and distributions of all requests, and of groups of them.

A sampled request counts as many times as its ``adjusted_count`` says. Memory is bounded, whatever there is: quantiles
are sketches, the time line is coarser the longer it is, and all but the ``MAX_GROUPS`` most used names are one group.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from inference_logging.read.segments.columns import FAILED, MODEL, NONE
from inference_logging.read.table.catalog import Entry
from inference_logging.read.table.engine import name, text
from inference_logging.read.table.part import dropped
from inference_logging.read.table.rows import number
from inference_logging.read.table.search import MOMENT, Question, Record, Search
from inference_logging.read.table.sketch import WEIGHT, Sketch, sketches
from inference_logging.read.times import stamp, unix_nano
from inference_logging.read.where import as_text, is_absent, look_up

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_GROUPS: Final = 1000
MAX_NAMES: Final = 100
MAX_INTERVALS: Final = 240
OTHER: Final = "(other)"

_STATUS: Final = "http.response.status_code"
_MEASURES: Final = ("duration", "first_chunk", "chunk_gap", "per_token", "tokens_per_s")
_NUMBERS: Final = {
    "duration": ("duration_s", 1.0),
    "first_chunk": ("gen_ai.response.time_to_first_chunk", 1.0),
    "chunk_gap": ("chunk_gap_mean_us", 1e-6),
    "per_token": ("gen_ai.response.time_per_output_token", 1.0),
    "tokens_per_s": ("gen_ai.response.output_tokens_per_second", 1.0),
    "weight": ("adjusted_count", 1.0),
    "input_tokens": ("gen_ai.usage.input_tokens", 1.0),
    "output_tokens": ("gen_ai.usage.output_tokens", 1.0),
}
"""The numbers of a request: the field of each, and its unit."""
_TEXTS: Final = {
    "event": (("event_name",), OTHER),
    "model": (MODEL, NONE),
    "route": (("http.route",), NONE),
    "sampled_by": (("sampled_by",), "head"),
}
"""The names that records are counted by: the first of its fields that is not empty, and what counts otherwise."""
_CLASS: Final = (
    f"CASE WHEN status IS NULL THEN {text(NONE)} "
    f"WHEN status BETWEEN 100 AND 599 THEN status // 100 || 'xx' ELSE {text(OTHER)} END"
)


@dataclass
class Group:
    """The requests of a group."""

    records: int = 0
    requests: float = 0.0
    failed: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    outcomes: dict[str, float] = field(default_factory=dict)
    statuses: dict[str, float] = field(default_factory=dict)
    duration: Sketch = field(default_factory=Sketch)
    first_chunk: Sketch = field(default_factory=Sketch)
    chunk_gap: Sketch = field(default_factory=Sketch)
    per_token: Sketch = field(default_factory=Sketch)
    tokens_per_s: Sketch = field(default_factory=Sketch)

    def add(
        self, outcome: str | None, status: str, records: int, weight: float, failed: float, given: float, made: float
    ) -> None:
        """Count requests with their tokens."""
        self.records += records
        self.requests += weight
        self.failed += failed
        self.input_tokens += given
        self.output_tokens += made
        _add(self.outcomes, outcome or NONE, weight)
        _add(self.statuses, status, weight)


class Dropped(NamedTuple):
    """Records that a process refused or lost, for one reason and level."""

    reason: str
    level: str


@dataclass(frozen=True)
class Counts:
    """Counts of all records of some segments; names have the most frequent first."""

    whole: Group
    models: Mapping[str, Group]
    routes: Mapping[str, Group]
    interval_s: int
    intervals: Mapping[int, Group]
    """Requests by the time at which they ended, in ``interval_s`` since the Unix epoch."""
    events: Mapping[str, int]
    sampled_by: Mapping[str, int]
    dropped: Mapping[Dropped, int]
    """Records that were refused or lost, over all processes."""
    corrupt_lines: int
    times: tuple[int, int] | None
    """When the first and the last request ended, in nanoseconds since the Unix epoch; None without any."""

    @property
    def first(self) -> str:
        """The time of the first request as its record has it; empty without any."""
        return stamp(self.times[0]) if self.times is not None else ""

    @property
    def last(self) -> str:
        """That of the last one."""
        return stamp(self.times[1]) if self.times is not None else ""

    @property
    def seconds(self) -> float:
        """Time between both."""
        return (self.times[1] - self.times[0]) / 1e9 if self.times is not None else 0.0


def count(
    cursor: DuckDBPyConnection, entries: Sequence[Entry], between: tuple[int, int], where: Sequence[str] = ()
) -> Counts:
    """Count the records of segments from one time on, before the other, that meet the conditions ``where``.

    Times are nanoseconds since the Unix epoch.
    """
    lost, corrupt = _dropped(cursor, entries, between)
    search = Search(cursor, _question(between, where=where), entries)
    search.run(_SHAPE, _found)
    events = _frequent(search, "event")
    ((without_time,),) = search.ask("SELECT count(*) FROM {rows} WHERE event = 'request' AND t IS NULL")
    search.relation = f"SELECT * FROM ({search.relation}) WHERE event = 'request' AND t IS NOT NULL"
    ((first, last),) = search.ask("SELECT min(t), max(t) FROM {rows}")
    interval_s = _interval_s(first or 0, last or 0)
    models, routes = (_groups(search, _most_used(search, column)) for column in ("model", "route"))
    intervals = _groups(search, f"t // {interval_s * 1_000_000_000}", _MEASURES[:1])
    unreadable = sum(entry.facts.unreadable for entry in entries if entry.facts is not None)
    return Counts(
        whole=models.pop(None, Group()),
        models=_by_use(models),
        routes=_by_use(routes),
        interval_s=interval_s,
        intervals={at: group for at, group in intervals.items() if at is not None},
        events=events,
        sampled_by=_frequent(search, "sampled_by"),
        dropped=lost,
        corrupt_lines=corrupt + without_time + unreadable,
        times=None if first is None else (first, last),
    )


def _question(between: tuple[int, int], **more: Any) -> Question:
    return Question({"from_ns": between[0], "to_ns": between[1], "budget_s": math.inf, **more})


def _found(record: Record, moment: int, _segment: str, _offset: int) -> list[Any]:
    """Return what the columns would have of a record that is odd."""
    has_time = unix_nano(str(record.get("timestamp"))) > 0
    status = look_up(record, _STATUS)
    is_code = isinstance(status, int) and not isinstance(status, bool) and 100 <= status < 600
    numbers = ((number(look_up(record, key)), unit) for key, unit in _NUMBERS.values())
    return [
        moment if has_time else None,
        *(_text(record, *one) for one in _TEXTS.values()),
        _text(record, ("outcome",), "") or None,
        status if is_code else None if is_absent(status) or status is None else 0,
        *(None if value is None else value * unit for value, unit in numbers),
    ]


def _text(record: Record, fields: Iterable[str], otherwise: str) -> str:
    for value in (look_up(record, key) for key in fields):
        if not is_absent(value) and value not in (None, ""):
            return OTHER if isinstance(value, dict | list) else as_text(value)
    return otherwise


def _text_of(fields: Iterable[str], otherwise: str) -> str:
    """Return the same as SQL over the columns."""
    return f"coalesce({''.join(f'nullif({name(one)}, {text(str())}), ' for one in fields)}{text(otherwise)})"


_SHAPE: Final = {
    "t": (MOMENT, "BIGINT"),
    **{member: (_text_of(*of), "VARCHAR") for member, of in _TEXTS.items()},
    "outcome": ("outcome", "VARCHAR"),
    "status": (name(_STATUS), "BIGINT"),
    **{member: (f"CAST({name(key)} AS DOUBLE) * {unit}", "DOUBLE") for member, (key, unit) in _NUMBERS.items()},
}


def _frequent(search: Search, member: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for one, records in search.ask(f"SELECT {member}, count(*) FROM {{rows}} GROUP BY 1 ORDER BY 2 DESC, 1"):
        _add(found, one, records)
    return found


def _most_used(search: Search, member: str) -> str:
    """Return SQL of a name; those that are not among the most used are one."""
    most = f"SELECT {member} FROM {{rows}} GROUP BY 1 ORDER BY sum({WEIGHT}) DESC, 1 LIMIT {MAX_GROUPS}"
    search.ask(f"CREATE OR REPLACE TEMP TABLE used_{member} AS {most}")
    return f"CASE WHEN {member} IN (FROM used_{member}) THEN {member} ELSE {text(OTHER)} END"


def _groups(search: Search, group: str, measures: Iterable[str] = _MEASURES) -> dict[Any, Group]:
    """Return the requests of each group, which is SQL; the group None is all."""
    found: dict[Any, Group] = {}
    tokens = ", ".join(f"sum(coalesce({member}, 0) * {WEIGHT})" for member in ("input_tokens", "output_tokens"))
    sums = f"count(*), sum({WEIGHT}), coalesce(sum({WEIGHT}) FILTER ({FAILED}), 0), {tokens}"
    for one, *sums_of_one in search.ask(
        f"SELECT {group}, outcome, {_CLASS}, {sums} FROM {{rows}} GROUP BY 1, 2, 3 ORDER BY 5 DESC, 2, 3"
    ):
        for key in (None, one):
            found.setdefault(key, Group()).add(*sums_of_one)
    for measure in measures:
        for key, sketch in sketches(search, measure, group, search.values).items():
            setattr(found.setdefault(key, Group()), measure, sketch)
    return found


def _by_use(groups: Mapping[Any, Group]) -> dict[str, Group]:
    named = ((name, group) for name, group in groups.items() if name is not None)
    return dict(sorted(named, key=lambda item: (-item[1].requests, item[0])))


def _add(counts: dict[str, Any], name: str, count: float) -> None:
    """Add to a name's count; beyond ``MAX_NAMES`` names to the others'."""
    if name not in counts and len(counts) >= MAX_NAMES:
        name = OTHER
    counts[name] = counts.get(name, 0) + count


def _interval_s(first: int, last: int) -> int:
    """Return the shortest of 1 s, 2 s, 4 s … with which there are at most ``MAX_INTERVALS``."""
    width = 1
    while last // 1_000_000_000 // width - first // 1_000_000_000 // width >= MAX_INTERVALS:
        width *= 2
    return width


def _dropped(
    cursor: DuckDBPyConnection, entries: Sequence[Entry], between: tuple[int, int]
) -> tuple[dict[Dropped, int], int]:
    """Return what processes report as dropped, in footers and in records, and how many of these make no sense.

    All reports of a process count from its beginning, so the greatest holds.
    """
    greatest: dict[tuple[str, Dropped], int] = {}
    corrupt = 0

    def take(process: str, reason: str, level: str, records: int) -> None:
        key = process, Dropped(reason, level)
        greatest[key] = max(greatest.get(key, 0), records)

    def found(record: Record, *_: Any) -> list[Any]:
        nonlocal corrupt
        try:
            for one in dropped(record.get("boot_id"), record.get("reasons", {})) if "seq" not in record else ():
                take(*one)
        except (AttributeError, TypeError):
            corrupt += 1
        return [None]

    for entry in entries:
        for at, process, reason, level, records in entry.facts.dropped if entry.facts is not None else ():
            if stamp(between[0]) <= at < stamp(between[1]):
                take(process, reason, level, records)
    nothing, reports = {"nothing": ("NULL", "BIGINT")}, _question(between, events=["log.dropped"])
    Search(cursor, reports, entries).run(nothing, found, are_columns=False, more=lambda _: "seq IS NULL")
    total = Counter[Dropped]()
    for (_, of_records), records in greatest.items():
        total[of_records] += records
    return dict(sorted(total.items())), corrupt
