"""What stands in the segments: every record of a producer, checked byte by byte, and where a copy is reported, once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import zstandard

from tests.crash.journal import Thread
from tests.crash.producing import FIELDS, text
from tests.crash.serving import CHUNK, CHUNKS

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
