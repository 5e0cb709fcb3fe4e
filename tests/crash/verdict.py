"""What the parent finds in the segments, held against the journal: nothing lost, nothing doubled, nothing torn."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import zstandard

from inference_logging import Config, Logger
from tests.crash.journal import Journal, Thread
from tests.crash.producing import FIELDS, FIRST_CHILD, text
from tests.crash.stage import directories
from tests.support import wait_until


class Found(NamedTuple):
    """One record as it stands in a segment."""

    boot_id: str
    seq: int
    number: int


class Figures(NamedTuple):
    """What was seen; the last three are asserted to be 0, and printed all the same."""

    kills: int = 0
    processes: int = 0
    children: int = 0
    """Of the processes: forked by another one while its threads emitted."""
    accepted: int = 0
    refused: int = 0
    unjournalled: int = 0
    """Accepted, and killed before the entry was in the journal."""
    half_written: int = 0
    """Reserved, and killed before the commit: never accepted, skipped and counted as torn."""
    lost: int = 0
    doubled: int = 0
    torn: int = 0

    def __add__(self, other: object) -> Figures:
        assert isinstance(other, Figures)
        return Figures(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def drain(config: Config) -> dict[str, Any]:
    """Listen until no queue of another process is left; return the totals of the directory."""
    with Logger(config) as logger:
        directory = config.resolved_queue_directory

        def only_ours() -> bool:
            logger.flush()
            return len(list(directory.glob("*.queue"))) == 1

        wait_until(only_ours, "the queues of the dead to be written")
        return logger.service.totals()


def judge(config: Config, journal: Journal, totals: dict[str, Any], kills: int) -> Figures:
    """Compare the segments with the journal and with the totals, record by record; return the figures."""
    found, told = _find(config)
    threads = found.keys() | journal.accepted.keys() | journal.refused.keys()
    unjournalled = sum(_compare(thread, found.get(thread, []), journal.accepted[thread]) for thread in threads)
    _assert_numbered_densely(found)
    written, half_written = sum(map(len, found.values())), sum(totals["dropped"]["torn"].values())
    assert totals["written"] == written
    assert totals["accepted"] == written + half_written
    lives = {thread.life for thread in threads}
    children = sum(life >= FIRST_CHILD for life in lives)
    assert half_written <= len(lives), "the interpreter's lock lets one thread emit at a time"
    refused, journalled = sum(totals["dropped"]["queue_full"].values()), journal.refused.total()
    assert 0 <= refused - journalled <= len(threads) - unjournalled
    assert told == sum(sum(levels.values()) for levels in totals["dropped"].values())
    return Figures(kills, len(lives), children, written, refused, unjournalled, half_written)


def _find(config: Config) -> tuple[dict[Thread, list[Found]], int]:
    """Return all records in the segments by thread, those of each in the order of their sequence numbers.

    Besides, return how many losses ``log.dropped`` records tell of.
    """
    found, told = defaultdict(list), 0
    for line in (line for directory in directories(config) for line in _lines(directory)):
        if line["event_name"] == "log.dropped":
            told += line["dropped"]
        elif line["event_name"] in ("crash", "log"):
            record = line.get("attributes", line)
            life, thread, number, content = (record[field] for field in FIELDS)
            assert content == text(life, thread, number), f"torn: {line}"
            found[Thread(life, thread)].append(Found(line["boot_id"], line["seq"], number))
    for records in found.values():
        records.sort(key=lambda record: record.seq)
    return found, told


def _lines(directory: Path) -> Iterator[Any]:
    for path in sorted(path for path in directory.glob("*.jsonl*") if not path.is_symlink()):
        content = path.read_bytes()
        if path.suffix == ".zst":
            content = zstandard.ZstdDecompressor().decompress(content, max_output_size=1 << 30)
        assert content == b"" or content.endswith(b"\n"), f"torn: the last line of {path.name}"
        for line in content.splitlines():
            yield orjson.loads(line)


def _compare(thread: Thread, records: list[Found], accepted: int) -> int:
    """Check one thread's records; return how many the journal does not know: one at most."""
    numbers = [record.number for record in records]
    doubled = {number: count for number, count in Counter(numbers).items() if count > 1}
    assert not doubled, f"doubled: {thread} {doubled}"
    lost = set(range(accepted)) - set(numbers)
    assert not lost, f"lost: {thread}, {accepted} accepted: {sorted(lost)[:10]}"
    assert numbers == list(range(len(numbers))), f"{thread}: not in the order in which it emitted"
    assert len(numbers) - accepted in (0, 1), f"{thread}: {len(numbers)} records, {accepted} accepted"
    return len(numbers) - accepted


def _assert_numbered_densely(found: dict[Thread, list[Found]]) -> None:
    """Check that each process's sequence lacks nothing: what died half-written is behind all that it committed."""
    by_boot: dict[str, list[int]] = defaultdict(list)
    for records in found.values():
        for record in records:
            by_boot[record.boot_id].append(record.seq)
    for boot_id, sequences in by_boot.items():
        assert sorted(sequences) == list(range(len(sequences))), f"a gap or a double in the sequence of {boot_id}"
