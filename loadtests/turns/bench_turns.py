"""What logging costs, by turns within one process: ``make bench-turns``.

    python -m loadtests.turns.bench_turns [inside] [uvicorn] [--seconds S] [--processes N] [--quick | --keep]

Two processes of one program can differ by some percent for their whole life; logging costs less. So one process serves
the same application in arms that take turns: a slice is some consecutive requests for one arm, a block is one slice of
each, in random order. The CPU clock of the thread that runs the event loop is read between slices. ``uvicorn``: each
of several packages in a server that wrk loads; ``inside``: awaited without a server. loadtests/README.md says more.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from loadtests import harness
from loadtests.harness import HOST, memory_directory, scratch_directory
from loadtests.results import keep
from loadtests.turns.bench_turns_arms import COMPARED
from loadtests.turns.bench_turns_inside import inside
from loadtests.turns.bench_turns_rows import LEAST_BLOCKS, Block, Case, rows_of, table

SERVER: Final = "loadtests.turns.bench_turns_server"
LIMIT_S: Final = 60
START_S: Final = 30.0
STOP_S: Final = 60.0
PROCESSES: Final = 4

ASK: Final = {
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "messages": [
        {"role": "system", "content": "You are a helpful assistant that answers in two or three short sentences."},
        {"role": "user", "content": "What is a ring buffer, and why is nothing ever moved in one?"},
    ],
    "max_tokens": 256,
    "temperature": 0.7,
    "stream": False,
}
ROUTES: Final = {
    "/trivial": Case("uvicorn, GET of a few bytes", most_times=1.4),
    "/v1/chat/completions": Case("uvicorn, POST of JSON", most_times=2.0),
    "/stream64": Case("uvicorn, stream of 64", 8, most_times=0.8),
    "/work": Case("uvicorn, 1 ms of work", 8),
}


class Load(NamedTuple):
    """How the server is loaded."""

    wrk: str
    connections: int
    limit_s: float
    processes: int
    least_blocks: int = LEAST_BLOCKS

    def on(self, url: str, seconds: float, script: Path | None) -> None:
        """Load ``url`` from the last core."""
        core = max(os.sched_getaffinity(0))
        harness.run_wrk(self.wrk, url, max(1, round(seconds)), self.connections, script, core)


class Server(NamedTuple):
    """The process that serves all arms, running."""

    process: subprocess.Popen[bytes]
    port: int
    directory: Path

    def ask(self, question: str) -> dict[str, Any]:
        """Restart or pause the measurement, and return what there is of it."""
        found: dict[str, Any] = json.loads(harness.get(f"http://{HOST}:{self.port}/turns/{question}", None, START_S))
        return found

    def measure(self, load: Load, route: str, case: Case) -> list[Block]:
        """Load one route for its share of the time, or until there are enough blocks; return these."""
        url = f"http://{HOST}:{self.port}{route}"
        script = harness.post_script(self.directory, ASK) if route.startswith("/v1/") else None
        load.on(url, 1, script)  # warms caches and the connection handling
        self.ask(f"restart?{case.requests}")
        seconds = load.limit_s / load.processes
        while True:
            load.on(url, seconds, script)
            found = self.ask("pause")
            if len(found["blocks"]) >= load.least_blocks:
                return [tuple(block) for block in found["blocks"]]
            seconds = max(1, 2 * seconds)

    def stop(self) -> None:
        """End the server; raise if it found requests without a record."""
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(STOP_S):
            raise RuntimeError(f"the server failed:\n{(self.directory / 'console.log').read_text(errors='replace')}")


@contextmanager
def running(arms: Sequence[str], clock: str = "thread") -> Iterator[Server]:
    """Run the server with these arms on the first core; ``clock``: whose CPU time a slice is, as the server has it."""
    with scratch_directory(memory_directory()) as directory:
        options = ["--core", min(os.sched_getaffinity(0)), "--clock", clock, "--directory", directory / "log", *arms]
        with harness.listening(SERVER, options, dict(os.environ), directory / "console.log") as (process, port):
            yield Server(process, port, directory)


def uvicorn(load: Load) -> list[dict[str, Any]]:
    """Measure what each arm adds to the requests of a real server."""
    found: dict[str, list[list[Block]]] = {route: [] for route in ROUTES}
    for _ in range(load.processes):
        with running(COMPARED) as server:
            for route, case in ROUTES.items():
                found[route].append(server.measure(load, route, case))
            server.stop()
    return [row for route, case in ROUTES.items() for row in rows_of(case, found[route])]


def main() -> None:
    """Measure what was asked for, and print it."""
    options = _options()
    limit_s, processes = (0.2, 1) if options.quick else (options.seconds, options.processes)

    def measure() -> dict[str, Any]:
        found: dict[str, list[dict[str, Any]]] = {}
        if "inside" in options.parts:
            found["inside"] = inside(limit_s, processes)
        wrk = harness.find_wrk() if "uvicorn" in options.parts else None
        if wrk is not None:
            least_blocks = 2 if options.quick else LEAST_BLOCKS
            found["turns"] = uvicorn(Load(wrk, 1, limit_s, processes, least_blocks))
        elif "uvicorn" in options.parts:
            print(f"uvicorn: {harness.NO_WRK}")
        for name, rows in found.items():
            print(f"\n{table(name, rows)}")
        return {"parts": found}

    found = harness.measured(
        options, "make bench-turns", "what was there before is out of the garbage collector", measure
    )
    for name, rows in found.pop("parts").items() if options.keep else ():
        print(f"kept in {keep(name, {**found, 'rows': rows})}")


def _options() -> argparse.Namespace:
    parser = harness.parser(__doc__, keeps=True)
    parts = ["inside", "uvicorn"]
    parser.add_argument("parts", nargs="*", choices=[*parts, "all"], default="all", metavar="PART")
    words = f"of a row or kind of request; {LIMIT_S} unless given"
    parser.add_argument("--seconds", type=float, default=LIMIT_S, help=words)
    parser.add_argument(
        "--processes", type=int, default=PROCESSES, help=f"one after the other; {PROCESSES} unless given"
    )
    options = parser.parse_args()
    if "all" in options.parts:
        options.parts = parts
    return options


if __name__ == "__main__":
    main()
