"""Rows in the order of their arrival, in bounded memory.

Records are written when requests end, and readers want them by arrival. Rows wait in a temporary file without a name;
in memory there are three numbers for each, 24 bytes.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Any, Final, NamedTuple

_IN_MEMORY_BYTES: Final = 32 << 20


class Row(NamedTuple):
    """What a format has made of a request; times are nanoseconds, ``since_first_nano`` after the first arrival."""

    arrival_nano: int
    since_first_nano: int
    content: bytes


class Spool:
    """Takes rows in any order, and gives them back by arrival; rows of the same arrival in the order they came."""

    def __init__(self) -> None:
        """Begin empty; the file is in the system's directory for temporary files (`TMPDIR`)."""
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - closed by close()
        self._arrivals, self._begins, self._lengths = array("q"), array("q"), array("q")
        self._bytes = 0

    def add(self, arrival_nano: int, content: bytes) -> None:
        """Keep a row."""
        self._arrivals.append(arrival_nano)
        self._begins.append(self._bytes)
        self._lengths.append(len(content))
        self._bytes += len(content)
        self._file.write(content)

    def __len__(self) -> int:
        return len(self._arrivals)

    def rows(self) -> Iterator[Row]:
        """Iterate over the rows, the earliest first."""
        order = sorted(range(len(self)), key=self._arrivals.__getitem__)
        for at in order:
            self._file.seek(self._begins[at])
            arrival = self._arrivals[at]
            yield Row(arrival, arrival - self._arrivals[order[0]], self._file.read(self._lengths[at]))

    def close(self) -> None:
        """Forget the rows."""
        self._file.close()

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        self.close()
