"""How quickly `verify` proves the books of a directory, beside a Python loop over the same lines.

Segments are written by a logger of this run and stand in the page cache: what is measured is the reading, not the disk.
The Python loop does the least that a check could: it parses each line and looks whether the sequences are dense.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from inference_logging.cli import native
from inference_logging.record.config import Config
from loadtests.cost.bench_loggers import emit_until_accepted, ours
from loadtests.cost.bench_report import Report, at_least, ratios
from loadtests.harness import memory_directory, scratch_directory

CHUNK = 10_000


def verify(quick: bool) -> Report:
    """Measure MB of lines per second."""
    rounds, size_bytes = (2, 1 << 20) if quick else (5, 256 << 20)
    native, loop = [], []
    with scratch_directory(memory_directory()) as directory:
        written = _write(directory, size_bytes)
        for _ in range(rounds):
            native.append(written / _seconds(lambda: _assert_balanced(directory)) / 1e6)
            loop.append(written / _seconds(lambda: _assert_dense(directory)) / 1e6)
    report = Report(f"verify: {written / 1e6:.0f} MB of plain segments in memory, all processors")
    report.add("verify: gaps, footers, checksums", "MB/s", native)
    report.add("Python, orjson: gaps only", "MB/s", loop)
    report.add("ratio", "times", ratios(native, loop), at_least(10))
    return report


def _write(directory: Path, size_bytes: int) -> int:
    with ours(directory) as logger:
        while _size(directory) < size_bytes:
            emit_until_accepted(logger.emit, CHUNK)
            logger.logger.flush()
    return _size(directory)


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in _segments(directory))


def _segments(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*.jsonl") if not path.is_symlink()]


def _seconds(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _assert_balanced(directory: Path) -> None:
    directories = sorted({path.parent for path in _segments(directory)})
    standard_output, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        assert native.run(["verify", "--", *map(str, directories)], Config()) == 0
    finally:
        os.dup2(standard_output, 1)
        os.close(standard_output)
        os.close(nowhere)


def _assert_dense(directory: Path) -> None:
    sequences: set[int] = set()
    for path in _segments(directory):
        with path.open("rb") as lines:
            sequences.update(record["seq"] for record in map(orjson.loads, lines) if "seq" in record)
    assert len(sequences) == max(sequences) + 1
