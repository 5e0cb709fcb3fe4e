"""The record that every peer is given, and how many of them arrived.

Each record has a number of its own, ten digits wide, so that what arrived is counted by the file and not by anyone's
counters, and a record that arrived twice counts once.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

Call = Callable[[int], Any]
"""Makes the record of this number. False says that the record was refused; anything else that it was not."""

MESSAGE: Final = "request done"
METHOD: Final = "POST"
PATH: Final = "/v1/chat/completions"
STATUS: Final = 200
DURATION_S: Final = 0.0123
MODEL: Final = "llama-3.1-8b"
STREAM: Final = True
OUTPUT_COUNT: Final = 128
CALLER: Final = "caller-7f3a9c"
"""No name here is one that a peer redacts by default, such as token."""

FIRST_NUMBER: Final = 1_000_000_000
NUMBERS_PER_THREAD: Final = 10_000_000
MOST_THREADS: Final = 256
WARM_UP_NUMBER: Final = 5_000_000_000
"""Records from this number on are made before the measurement, and are not counted."""

SMALLEST_BYTES: Final = 256
LARGEST_BYTES: Final = 32 * 1024
"""Every peer's default takes a record of this size."""

_NUMBER: Final = re.compile(rb'number"?[=:] ?([1-4]\d{9})(?!\d)')


def fields(number: int, text: str) -> dict[str, Any]:
    """Return the fields of a record besides its message."""
    return {
        "method": METHOD, "path": PATH, "status": STATUS, "duration_s": DURATION_S, "model": MODEL, "stream": STREAM,
        "output_count": OUTPUT_COUNT, "caller": CALLER, "number": number, "text": text,
    }  # fmt: skip


def text_of(record_bytes: int) -> str:
    """Return the text with which message and fields are ``record_bytes`` long as JSON without spaces."""
    bare = json.dumps({"message": MESSAGE, **fields(FIRST_NUMBER, "")}, separators=(",", ":"))
    if record_bytes < len(bare):
        raise ValueError(f"record_bytes={record_bytes}: the other fields take {len(bare)}")
    return "x" * (record_bytes - len(bare))


def with_keywords(method: Callable[..., Any], text: str) -> Call:
    """Return a call that gives the fields as keywords."""
    return lambda number: method(
        MESSAGE, method=METHOD, path=PATH, status=STATUS, duration_s=DURATION_S, model=MODEL, stream=STREAM,
        output_count=OUTPUT_COUNT, caller=CALLER, number=number, text=text,
    )  # fmt: skip


def with_extra(method: Callable[..., Any], text: str) -> Call:
    """Return a call that gives the fields as the standard library's loggers take them."""
    return lambda number: method(MESSAGE, extra={
        "method": METHOD, "path": PATH, "status": STATUS, "duration_s": DURATION_S, "model": MODEL, "stream": STREAM,
        "output_count": OUTPUT_COUNT, "caller": CALLER, "number": number, "text": text,
    })  # fmt: skip


class Arrived(NamedTuple):
    """What is in the files: how many different records, how many once more, and the first and the last line."""

    records: int
    repeated: int
    samples: tuple[bytes, ...]


def count_arrived(directory: Path) -> Arrived:
    """Count the records of the measurement in all files of ``directory``."""
    seen: set[bytes] = set()
    found = 0
    samples: list[bytes] = []
    for content in _contents(directory):
        matches = [(match[1], match.start()) for match in _NUMBER.finditer(content)]
        seen.update(number for number, _ in matches)
        found += len(matches)
        samples += [_line_at(content, matches[place][1]) for place in (0, -1) if matches]
    return Arrived(len(seen), found - len(seen), tuple(samples))


def wrong_fields(line: bytes, text: str) -> list[str]:
    """Return the names of the fields that a line of JSON lacks, or has with another value, at any depth."""
    pairs = list(_pairs(json.loads(line)))
    values = [value for _, value in pairs]
    number = next((value for name, value in pairs if name == "number"), None)
    wanted = {name: value for name, value in fields(0, text).items() if name != "number"}
    wrong = [name for name, value in wanted.items() if (name, value) not in pairs]
    wrong += ["message"] if MESSAGE not in values else []
    return wrong + ([] if isinstance(number, int) else ["number"])


def _contents(directory: Path) -> Iterator[mmap.mmap]:
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.stat().st_size:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                yield content


def _line_at(content: mmap.mmap, position: int) -> bytes:
    end = content.find(b"\n", position)
    return content[content.rfind(b"\n", 0, position) + 1 : end if end >= 0 else len(content)]


def _pairs(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield name, inner
            yield from _pairs(inner)
