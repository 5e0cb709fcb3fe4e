"""What callgrind has counted, read from its output: how often each instruction ran, object by object.

The files are those of ``--dump-instr=yes``. A *code line* is 64 bytes, found by the address at which an instruction
begins; an instruction counts as executed where it ran at least every other time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

LINE_BITS: Final = 6
TRIGGER: Final = "desc: Trigger: Client Request: "

Place = tuple[str, str, int]
"""Object, function, address within the object."""


@dataclass
class Part:
    """The counts of one function, or of all that are asked for: per unit of work, and what of the code was executed."""

    instructions: float = 0
    lines: set[int] = field(default_factory=set)

    def add(self, address: int, executions: float) -> None:
        """Add one instruction."""
        self.instructions += executions
        if executions >= 0.5:
            self.lines.add(address >> LINE_BITS)


class Counts:
    """Executions by place; sums, differences and shares of them are taken place by place."""

    def __init__(self) -> None:
        self.places: defaultdict[Place, float] = defaultdict(float)

    def add(self, other: Counts, weight: float = 1) -> None:
        """Add ``weight`` times ``other``."""
        for place, executions in other.places.items():
            self.places[place] += weight * executions

    def total(self, object_name: str = "") -> Part:
        """Return the counts of the objects whose name contains ``object_name``."""
        whole = Part()
        for part in self.functions(object_name).values():
            whole.instructions += part.instructions
            whole.lines.update(part.lines)
        return whole

    def functions(self, object_name: str) -> Mapping[str, Part]:
        """Return the counts of each function of these objects."""
        found: defaultdict[str, Part] = defaultdict(Part)
        for (name, function, address), executions in self.places.items():
            if object_name in name:
                found[function].add(address, executions)
        return found


class Dump(NamedTuple):
    """The counts of one thread between two marks, and the name that the second mark gave them."""

    name: str
    thread: int
    counts: Counts


def read(lines: Iterable[str]) -> Dump:
    """Read one file of callgrind's."""
    counts, trigger, thread = Counts(), "", 1
    names = {"ob": "", "fn": ""}
    rest: Iterator[str] = iter(lines)
    for line in rest:
        if line.startswith("0x"):
            address, executions = line.split()[:2]
            counts.places[names["ob"], names["fn"], int(address, 16)] += int(executions)
        elif line.startswith("calls="):
            next(rest)  # what the called function cost, which is counted there
        elif line.startswith(("ob=", "fn=")):
            names[line[:2]] = line[3:].rstrip("\n")
        elif line.startswith(TRIGGER):
            trigger = line.removeprefix(TRIGGER).rstrip("\n")
        elif line.startswith("thread:"):
            thread = int(line.split()[1])
    return Dump(trigger, thread, counts)
