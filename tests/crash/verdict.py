"""What the parent finds in the segments, held against the journal: nothing lost, nothing doubled, nothing torn."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import zstandard

from inference_logging import Config, Logger
from tests.crash.journal import Journal, Thread
from tests.crash.producing import FIELDS, FIRST_CHILD, text
from tests.crash.serving import CHUNK, CHUNKS
from tests.crash.stage import directories
from tests.kit.command_line import run
from tests.kit.support import wait_until

_LARGEST_SEGMENT_BYTES = 1 << 30


class Record(NamedTuple):
    """One record as it stands in a segment."""

    boot_id: str
    seq: int
    number: int
    cut_off: bool = False
    """A request that its process did not live to end."""


class Found:
    """The content of all segments in the directories of an act."""

    def __init__(self, directories: Iterable[Path]) -> None:
        self.records: dict[Thread, list[Record]] = defaultdict(list)
        """By thread, in the order of their queues and there of their sequence numbers."""
        self.sequences: dict[str, set[int]] = defaultdict(set)
        """By boot id: those of all records, also of what the listener itself has to say."""
        self.reported_losses = 0
        """The sum of what ``log.dropped`` records report."""
        self._standing: dict[tuple[str, int], Path] = {}
        self._second: set[tuple[str, int]] = set()
        self._reported: dict[bytes, Path] = {}
        self._in_both: list[dict[str, Any]] = []
        for directory in directories:
            for line in _lines(directory):
                self._take(directory, line)
        for records in self.records.values():
            _sort(records)
        unreported = [one for one in self._second if not any(_spans(span, one) for span in self._in_both)]
        assert not unreported, f"doubled, and nothing reports it: {sorted(unreported)[:10]}"

    @property
    def reported_in_both(self) -> int:
        """Return how many records stand in the sink and in the fallback, since a write of a stopped process hung."""
        return len(self._second)

    def count_in(self, directory: Path) -> int:
        """Return how many records stand in this directory and in none before it."""
        return sum(standing == directory for standing in self._standing.values())

    def _take(self, directory: Path, line: Any) -> None:
        if line["event_name"] == "log.dropped":
            if self._reported.setdefault(orjson.dumps(line), directory) is directory:
                self.reported_losses += line["dropped"]
        elif line["event_name"] == "sink.fallback":
            self._in_both.extend(line.get("in_both", []))
        elif "seq" in line and self._is_first(directory, line):
            if line["event_name"] == "request":
                self._take_request(line)
            elif line["event_name"] in ("crash", "log"):
                self._take_record(line)

    def _is_first(self, directory: Path, line: Any) -> bool:
        """Note where the record stands. A second one may stand in another directory."""
        name = (line["boot_id"], line["seq"])
        if name not in self._standing:
            self._standing[name] = directory
            self.sequences[line["boot_id"]].add(line["seq"])
            return True
        assert self._standing[name] != directory, f"doubled: {line}"
        assert name not in self._second, f"doubled: {line}"
        self._second.add(name)
        return False

    def _take_record(self, line: Any) -> None:
        record = line.get("attributes", line)
        life, thread, number, content = (record[field] for field in FIELDS)
        assert content == text(life, thread, number), f"torn: {line}"
        self.records[Thread(life, thread)].append(Record(line["boot_id"], line["seq"], number))

    def _take_request(self, line: Any) -> None:
        life, client, number = map(int, line["client_request_id"].split("."))
        chunks, sent_bytes = line.get("chunks", 0), line["http.response.body.size"]
        assert sent_bytes == chunks * len(CHUNK), f"torn: {line}"
        cut_off = line["outcome"] == "process_died"
        assert cut_off or (line["outcome"], chunks) == ("ok", CHUNKS), f"torn: {line}"
        self.records[Thread(life, client)].append(Record(line["boot_id"], line["seq"], number, cut_off))


def _sort(records: list[Record]) -> None:
    """Put the records of a thread into the order of its queues: another one took the place of one that was lost."""
    records.sort(key=lambda record: record.seq)
    first: dict[str, int] = {}
    for record in records:
        first.setdefault(record.boot_id, record.number)
    records.sort(key=lambda record: (first[record.boot_id], record.seq))


def _spans(span: dict[str, Any], record: tuple[str, int]) -> bool:
    return bool(span["boot_id"] == record[0] and span["first"] <= record[1] <= span["last"])


def _lines(directory: Path) -> Iterator[Any]:
    # A hidden file is a compression that was killed; its segment is still there.
    for path in sorted(path for path in directory.glob("[!.]*.jsonl*") if not path.is_symlink()):
        content = _content(path)
        if path.suffix == ".jsonl" and (compressed := path.with_suffix(".jsonl.zst")).exists():
            # The compression was killed between its last two steps. Readers see one of the two.
            assert _content(compressed) == content
            continue
        assert content == b"" or content.endswith(b"\n"), f"torn: the last line of {path.name}"
        for line in content.splitlines():
            yield orjson.loads(line)


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix != ".zst":
        return content
    return zstandard.ZstdDecompressor().decompress(content, max_output_size=_LARGEST_SEGMENT_BYTES)


class Figures(NamedTuple):
    """What was seen; the last three are asserted to be 0, and printed all the same."""

    kills: int = 0
    processes: int = 0
    children: int = 0
    """Of the processes: forked by another one while its threads emitted."""
    accepted: int = 0
    refused: int = 0
    """Of the three quarters that have the severity INFO: what the listener itself says has others."""
    unjournalled: int = 0
    """Accepted, and killed before the entry was in the journal."""
    half_written: int = 0
    """Reserved, and killed before the commit: never accepted, skipped and counted as torn."""
    cut_off: int = 0
    """Requests in flight when their process was killed."""
    in_fallback: int = 0
    reported_in_both: int = 0
    """In the sink and in the fallback, as a ``sink.fallback`` record reports: the write of a stopped process hung."""
    lost: int = 0
    doubled: int = 0
    torn: int = 0

    def __add__(self, other: object) -> Figures:
        assert isinstance(other, Figures)
        return Figures(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def drain(config: Config) -> dict[str, Any]:
    """Listen until no queue of another process is left; return the totals of the directory."""
    with Logger(config.model_copy(update={"listener": "thread"})) as logger:
        directory = config.resolved_queue_directory

        def only_ours() -> bool:
            logger.flush()
            return len(list(directory.glob("*.queue"))) == 1

        wait_until(only_ours, "the queues of the dead to be written")
        return logger.service.totals()


def judge(config: Config, journal: Journal, totals: dict[str, Any], kills: int) -> Figures:
    """Compare the segments with the journal and with the totals, record by record; return the figures."""
    primary, *fallback = directories(config)
    found = Found([primary, *fallback])
    _assert_verify_agrees(config)
    threads = found.records.keys() | journal.accepted.keys() | journal.refused.keys()
    unjournalled = sum(_compare(thread, found.records[thread], journal.accepted[thread]) for thread in threads)
    lives = {thread.life for thread in threads}
    _assert_each_process_had_a_queue_of_its_own(found)
    written, half_written = _assert_books_balance(found, totals, kills)
    refused = sum(totals["dropped"][reason]["INFO"] for reason in ("queue_full", "no_queue"))
    assert 0 <= refused - journal.refused.total() <= len(threads) - unjournalled
    in_fallback = sum(map(found.count_in, fallback))
    cut_off = sum(record.cut_off for records in found.records.values() for record in records)
    children = sum(life >= FIRST_CHILD for life in lives)
    return Figures(
        kills,
        len(lives),
        children,
        written,
        refused,
        unjournalled,
        half_written,
        cut_off,
        in_fallback,
        found.reported_in_both,
    )


def judge_without_totals(config: Config, journal: Journal, totals: dict[str, Any], kills: int) -> Figures:
    """As ``judge``, where the totals went with the queue directory: ``log.dropped`` records count refusals."""
    found = Found(directories(config))
    _assert_verify_agrees(config)
    threads = found.records.keys() | journal.accepted.keys() | journal.refused.keys()
    unjournalled = sum(_compare(thread, found.records[thread], journal.accepted[thread]) for thread in threads)
    _assert_each_process_had_a_queue_of_its_own(found)
    missing = {boot: set(range(max(numbers))) - numbers for boot, numbers in found.sequences.items()}
    half_written = sum(map(len, missing.values()))
    assert half_written <= kills, f"lost: {missing}"
    refused = journal.refused.total()
    assert refused <= found.reported_losses, "what was refused is not counted"
    lives = {thread.life for thread in threads}
    written = sum(map(len, found.sequences.values()))
    return Figures(kills, len(lives), 0, written, refused, unjournalled, half_written)


def verified(config: Config) -> dict[str, Any]:
    """Return what `inference-logging verify` finds."""
    queues = f"--queue-directory={config.resolved_queue_directory}"
    report = json.loads(run("verify", "--json", queues, *map(str, directories(config))).out)
    assert isinstance(report, dict)
    return report


def _assert_verify_agrees(config: Config) -> None:
    """Check that `inference-logging verify` comes to the same by other ways: every sequence is accounted for."""
    report = verified(config)
    assert report["balanced"], report["problems"][:10]
    states = {one["state"] for one in report["processes"]}
    assert states <= {"closed", "died"}, states


def _assert_books_balance(found: Found, totals: dict[str, Any], kills: int) -> tuple[int, int]:
    """Check the totals of the directory; return how many records are written and how many were half-written."""
    written, half_written = sum(map(len, found.sequences.values())), sum(totals["dropped"]["torn"].values())
    assert totals["written"] == written, f"{written} stand in the segments, {totals}"
    assert totals["accepted"] == written + half_written, f"{written} written, {half_written} half-written, {totals}"
    missing = {boot: set(range(max(numbers))) - numbers for boot, numbers in found.sequences.items()}
    assert sum(map(len, missing.values())) <= half_written, f"lost: {missing}"
    assert half_written <= kills, "the interpreter's lock lets one thread emit at a time"
    assert found.reported_losses == sum(sum(levels.values()) for levels in totals["dropped"].values())
    return written, half_written


def _assert_each_process_had_a_queue_of_its_own(found: Found) -> None:
    queues = {(record.boot_id, thread.life) for thread, records in found.records.items() for record in records}
    shared = {boot_id for boot_id, times in Counter(boot_id for boot_id, _ in queues).items() if times > 1}
    assert not shared, f"several processes emitted into one queue: {shared}"


def _compare(thread: Thread, records: list[Record], accepted: int) -> int:
    """Check one thread's records; return how many the journal does not know: one at most."""
    numbers = [record.number for record in records]
    doubled = {number: count for number, count in Counter(numbers).items() if count > 1}
    assert not doubled, f"doubled: {thread} {doubled}"
    lost = set(range(accepted)) - set(numbers)
    assert not lost, f"lost: {thread}, {accepted} accepted: {sorted(lost)[:10]}"
    assert not any(record.cut_off for record in records[:-1]), f"{thread}: a request was cut off that had an end"
    assert numbers == list(range(len(numbers))), f"{thread}: not in the order in which it emitted"
    assert len(numbers) - accepted in (0, 1), f"{thread}: {len(numbers)} records, {accepted} accepted"
    return len(numbers) - accepted
