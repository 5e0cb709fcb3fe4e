"""The form of the result of `inference-logging bench`, which the tables are made from and which is kept.

Times are in nanoseconds, memory in bytes, rates per second, unless a name says otherwise. A figure that could not be
measured is null. `SCHEMA` grows when a name is renamed or removed; readers ignore names that they do not know.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypedDict

SCHEMA: Final = 4

Loop = Literal["closed", "open"]
LOOPS: Final[tuple[Loop, ...]] = ("closed", "open")

FIGURES: Final = (
    "p50_ns",
    "p99_ns",
    "p999_ns",
    "max_ns",
    "records_per_s",  # in the file, ÷ the time from the first call until the last one was in the file
    "interpreter_cpu_ns",  # of the process without our native threads, ÷ accepted records, until the drain's end
    "peak_bytes",  # of resident memory, above that before the peer was opened
    "arrived_ratio",  # arrived ÷ accepted; null if the drain was not over in time, since the rest might have come
    "kept_ratio",  # arrived ÷ calls
)
"""The names of a cell's figures."""


class Estimate(TypedDict):
    """A median over rounds (for a ratio: a mean of logarithms), and the ends of its bootstrap interval of 95 %."""

    value: float
    low: float
    high: float


class Machine(TypedDict):
    """Where it was measured; ``files_on`` is the type of the file system of temporary files."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    load: list[float]
    files_on: str


class PeerEntry(TypedDict):
    """A way of logging. ``missing`` says why it could not be measured here; then it has no cells."""

    name: str
    title: str
    library: str
    version: str
    settings: str
    """The text of the configuration that was measured: its lines, as code."""
    ours: bool
    writes: bool
    """False for the empty calls and the NullHandler: nothing of theirs arrives anywhere."""
    missing: str | None


CellRound = dict[str, Any]
"""The figures of a cell in one round, its number (``round``) and counts.

``accepted`` is ``calls`` − ``refused``: calls that said so, and records that the peer itself counts as dropped.
``seconds`` end with the last call, ``end_to_end_s`` once the peer said that it is done, and ``drained`` says whether it
did so within the limit.
"""


class Cell(TypedDict):
    """One peer with one number of threads, one kind of loop and one size of record.

    ``accepted``, ``arrived`` and ``refused`` are sums over the rounds. ``kept_up`` says whether in every round of an
    open loop the last call ended and the last record was in the file in time; null in a closed loop. ``problem`` says
    why rounds are missing (the child ended or took too long); null where none is.
    """

    peer: str
    threads: int
    loop: Loop
    record_bytes: int
    figures: dict[str, Estimate | None]
    accepted: int
    arrived: int
    refused: int
    kept_up: bool | None
    drained: bool
    problem: str | None
    rounds: list[CellRound]


class CallTime(TypedDict):
    """What one kind of call takes in batches of calls, the loop included, on one thread with room in every queue."""

    peer: str
    ns: Estimate
    rounds: list[float]


class Result(TypedDict):
    """The whole result: what `--json` prints."""

    schema: int
    made: str
    command: str
    quick: bool
    machine: Machine
    rounds: int
    seconds_per_cell: float
    open_rate_per_s: float
    peers: list[PeerEntry]
    cells: list[Cell]
    filtered: list[CallTime]
    """A call below the level that its logger takes; peers that have no levels, or take it by default, are not here."""
