"""What our middleware costs within one vLLM server: short loads with and without it take turns in the same process.

The differences between processes and the moods of a shared machine, some percent both, cancel out: what remains is
what goes through our middleware and what does not (`bench_vllm_switch`). ``control`` is a third load that does not
either; its ratio shows what this method cannot see: a remark says whether it allows the claim, and gives the interval
over all rounds (`bench_turns_ratio`). The listener lives all the time, and what it does for a load may
end after it: so its CPU time, which it counts itself, is taken off all sides, and its time over the whole round is
added to each request that it wrote. A round is the sum of its turns.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from bench_loggers import scratch_directory
from bench_report import Report, at_least, at_most
from bench_turns_ratio import ratio, verdict
from bench_vllm_load import CHAT, CONNECTIONS, SHAPES, Shape
from bench_vllm_server import SETTLE_S, Place, Server, running

SWITCH: Final = "bench_vllm_switch.Switch"
MOST_RATIO: Final = 1.01
OFF: Final = f"{CHAT}?off"
PATHS: Final = {"on": CHAT, "off": OFF, "control": OFF}


@dataclass
class Side:
    """The sums of one side: requests, seconds until all were answered, CPU time without the listener's."""

    requests: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def rate(self) -> float:
        """Return the requests per second."""
        return self.requests / self.wall_s

    def cpu_us(self) -> float:
        """Return the CPU time of a request."""
        return self.cpu_s / self.requests * 1e6


@dataclass
class Round:
    """The sums of one round, and the listener's CPU time for a request that it wrote."""

    on: Side = field(default_factory=Side)
    off: Side = field(default_factory=Side)
    control: Side = field(default_factory=Side)
    listener_us: float = 0.0


def turns(place: Place, quick: bool) -> list[Report]:
    """Measure both sides in several servers, one after the other: one report for each kind of request."""
    servers, rounds, turned = (1, 1, 1) if quick else (3, 4, 6)
    found: dict[Shape, list[Round]] = {shape: [] for shape in SHAPES}
    for _ in range(servers):
        with scratch_directory() as directory, running("ours", place, directory / "server", SWITCH) as server:
            with place.cores.as_client():
                for shape in SHAPES:
                    _round(server, shape, 1)  # warms up
                    found[shape] += [_round(server, shape, turned) for _ in range(rounds)]
            server.stop()
            server.check_books()
    return [_report(shape, found[shape]) for shape in SHAPES]


def _round(server: Server, shape: Shape, turned: int) -> Round:
    done = Round()
    before_s = server.own().listener_s
    order = deque(PATHS)
    for _ in range(turned):
        for side in order:
            _load(server, shape, PATHS[side], getattr(done, side))
        order.rotate(1)
    time.sleep(SETTLE_S)
    done.listener_us = (server.own().listener_s - before_s) / done.on.requests * 1e6
    return done


def _load(server: Server, shape: Shape, path: str, side: Side) -> None:
    requests = max(shape.requests // 4, CONNECTIONS)
    own, cpu_s = server.own(), server.cpu_s()
    seen = server.load(shape, requests, path, recorded=path != OFF)
    cpu_s = server.cpu_s() - cpu_s
    side.requests += requests
    side.wall_s += seen.wall_s
    side.cpu_s += cpu_s - (server.own().listener_s - own.listener_s)


def _report(shape: Shape, rounds: list[Round]) -> Report:
    report = Report(f"vLLM, {shape.name}, with our middleware and without it by turns in the same server")

    def add(name: str, unit: str, read: Callable[[Round], float], **goal: Any) -> None:
        report.add(name, unit, map(read, rounds), **goal)

    add("req/s, without", "req/s", lambda one: one.off.rate())
    add("req/s, control ÷ without", "×", lambda one: one.control.rate() / one.off.rate())
    add("req/s, with ÷ without", "×", lambda one: one.on.rate() / one.off.rate(), goal=at_least(0.995))
    add("CPU of the API server per request, without", "µs", lambda one: one.off.cpu_us())
    add("CPU, control ÷ without", "×", lambda one: one.control.cpu_us() / one.off.cpu_us())
    add("added on the request path", "µs", lambda one: one.on.cpu_us() - one.off.cpu_us())
    add("added by the listener", "µs", lambda one: one.listener_us)
    add("CPU, with ÷ without", "×", _cpu_ratio, goal=at_most(MOST_RATIO))
    report.remarks.append(_judged(rounds))
    return report


def _judged(rounds: list[Round]) -> str:
    off = [one.off.cpu_us() for one in rounds]
    found = ratio([one.on.cpu_us() + one.listener_us for one in rounds], off)
    control = ratio([one.control.cpu_us() for one in rounds], off)
    judged = verdict(found.value <= MOST_RATIO, control, MOST_RATIO - 1)
    return f"CPU, with ÷ without: {found}; control: {control}; goal ≤ {MOST_RATIO}: {judged}"


def _cpu_ratio(one: Round) -> float:
    return (one.on.cpu_us() + one.listener_us) / one.off.cpu_us()
