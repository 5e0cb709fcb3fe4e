"""What logging costs a real vLLM server, as ratios to no logging: ``make bench-vllm``.

    python -m loadtests.engine.bench_vllm [--quick] [--json PATH] [--modes MODE ...] [--venv DIR] [--model DIR]

Servers of all modes live at once and are loaded one at a time, in an order that rotates from round to round;
blocks of rounds start new servers, since two processes of one program can differ by some percent for their whole life.
``none`` is the mean of two servers without logging, and their ratio, ``control``, shows what noise looks like.

At the end our records are counted: as many as requests that were answered; and ``inference-logging verify`` agrees.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from operator import attrgetter, truediv
from pathlib import Path
from typing import Final

from loadtests.cost.bench_loggers import scratch_directory
from loadtests.cost.bench_report import Goal, Report, at_least, at_most, machine, pairwise
from loadtests.engine.bench_vllm_load import CONNECTIONS, SHAPES, Shape
from loadtests.engine.bench_vllm_server import MEANINGS, MODES, SETTLE_S, Cores, Place, Server, running

ROOT: Final = Path(__file__).resolve().parents[2]
BASES: Final = ("none", "control")
IDLE_S: Final = 5.0


@dataclass(frozen=True)
class Load:
    """What one load gave, CPU time per request."""

    requests_per_s: float
    tokens_per_s: float
    first_ms: float
    gap_p50_ms: float
    gap_p99_ms: float
    cpu_us: float
    hot_path_us: float
    listener_us: float


Loads = dict[tuple[str, str], list[Load]]
"""By the name of the shape and the mode, one of each round."""


def modes(place: Place, chosen: Iterable[str], quick: bool) -> list[Report]:
    """Measure servers of the chosen modes side by side: one report for each kind of request."""
    names = [*dict.fromkeys((*BASES, *chosen))]
    blocks, rounds = (1, 1) if quick else (2, 5)
    loads: Loads = {(shape.name, mode): [] for shape in SHAPES for mode in names}
    remarks = [_block(loads, place, names, rounds, quick) for _ in range(blocks)]
    reports = [_report(shape, loads, names) for shape in SHAPES]
    reports[-1].remarks += [*MEANINGS, *remarks]
    return reports


def _block(loads: Loads, place: Place, names: list[str], rounds: int, quick: bool) -> str:
    with scratch_directory() as directory, ExitStack() as stack:
        servers = [stack.enter_context(running(mode, place, directory / mode)) for mode in names]
        idle = "" if quick else f"{_idle_share(servers):.2%} of a core used by each idle server; "
        with place.cores.as_client():
            turned = deque(servers)
            for number in range(rounds if quick else rounds + 1):
                for shape in SHAPES:
                    for server in turned:
                        load = _load(server, shape, CONNECTIONS if quick else shape.requests)
                        if number or quick:  # the first round warms up
                            loads[shape.name, server.mode].append(load)
                turned.rotate(1)
        for server in servers:
            server.stop()
        for server in servers:
            if MODES[server.mode].peer:
                server.check_lines()
        records = sum(server.check_books() for server in servers if MODES[server.mode].middleware)
        return f"{idle}{records:,} requests to servers with ours, as many records; verify: the books balance"


def _idle_share(servers: list[Server]) -> float:
    before = sum(server.family_cpu_s() for server in servers)
    time.sleep(IDLE_S)
    return (sum(server.family_cpu_s() for server in servers) - before) / IDLE_S / len(servers)


def _load(server: Server, shape: Shape, requests: int) -> Load:
    own, cpu_s = server.own(), server.cpu_s()
    seen = server.load(shape, requests)
    time.sleep(SETTLE_S)
    used_s, mine = server.cpu_s() - cpu_s, server.own()
    rate = requests / seen.wall_s
    per_request = [used_s, mine.hot_path_s - own.hot_path_s, mine.listener_s - own.listener_s]
    costs = [seconds / requests * 1e6 for seconds in per_request]
    return Load(rate, rate * shape.tokens, seen.first_ms(), seen.gap_ms(0.5), seen.gap_ms(0.99), *costs)


Read = Callable[[Load], float]


def _report(shape: Shape, loads: Loads, names: list[str]) -> Report:
    title = f"vLLM, {shape.name}: {CONNECTIONS} connections, prompts of 200 words, ratios to no logging"
    report = Report(title)
    bases = [loads[shape.name, mode] for mode in BASES]

    def compare(figure: str, unit: str, read: Read, goal: Goal | None = None) -> None:
        none = [(read(one) + read(other)) / 2 for one, other in zip(*bases, strict=True)]
        report.add(f"{figure}: none", unit, none)
        report.add(f"{figure}: control ÷ none", "×", pairwise(truediv, map(read, bases[1]), map(read, bases[0])))
        for mode in names[len(BASES) :]:
            ratios = pairwise(truediv, map(read, loads[shape.name, mode]), none)
            report.add(f"{figure}: {mode} ÷ none", "×", ratios, goal if mode.startswith("ours") else None)

    compare("req/s", "req/s", attrgetter("requests_per_s"), at_least(0.995))
    compare("output tokens/s", "tok/s", attrgetter("tokens_per_s"), at_least(0.995))
    if shape.stream:
        compare("time to first token p50", "ms", attrgetter("first_ms"))
        compare("inter-token p50", "ms", attrgetter("gap_p50_ms"))
        compare("inter-token p99", "ms", attrgetter("gap_p99_ms"))
    else:
        compare("latency p50", "ms", attrgetter("first_ms"))
    compare("CPU of the API server per request", "µs", attrgetter("cpu_us"), at_most(1.01))
    for mode in names:
        if MODES[mode].middleware:
            _add_own(report, mode, loads[shape.name, mode])
    return report


def _add_own(report: Report, mode: str, loads: list[Load]) -> None:
    report.add(f"{mode}: on the request path, as it says itself", "µs", (load.hot_path_us for load in loads))
    report.add(f"{mode}: listener, CPU per request", "µs", (load.listener_us for load in loads))
    shares = [(load.hot_path_us + load.listener_us) / load.cpu_us for load in loads]
    report.add(f"{mode}: both, of the API server's CPU", "×", shares, at_most(0.01))


def main() -> None:
    """Measure and print."""
    options = _options()
    seen_on = machine()
    place = Place(options.venv, options.model or options.venv / "models" / "tiny", Cores.of_this_process())
    print("  ".join(f"{name}: {value}" for name, value in seen_on.items()))
    print(f"{place.cores}; median (lowest … highest round)" + ("; QUICK: the figures mean nothing" * options.quick))
    reports = modes(place, options.modes, options.quick)
    for report in reports:
        report.print()
    print(f"\nload average now {machine()['load average']}")
    if options.json:
        found = {"machine": seen_on, "quick": options.quick, "sections": [report.as_json() for report in reports]}
        options.json.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="*", choices=list(MODES), default=list(MODES), metavar="MODE")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv-vllm", help="where vLLM and this package are")
    parser.add_argument("--model", type=Path, help="the model that is served; that of --venv unless given")
    parser.add_argument("--quick", action="store_true", help="one round of a few requests: shows that it runs")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
