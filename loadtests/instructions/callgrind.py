"""What callgrind has counted, read from its output: how often each instruction ran, and its misses, object by object.

The files are those of ``--dump-instr=yes --cache-sim=yes``. A *code line* is 64 bytes and a *page* is 4 KiB, both found
by the address at which an instruction begins; an instruction counts as executed where it ran at least every other time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

LINE_BITS: Final = 6
PAGE_BITS: Final = 12
FIRST_LEVEL_MISSES: Final = ("I1mr", "D1mr", "D1mw")
TRIGGER: Final = "desc: Trigger: Client Request: "

Place = tuple[str, str, int]
"""Object, function, address within the object."""


@dataclass
class Cost:
    """Executions of an instruction, and its misses in the first-level caches."""

    instructions: float = 0
    misses: float = 0

    def add(self, other: Cost, weight: float = 1) -> None:
        """Add ``weight`` times ``other``."""
        self.instructions += weight * other.instructions
        self.misses += weight * other.misses


@dataclass(frozen=True)
class Part:
    """The counts of one function, or of all that are asked for: per unit of work, and what of the code was executed."""

    cost: Cost = field(default_factory=Cost)
    lines: set[int] = field(default_factory=set)
    pages: set[int] = field(default_factory=set)

    def add(self, address: int, cost: Cost) -> None:
        """Add one instruction."""
        self.cost.add(cost)
        if cost.instructions >= 0.5:
            self.lines.add(address >> LINE_BITS)
            self.pages.add(address >> PAGE_BITS)


class Counts:
    """Costs by place; sums, differences and shares of them are taken place by place."""

    def __init__(self) -> None:
        self.places: defaultdict[Place, Cost] = defaultdict(Cost)

    def add(self, other: Counts, weight: float = 1) -> None:
        """Add ``weight`` times ``other``."""
        for place, cost in other.places.items():
            self.places[place].add(cost, weight)

    def total(self, object_name: str = "") -> Part:
        """Return the counts of the objects whose name contains ``object_name``."""
        whole = Part()
        for part in self.functions(object_name).values():
            whole.cost.add(part.cost)
            whole.lines.update(part.lines)
            whole.pages.update(part.pages)
        return whole

    def functions(self, object_name: str) -> Mapping[str, Part]:
        """Return the counts of each function of these objects."""
        found: defaultdict[str, Part] = defaultdict(Part)
        for (name, function, address), cost in self.places.items():
            if object_name in name:
                found[function].add(address, cost)
        return found


@dataclass(frozen=True)
class Dump:
    """The counts of one thread between two marks, and the name that the second mark gave them."""

    name: str
    thread: int
    counts: Counts


def read(lines: Iterable[str]) -> Dump:
    """Read one file of callgrind's."""
    counts, trigger, thread = Counts(), "", 1
    events: list[str] = []
    positions, names = 1, {"ob": "", "fn": ""}
    rest: Iterator[str] = iter(lines)
    for line in rest:
        if line.startswith("0x"):
            address, *numbers = line.split()
            cost = dict(zip(events, map(int, numbers[positions - 1 :]), strict=False))  # zeros at the end are left out
            misses = sum(cost.get(event, 0) for event in FIRST_LEVEL_MISSES)
            counts.places[names["ob"], names["fn"], int(address, 16)].add(Cost(cost.get("Ir", 0), misses))
        elif line.startswith("calls="):
            next(rest)  # what the called function cost, which is counted there
        elif line.startswith(("ob=", "fn=")):
            names[line[:2]] = line[3:].rstrip("\n")
        elif line.startswith("events:"):
            events = line.split()[1:]
        elif line.startswith("positions:"):
            positions = len(line.split()) - 1
        elif line.startswith(TRIGGER):
            trigger = line.removeprefix(TRIGGER).rstrip("\n")
        elif line.startswith("thread:"):
            thread = int(line.split()[1])
    return Dump(trigger, thread, counts)
