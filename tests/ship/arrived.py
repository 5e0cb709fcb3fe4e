"""What was written against what arrived: by process and sequence, and by content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from tests.kit.support import FRAMING, parse

Record = Mapping[str, Any]
Key = tuple[Any, ...]


class Comparison(NamedTuple):
    """How many records are written, stand more than once where they arrived, and are not there."""

    records: int
    duplicates: int
    missing: list[Key]


def written_lines(directory: Path) -> list[bytes]:
    """Return the lines of all segments, plain and compressed, without what is the segments' own."""
    contents = []
    for path in sorted(directory.glob("*.jsonl*")):
        if path.suffix == ".jsonl" and not path.is_symlink():
            contents.append(path.read_bytes())
        # A listener that was killed while it compressed has left both.
        elif path.suffix == ".zst" and not path.with_suffix("").exists():
            with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as unpacked:
                contents.append(unpacked.read())
    lines = [line for content in contents for line in content.splitlines()]
    return [line for line in lines if parse(line)["event_name"] not in FRAMING]


def key(record: Record) -> Key:
    """Return what sets a record apart from all others; those of the listener itself have no sequence."""
    place = (record["boot_id"], record["pid"], record.get("seq"))
    if place[2] is not None:
        return place
    return (*place, record.get("event_name", record.get("body")), record["timestamp"])


def compare(written: Iterable[Record], arrived: Iterable[Record]) -> Comparison:
    """Compare them; what arrived and was never written, or is not what was written, fails the test."""
    listed = list(written)
    there = {key(record): record for record in listed}
    assert len(there) == len(listed), [one for one, times in Counter(map(key, listed)).items() if times > 1][:3]
    counted: Counter[Key] = Counter()
    for record in arrived:
        counted[key(record)] += 1
        assert plain(there[key(record)]) == plain(record)
    return Comparison(len(there), counted.total() - len(counted), [one for one in there if one not in counted])


def plain(value: Any) -> Any:
    """Return a value as every language has it, which know one kind of number or none that is not finite."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
