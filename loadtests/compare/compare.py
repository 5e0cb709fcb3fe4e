"""Compare ways of logging requests: what each costs a real server in requests per second, latency and CPU.

    python -m loadtests.compare.compare                                     # all modes, a few minutes

All modes of a round run side by side and are loaded by Locust in turns, in an order that rotates; each round has new
processes. The server has a core to itself where there are two. Ratios are to the mode `none` of the same round;
`control` is a second server without logging, so its distance from 1 is the noise. Prints tables, and writes
report.html. Exits with 1 if a request failed or has no record.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from inference_logging.prove.bench.text import number_text
from inference_logging.read.pages import page as pages
from inference_logging.read.pages.content import Plot, Table
from inference_logging.read.pages.page import Section
from inference_logging.read.pages.parts import points, side_by_side, table_of
from inference_logging.read.stats.interval import Interval, bootstrap, ratio
from loadtests.compare.measure import (
    CONTROL,
    SATURATED,
    SCENARIOS,
    WARM_UP_REQUESTS,
    Books,
    Cores,
    Load,
    LoadError,
    ServerError,
    drive,
    serving,
)
from loadtests.harness import machine

BASE: Final = "none"
GOAL: Final = 0.985
_NOTE: Final = "Medians of the rounds, and mean ratios with their intervals of 95 %."
MODES: Final = (BASE, "uvicorn-access", "stdlib-file", "stdlib-queue", "ours", CONTROL)


class Row(NamedTuple):
    """One mode of one scenario over all rounds: medians, and ratios to the server without logging of the same round.

    A machine that becomes slower for a minute then moves both sides of a ratio.
    """

    mode: str
    rps: Interval
    rps_ratio: Interval
    cpu_us: Interval
    cpu_ratio: Interval
    p50_ms: float
    p99_ms: float
    busy: float
    failures: int
    books: Books

    @classmethod
    def of(cls, mode: str, loads: Sequence[Load], base: Sequence[Load], books: Books) -> Row:
        """Evaluate the rounds of a mode beside those without logging."""
        rps, cpu_us = [load.rps for load in loads], [load.cpu_us for load in loads]
        return cls(
            mode,
            bootstrap(rps), ratio(rps, [load.rps for load in base]),
            bootstrap(cpu_us), ratio(cpu_us, [load.cpu_us for load in base]),
            median(load.p50_ms for load in loads), median(load.p99_ms for load in loads),
            median(load.busy for load in loads), sum(load.failures for load in loads), books,
        )  # fmt: skip

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        rates = number_text(self.rps.value), str(self.rps_ratio), number_text(self.cpu_us.value), str(self.cpu_ratio)
        times = f"{self.p50_ms:.2f}", f"{self.p99_ms:.2f}"
        return self.mode, *rates, *times, f"{self.busy:.0%}", str(self.books)


Rows = dict[str, list[Row]]
"""By scenario."""


def compare(plan: argparse.Namespace) -> bool:
    """Run ``plan``, print tables, write the report. Return whether every request was answered and recorded."""
    cores = Cores.of_this_process()
    os.sched_setaffinity(0, cores.load)  # the load tools inherit this, the servers pin themselves
    command = shlex.join(["python", "-m", "loadtests.compare.compare", *sys.argv[1:]])
    print(f"{command}\n{cores}", flush=True)
    measured = measure(plan, cores)
    notes = list(remarks(measured))
    for scenario, rows in measured.items():
        print(f"\n{table(scenario, rows).text()}")
    facts = {**machine(), "command": command, "pinned": str(cores)}
    print("", *notes, f"report: {write_report(plan.out, measured, facts, notes)}", sep="\n")
    return all(row.books.balanced and not row.failures for rows in measured.values() for row in rows)


def measure(plan: argparse.Namespace, cores: Cores) -> Rows:
    """Run every round of every scenario."""
    loads: dict[tuple[str, str], list[Load]] = {}
    books: dict[tuple[str, str], Books] = {}
    for number in range(plan.rounds):
        order = deque(plan.modes)
        order.rotate(-number)
        for scenario in plan.scenarios:
            with ExitStack() as stack:
                servers = {
                    mode: stack.enter_context(serving(mode, plan.out / "logs" / mode, cores.server)) for mode in order
                }
                for server in servers.values():  # until it answers, and has imported and compiled what it does once
                    server.request(SCENARIOS[scenario].path, SCENARIOS[scenario].body, WARM_UP_REQUESTS)
                for mode, server in servers.items():
                    print(f"round {number + 1} of {plan.rounds}: {scenario}, {mode}", flush=True)
                    load = drive(server, SCENARIOS[scenario], plan.seconds, plan.users)
                    loads.setdefault((scenario, mode), []).append(load)
                for mode, server in servers.items():
                    before = books.get((scenario, mode))
                    books[scenario, mode] = server.stop().after(before)
    return {
        scenario: [
            Row.of(mode, loads[scenario, mode], loads[scenario, BASE], books[scenario, mode]) for mode in plan.modes
        ]
        for scenario in plan.scenarios
    }


def remarks(measured: Rows) -> Iterator[str]:
    """Iterate over what has to be known to read the figures."""
    for scenario, rows in measured.items():
        for row in rows:
            name = f"{scenario}, {row.mode}"
            if row.mode == BASE and row.busy < SATURATED:
                yield (
                    f"{name}: the server used {row.busy:.0%} of its core: Locust was the limit, or other work took the "
                    "core. Read CPU per request, not req/s."
                )
            if row.failures:
                yield f"{name}: {row.failures} requests FAILED"
            if not row.books.balanced:
                yield f"{name}: {row.books.accepted} requests, but {row.books.records} records: NOT BALANCED"
            if row.mode == "ours" and row.books.balanced:
                yield f"{name}: records arrived = requests accepted = {row.books.accepted:,}"


def table(scenario: str, rows: Sequence[Row]) -> Table:
    """Return the table of one scenario."""
    heads = ("mode", "req/s", f"÷ {BASE}", "CPU µs", f"÷ {BASE}", "p50 ms", "p99 ms", "busy", "records")
    return Table(scenario, heads, [row.cells() for row in rows], _NOTE)


def write_report(out: Path, measured: Rows, facts: dict[str, str], remarks: Sequence[str]) -> Path:
    """Write report.html into ``out``: plots and tables, what is to be said beside, how it was measured."""
    known = Table("How it was measured", ("", "value"), list(facts.items()))
    sections = [
        Section(scenario, [side_by_side(_plots(scenario, rows)), table_of(table(scenario, rows), ours={"ours"})])
        for scenario, rows in measured.items()
    ]
    sections += [Section("Remarks", [points(remarks)]), Section(known.title, [table_of(known, "sentences")])]
    out.mkdir(parents=True, exist_ok=True)
    page = out / "report.html"
    pages.write(page, pages.document("Request logging compared", (), sections))
    return page


def _plots(scenario: str, rows: Sequence[Row]) -> list[Plot]:
    """Return req/s, its ratio, CPU per request and latency; each also in words."""

    def plot(title: str, unit: str, series: list[dict[str, Any]], text: Callable[[Row], str], **more: Any) -> Plot:
        words = "; ".join(f"{row.mode}: {text(row)}" for row in rows) + "."
        data = {"labels": [row.mode for row in rows], "ours": ["ours"], "unit": unit, "series": series, **more}
        return Plot(f"{scenario}-{title.partition(' ÷')[0].lower().replace(' ', '-')}", title, words, "bars", data)

    def spreads(of: str, factor: float = 1.0) -> list[dict[str, Any]]:
        every, ends = [getattr(row, of) for row in rows], {"values": "value", "low": "low", "high": "high"}
        return [{"name": "", **{key: [getattr(one, end) * factor for one in every] for key, end in ends.items()}}]

    times = [{"name": name, "values": [getattr(row, f"{name}_ms") * 1e-3 for row in rows]} for name in ("p50", "p99")]
    goal = [{"value": GOAL, "name": f"goal {GOAL}"}]
    return [
        plot("Requests per second", "1/s", spreads("rps"), lambda row: number_text(row.rps.value)),
        plot(f"Ratio to {BASE}", "x", spreads("rps_ratio"), lambda row: str(row.rps_ratio), mark="dot", rules=goal),
        plot("Server CPU per request", "s", spreads("cpu_us", 1e-6), lambda row: f"{number_text(row.cpu_us.value)} µs"),
        plot(
            "Latency",
            "s",
            times,
            lambda row: f"p50 {row.p50_ms:.2f} ms, p99 {row.p99_ms:.2f} ms",
            mark="dot",
            log=False,
        ),
    ]


def main() -> None:
    """Read the arguments and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=["trivial", "stream64"])
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), help=f"{BASE} is always among them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="load per mode, scenario and round")
    parser.add_argument("--users", type=int, default=32, help="connections of the closed loop")
    parser.add_argument("--out", type=Path, default=Path("out/compare"))
    plan = parser.parse_args()
    plan.modes = list(dict.fromkeys([BASE, *plan.modes]))
    try:
        sys.exit(0 if compare(plan) else 1)
    except (LoadError, ServerError) as error:
        sys.exit(f"compare: {error}")


if __name__ == "__main__":
    main()
