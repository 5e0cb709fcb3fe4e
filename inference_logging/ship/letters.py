"""Dead letters: the records that a shipper gives up, each with its reason, in a file beside the offsets.

They stay in their segments too, until retention takes those. The file is for people: it is written before the offsets
are saved, so that a letter may be there twice and never not at all, and nothing reads it. It ends at a size; who moves
it away makes room.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, NamedTuple

import orjson

MOST_BYTES: Final = 16 << 20
"""The size of the file."""


class Letter(NamedTuple):
    """A record that is given up, or what stands in the place of one."""

    segment: str
    offset: int
    raw: bytes
    """The line; empty where it cannot be read."""
    reason: str
    """The same as a label: few values."""
    detail: str = ""
    """The reason in words."""


class DeadLetters:
    """The file at ``path``, which the first letter makes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, directory: Path, letters: Iterable[Letter]) -> int:
        """Put letters from ``directory`` on the device; return how many of them have room. Raises OSError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(self.path, flags, 0o600), "r+b", buffering=0) as file:  # noqa: PTH123 - an open descriptor
            size = file.seek(0, os.SEEK_END)
            # The last shipper may have been killed while it wrote.
            begin = b"\n" if size and os.pread(file.fileno(), 1, size - 1) != b"\n" else b""
            taken = []
            for line in (_line(directory, letter) for letter in letters):
                if size + len(line) <= MOST_BYTES:
                    taken.append(line)
                    size += len(line)
            if taken:
                _write(file.fileno(), begin + b"".join(taken))
                os.fsync(file.fileno())
        return len(taken)


def _write(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def _line(directory: Path, letter: Letter) -> bytes:
    said = {
        "timestamp": datetime.now(timezone.utc).isoformat(),
        "directory": os.fspath(directory),
        "segment": letter.segment,
        "offset": letter.offset,
        "reason": letter.reason,
        "detail": letter.detail,
        # As text: what no reader takes must not be met here again.
        "line": letter.raw.decode("utf-8", "replace"),
    }
    return orjson.dumps(said) + b"\n"
