"""A source of records that is read and acknowledged until nothing comes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inference_logging.ship import Source, Sources
from inference_logging.ship.source import Batch

EVERYTHING = (1_000_000, 1 << 40)


@contextmanager
def source(directory: Path, ship_name: str = "test", *, once: bool = False) -> Iterator[Source]:
    opened = Source(directory, ship_name, once=once)
    try:
        yield opened
    finally:
        opened.close()


def numbers(batch: Batch) -> list[int]:
    return [line.record["n"] for line in batch.lines]


def ship(opened: Source | Sources, most_records: int = 1_000_000) -> list[int]:
    """Read and acknowledge until nothing comes."""
    found: list[int] = []
    while (batch := opened.read(most_records, 1 << 40)).stands:
        opened.plan(batch)
        opened.acknowledge(batch)
        found += numbers(batch)
    return found
