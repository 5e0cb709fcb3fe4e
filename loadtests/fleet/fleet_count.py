"""What a fleet's processes accepted, and what of it arrived: by (boot_id, pid, seq), whatever was killed on the way.

Each process notes what it accepted in a slot of one mapped file, after each request. The kernel keeps that when the
process is killed, so the book does not depend on queue, listener or shipper. A process that is killed between a record
and its note has accepted more than the book says: what arrives of that is counted as ``beyond``, never as missing.
"""

from __future__ import annotations

import mmap
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

LIVES: Final = 2
"""Of a pod: before the deploy and after it."""
_BEGIN: Final = struct.Struct("<d")
_SLOT: Final = struct.Struct("<5Q")

Process = tuple[str, int]
Key = tuple[str, int, int]


class Note(NamedTuple):
    """What a process has noted; ``served`` counts the arrivals of its pod that are answered, in all its lives."""

    boot_id: int
    pid: int
    accepted: int
    dropped: int
    served: int


class Book:
    """The slots of all lives of ``pods`` pods, in the file ``path``."""

    def __init__(self, path: Path, pods: int) -> None:
        """Map the file; make it where it is not there."""
        size = _BEGIN.size + pods * LIVES * _SLOT.size
        with path.open("a+b") as file:
            file.truncate(size)
            self._map, self._pods = mmap.mmap(file.fileno(), size), pods

    @property
    def begin_s(self) -> float:
        """When time zero of the fleet is, by the monotonic clock; 0: nobody has said so yet."""
        begin_s: float = _BEGIN.unpack_from(self._map)[0]
        return begin_s

    @begin_s.setter
    def begin_s(self, at_s: float) -> None:
        _BEGIN.pack_into(self._map, 0, at_s)

    def write(self, pod: int, life: int, note: Note) -> None:
        """Note it."""
        _SLOT.pack_into(self._map, self._at(pod, life), *note)

    def read(self, pod: int, life: int) -> Note:
        """Return the note; zeros: that process has not begun."""
        return Note(*_SLOT.unpack_from(self._map, self._at(pod, life)))

    def _at(self, pod: int, life: int) -> int:
        return _BEGIN.size + (pod * LIVES + life) * _SLOT.size

    def notes(self, pods: Iterable[int] | None = None) -> Iterator[Note]:
        """Return the notes of the processes that have begun, of all pods or of these."""
        for pod in range(self._pods) if pods is None else pods:
            for life in range(LIVES):
                if (note := self.read(pod, life)).boot_id:
                    yield note

    def accepted(self, pods: Iterable[int] | None = None) -> int:
        """Return how many records were accepted."""
        return sum(note.accepted for note in self.notes(pods))

    def processes(self) -> dict[Process, int]:
        """Return how many records each process accepted."""
        return {(f"{note.boot_id:016x}", note.pid): note.accepted for note in self.notes()}


class Counted(NamedTuple):
    """What became of the accepted records; ``missing`` names them, ``others`` are the listeners' own records."""

    accepted: int
    arrived: int
    copies: int
    beyond: int
    others: int
    missing: list[Key]

    def figures(self) -> dict[str, int]:
        """Return the counts."""
        return {**self._asdict(), "missing": len(self.missing)}


def key(record: Mapping[str, Any]) -> tuple[str, int, int | None]:
    """Return what identifies a record; the listener's own have no sequence."""
    return record["boot_id"], record["pid"], record.get("seq")


def count(processes: Mapping[Process, int], arrived: Iterable[tuple[str, int, int | None]]) -> Counted:
    """Compare what ``processes`` accepted with the keys of what arrived, each as often as it did.

    Raises ``ValueError`` for a record of a process that is not in the book.
    """
    found: Counter[tuple[str, int, int | None]] = Counter(arrived)
    expected = {(boot_id, pid, seq) for (boot_id, pid), accepted in processes.items() for seq in range(accepted)}
    numbered = {one: times for one, times in found.items() if one[2] is not None}
    unknown = {(boot_id, pid) for boot_id, pid, _ in numbered} - processes.keys()
    if unknown:
        raise ValueError(f"records of processes that the book does not have: {sorted(unknown)[:3]}")
    there = expected & numbered.keys()
    return Counted(
        accepted=len(expected),
        arrived=len(there),
        copies=sum(numbered.values()) - len(numbered),
        beyond=len(numbered) - len(there),
        others=found.total() - sum(numbered.values()),
        missing=sorted(expected - there),
    )
