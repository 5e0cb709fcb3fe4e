"""Opens the table of the segments that `stats` counts, and names the lines in them that cannot be counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from inference_logging.errors import CorruptLineError
from inference_logging.read.segments import Segment, read_segment
from inference_logging.read.stats import counts
from inference_logging.read.stats.counts import Counts
from inference_logging.read.table.catalog import Catalog
from inference_logging.read.table.engine import BOUNDED, connected

MAX_REPORTED: Final = 20
"""Damaged lines of one segment that are reported; all are counted."""
_LATEST_NS: Final = (1 << 63) - 1


class Counted(NamedTuple):
    """The counts, and the damage that was found."""

    counts: Counts
    damage: list[str]


def count(
    chosen: Sequence[Segment], since: float | None, until: float | None, advance: Callable[[int], object]
) -> Counted:
    """Count the records of segments from one time on, before the other: Unix seconds; None is open.

    ``advance`` is called with the bytes read. Raises ``MissingExtraError`` without DuckDB, ``IncompleteError``,
    OSError.
    """
    with connected("stats", "query", **BOUNDED) as connection:
        import duckdb

        catalog = Catalog.of(connection, chosen, advance)
        between = _nanoseconds(since, 1), _nanoseconds(until, _LATEST_NS)
        try:
            found = counts.count(connection, catalog.snapshot, between)
        except duckdb.Error:
            # A file of the table was damaged or removed: it is made again.
            catalog.inspect()
            catalog.complete()
            found = counts.count(connection, catalog.snapshot, between)
        harmed = {one.name for one in catalog.snapshot if one.facts is not None and one.facts.unreadable}
    return Counted(found, [text for segment in chosen if segment.name in harmed for text in _damage(segment)])


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
