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
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from loadtests.compare import report
from loadtests.compare.load import SATURATED, SCENARIOS, WARM_UP_REQUESTS, Load, LoadError, drive
from loadtests.compare.measure import CONTROL, Books, Cores, ServerError, serving
from loadtests.compare.report import BASE, Row, Rows
from loadtests.cost.bench_report import machine

MODES: Final = (BASE, "uvicorn-access", "stdlib-file", "stdlib-queue", "ours", CONTROL)


class Plan(NamedTuple):
    """What to run."""

    scenarios: tuple[str, ...]
    modes: tuple[str, ...]
    rounds: int
    seconds: float
    users: int
    out: Path


def compare(plan: Plan) -> bool:
    """Run ``plan``, print tables, write the report. Return whether every request was answered and recorded."""
    cores = Cores.of_this_process()
    os.sched_setaffinity(0, cores.load)  # the load tools inherit this, the servers pin themselves
    command = shlex.join(["python", "-m", "loadtests.compare.compare", *sys.argv[1:]])
    print(f"{command}\n{cores}", flush=True)
    measured = measure(plan, cores)
    notes = list(remarks(measured))
    for scenario, rows in measured.items():
        print(f"\n{report.table(scenario, rows).text()}")
    facts = {"command": command, "cores": str(cores), **machine()}
    print("", *notes, f"report: {report.write(plan.out, measured, facts, notes)}", sep="\n")
    return all(row.books.balanced and not row.failures for rows in measured.values() for row in rows)


def measure(plan: Plan, cores: Cores) -> Rows:
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
        sys.exit(0 if compare(plan) else 1)
    except (LoadError, ServerError) as error:
        sys.exit(f"compare: {error}")


if __name__ == "__main__":
    main()
