"""Opens the table of the segments that `stats` counts, and names the lines in them that cannot be counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from inference_logging.errors import CorruptLineError
from inference_logging.read.segments import Segment, read_segment
from inference_logging.read.segments.columns import TABLES
from inference_logging.read.stats import counts
from inference_logging.read.stats.counts import Counts
from inference_logging.read.table.catalog import Catalog, Entry
from inference_logging.read.table.columns import KINDS
from inference_logging.read.table.engine import BOUNDED, connected
from inference_logging.read.table.search import Question, Search
from inference_logging.read.where import ALIASES, Condition, no_record_has

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_REPORTED: Final = 20
"""Damaged lines of one segment that are reported; all are counted."""
_LATEST_NS: Final = (1 << 63) - 1
_KNOWN: Final = frozenset({*TABLES["records"], *KINDS, *ALIASES})
"""Fields that a condition may name, even if no record has them."""


class Counted(NamedTuple):
    """The counts, and the damage that was found."""

    counts: Counts
    damage: list[str]
    unknown: str | None
    """A sentence about the fields of conditions that no record has."""


def count(
    chosen: Sequence[Segment],
    since: float | None,
    until: float | None,
    advance: Callable[[int], object],
    where: Sequence[Condition] = (),
) -> Counted:
    """Count the records of segments from one time on, before the other, that meet all conditions.

    Times are Unix seconds; None is open. ``advance`` is called with the bytes read. Raises ``MissingExtraError``
    without DuckDB, ``IncompleteError``, OSError.
    """
    with connected("stats", "query", **BOUNDED) as connection:
        import duckdb

        catalog = Catalog.of(connection, chosen, advance)
        conditions = [condition.in_full() for condition in where]
        between = _nanoseconds(since, 1), _nanoseconds(until, _LATEST_NS)
        try:
            found = counts.count(connection, catalog.snapshot, between, conditions)
        except duckdb.Error:
            # A file of the table was damaged or removed: it is made again.
            catalog.inspect()
            catalog.complete()
            found = counts.count(connection, catalog.snapshot, between, conditions)
        harmed = {one.name for one in catalog.snapshot if one.facts is not None and one.facts.unreadable}
        unknown = _unknown(connection, catalog.snapshot, where)
    damage = [text for segment in chosen if segment.name in harmed for text in _damage(segment)]
    return Counted(found, damage, unknown)


def _unknown(connection: DuckDBPyConnection, entries: Sequence[Entry], where: Sequence[Condition]) -> str | None:
    """Return a sentence about the fields of conditions that no record has; None if each may have a value."""
    missing = []
    for field in sorted({condition.field for condition in where} - _KNOWN):
        search = Search(connection, Question({"where": [f"{field}~"]}), entries)
        search.run({"nothing": ("NULL", "BIGINT")}, lambda *_: [None])
        if not search.ask("SELECT 1 FROM {rows} LIMIT 1"):
            missing.append(no_record_has("field", field, _KNOWN))
    return "; ".join(missing) or None


def _nanoseconds(unix_s: float | None, otherwise: int) -> int:
    """Return a time as the table has it, to the microsecond."""
    return otherwise if unix_s is None else min(max(round(unix_s * 1e6) * 1000, 1), _LATEST_NS)


def _damage(segment: Segment) -> list[str]:
    errors: list[str] = []

    def report(error: CorruptLineError) -> None:
        if len(errors) < MAX_REPORTED:
            errors.append(str(error))

    for _ in read_segment(segment, framing=True, on_corrupt=report):
        if len(errors) == MAX_REPORTED:
            break
    return errors
