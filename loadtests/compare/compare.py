"""Compare ways of logging requests: what each costs a real server in requests per second, latency and CPU.

    python -m loadtests.compare.compare                                     # all modes, a few minutes

All modes of a round run side by side and are loaded by Locust in turns, in an order that rotates; each round has new
processes. The server has a core to itself where there are two. Ratios are to the mode `none` of the same round;
`control` is a second server without logging, so its distance from 1 is the noise. Writes report.html and results.json.
Exits with 1 if a request failed or has no record.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from inference_logging.read.stats.interval import Interval
from loadtests.compare import report
from loadtests.compare.load import SCENARIOS, Load, LoadError, Scenario, drive, warm_up
from loadtests.compare.measure import CONTROL, Books, Cores, ServerError, ServerUnderTest
from loadtests.compare.report import BASE, Rounds, Row, rows

MODES = (BASE, "uvicorn-access", "stdlib-file", "stdlib-queue", "ours", CONTROL)
TABLE_WIDTH = 140


class Plan(NamedTuple):
    """What to run."""

    scenarios: tuple[str, ...]
    modes: tuple[str, ...]
    rounds: int
    seconds: float
    users: int
    out: Path

    @property
    def runs(self) -> int:
        """How many times Locust is started."""
        return len(self.scenarios) * len(self.modes) * self.rounds

    def command(self) -> str:
        """Return the command that repeats this."""
        return (
            f"python -m loadtests.compare.compare --scenarios {' '.join(self.scenarios)} "
            f"--modes {' '.join(self.modes)} --rounds {self.rounds} --seconds {self.seconds:g} "
            f"--users {self.users}"
        )


class Comparison:
    """One comparison under way: what was measured so far, and the display."""

    def __init__(self, plan: Plan, cores: Cores, progress: Progress) -> None:
        """Prepare to run `plan`."""
        self.plan = plan
        self.cores = cores
        self.progress = progress
        self.rounds: Rounds = {scenario: {mode: [] for mode in plan.modes} for scenario in plan.scenarios}
        self.books = {(scenario, mode): Books(0, None) for scenario in plan.scenarios for mode in plan.modes}
        self._task = progress.add_task("starting", total=plan.runs)

    def run(self) -> list[Row]:
        """Run every round of every scenario."""
        for number in range(self.plan.rounds):
            for scenario in self.plan.scenarios:
                self._round(SCENARIOS[scenario], number)
        return rows(self.rounds, self.books)

    def _round(self, scenario: Scenario, number: int) -> None:
        with ExitStack() as servers:
            running = {mode: servers.enter_context(self._server(mode)) for mode in self._order(number)}
            for server in running.values():
                warm_up(server, scenario)
            for mode, server in running.items():
                self.rounds[scenario.name][mode].append(self._load(server, mode, scenario, number))
            for mode, server in running.items():
                self._add_books(scenario.name, mode, server.stop())

    def _server(self, mode: str) -> ServerUnderTest:
        return ServerUnderTest(mode, self.plan.out / "logs" / mode, self.cores.server)

    def _order(self, turn: int) -> list[str]:
        shift = turn % len(self.plan.modes)
        return [*self.plan.modes[shift:], *self.plan.modes[:shift]]

    def _load(self, server: ServerUnderTest, mode: str, scenario: Scenario, number: int) -> Load:
        text = f"round {number + 1}/{self.plan.rounds}  {scenario.name}  {mode}"
        self.progress.update(self._task, description=text)
        load = drive(server, scenario, self.plan.seconds, self.plan.users)
        self.progress.advance(self._task)
        return load

    def _add_books(self, scenario: str, mode: str, new: Books) -> None:
        old = self.books[scenario, mode]
        records = None if new.records is None else new.records + (old.records or 0)
        self.books[scenario, mode] = Books(old.accepted + new.accepted, records, old.dropped + new.dropped)


def compare(plan: Plan, console: Console) -> bool:
    """Run `plan`, print tables, write the report. Return whether every request was answered and recorded."""
    cores = Cores.of_this_process()
    os.sched_setaffinity(0, cores.load)  # the load tools inherit this, the servers pin themselves
    console.print(f"{plan.command()}\n{cores}")
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:  # it refreshes itself while a tool runs
        measured = Comparison(plan, cores, progress).run()
    for scenario in plan.scenarios:
        console.print(table(scenario, [row for row in measured if row.scenario == scenario]))
    for line in remarks(measured):
        console.print(line)
    facts = {"command": plan.command(), "cores": str(cores), "machine": machine()}
    page = report.write(plan.out, "Request logging compared", measured, facts, remarks(measured))
    results = {"facts": facts, "rows": [_as_json(row) for row in measured]}
    (plan.out / "results.json").write_text(json.dumps(results, indent=1))
    console.print(f"report: {page}")
    return all(row.books.balanced and not row.failures for row in measured)


def _as_json(row: Row) -> dict[str, Any]:
    parts = {"loads": [load._asdict() for load in row.loads], "books": row.books._asdict()}
    return {
        name: parts.get(name, value.as_json() if isinstance(value, Interval) else value)
        for name, value in row._asdict().items()
    }


def table(scenario: str, measured: list[Row]) -> Table:
    """Return the table of one scenario."""
    heads = ("mode", "req/s", f"÷ {BASE}", "95 %", "CPU µs", f"÷ {BASE}", "p50 ms", "p99 ms", "busy", "records")
    shown = Table(title=f"{scenario}: medians over {len(measured[0].loads)} rounds", title_justify="left")
    for head in heads:
        shown.add_column(head, justify="left" if head in ("mode", "records") else "right", no_wrap=True)
    for row in measured:
        ratio = row.rps_ratio
        rate = (f"{row.rps.value:,.0f}", f"{ratio.value:.3f}", f"{ratio.low:.3f} … {ratio.high:.3f}")
        cost = (f"{row.cpu_us.value:.1f}", f"{row.cpu_ratio.value:.3f}")
        times = (f"{row.p50_ms:.2f}", f"{row.p99_ms:.2f}", f"{row.busy:.0%}")
        style = "bold" if row.mode == "ours" else None
        shown.add_row(row.mode, *rate, *cost, *times, report.books_text(row.books), style=style)
    return shown


def remarks(measured: list[Row]) -> list[str]:
    """Return what has to be known to read the figures."""
    found = []
    for row in measured:
        name = f"{row.scenario}, {row.mode}"
        if row.mode == BASE and not row.saturated:
            found.append(
                f"{name}: the server used {row.busy:.0%} of its core: Locust was the limit, or other work took the "
                "core. Read CPU per request, not req/s."
            )
        if row.failures:
            found.append(f"{name}: {row.failures} requests FAILED")
        if not row.books.balanced:
            found.append(f"{name}: {row.books.accepted} requests, but {row.books.records} records: NOT BALANCED")
        if row.mode == "ours" and row.books.balanced:
            found.append(f"{name}: records arrived = requests accepted = {row.books.accepted:,}")
    return found


def machine() -> str:
    """Return what the figures were taken on, without naming the machine."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {system}, load average at the end {load}"


def wide_console() -> Console:
    """Return a console that does not squeeze the tables where output is not a terminal."""
    console = Console()
    return console if console.width >= TABLE_WIDTH else Console(width=TABLE_WIDTH)


def main() -> None:
    """Read the arguments and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=["trivial", "stream64"])
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), help=f"{BASE} is always among them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="load per mode, scenario and round")
    parser.add_argument("--users", type=int, default=32, help="connections of the closed loop")
    parser.add_argument("--out", type=Path, default=Path("out/compare"))
    given = parser.parse_args()
    modes = tuple(dict.fromkeys([BASE, *given.modes]))
    plan = Plan(tuple(given.scenarios), modes, given.rounds, given.seconds, given.users, given.out)
    try:
        sys.exit(0 if compare(plan, wide_console()) else 1)
    except (LoadError, ServerError) as error:
        sys.exit(f"compare: {error}")


if __name__ == "__main__":
    main()
