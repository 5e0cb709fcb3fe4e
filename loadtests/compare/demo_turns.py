"""What logging costs a saturated server, by turns within one process: the first part of the demo.

One server (FastAPI on uvicorn, on a core of its own) serves without logging, with it, and without once more, in turns
of some hundred requests, while `wrk` keeps it busy over 16 connections. The clocks are that of the process, which
counts the listener's thread too, and the one on the wall: of a server that is never idle, it gives requests per second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from inference_logging.read.stats.interval import Interval, bootstrap, ratio, trimmed_mean
from loadtests.harness import find_wrk
from loadtests.turns.bench_turns import Load, running
from loadtests.turns.bench_turns_arms import WITH_AND_WITHOUT
from loadtests.turns.bench_turns_report import LEAST_BLOCKS, Case
from loadtests.turns.bench_turns_slices import CONTROL, LOGGED, UNLOGGED, Block

CONNECTIONS: Final = 16
CASES: Final = {
    "/v1/chat/completions": Case("JSON POST", 512),
    "/stream64": Case("stream of 64", 48),
}
"""The routes, and how many requests are one turn: some 50 ms, in which the listener has written most of its records."""
BUSY: Final = 0.9
"""The least share of its core that a server uses for its requests per second to mean something."""


class Cost(NamedTuple):
    """What logging costs one kind of request; ratios are with logging ÷ without."""

    name: str
    blocks: int
    unlogged_cpu_us: float
    added_cpu_us: Interval
    cpu: Interval
    cpu_control: Interval
    unlogged_rps: float
    rps: Interval
    rps_control: Interval
    busy: float

    @classmethod
    def of(cls, case: Case, blocks: list[Block], walls: list[Block]) -> Cost:
        """Evaluate the turns: of each block the nanoseconds of CPU time, and those that passed."""
        cpu, wall = (
            [[block[arm] for block in taken] for arm in (UNLOGGED, LOGGED, CONTROL)] for taken in (blocks, walls)
        )
        scale = 1000 * case.requests
        added = [(logged - unlogged) / scale for unlogged, logged in zip(cpu[UNLOGGED], cpu[LOGGED], strict=True)]
        return cls(
            case.name,
            len(blocks),
            trimmed_mean(cpu[UNLOGGED]) / scale,
            bootstrap(added, trimmed_mean),
            ratio(cpu[LOGGED], cpu[UNLOGGED]),
            ratio(cpu[CONTROL], cpu[UNLOGGED]),
            case.requests * 1e9 / trimmed_mean(wall[UNLOGGED]),
            ratio(wall[UNLOGGED], wall[LOGGED]),
            ratio(wall[UNLOGGED], wall[CONTROL]),
            sum(map(sum, blocks)) / sum(map(sum, walls)),
        )

    @property
    def saturated(self) -> bool:
        """Whether the server was what limited requests per second."""
        return self.busy >= BUSY


def costs(seconds: float, begins: Callable[[str], None]) -> Iterator[Cost]:
    """Measure each case for about ``seconds``; nothing without wrk. ``begins`` is called with the name of each."""
    wrk = find_wrk()
    if wrk is None:
        return
    for route, case in CASES.items():
        begins(case.name)
        with running(WITH_AND_WITHOUT, "process") as server:
            found = server.measure(Load(wrk, CONNECTIONS, seconds, 1, LEAST_BLOCKS), route, case)
            server.stop()  # raises unless each request with logging has its record
        yield Cost.of(case, found["blocks"], found["walls"])
