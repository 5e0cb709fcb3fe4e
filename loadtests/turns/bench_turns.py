"""What logging costs, by turns within one process: ``make bench-turns``.

    python -m loadtests.turns.bench_turns [inside] [uvicorn] [--seconds S] [--processes N] [--quick | --keep]

Two processes of one program can differ by some percent for their whole life, and a shared machine has moods; logging
costs less than either. So one process serves the same application in arms that take turns. A slice is some
consecutive requests for one arm; a block is one slice of each, in random order. The CPU clock of the thread that
runs the event loop is read between slices.

``uvicorn``: what each of several packages adds, and the thinnest wrapper that can note anything (`bench_turns_arms`),
as multiples of what the latter adds (`bench_turns_peers`). The control is the thinnest wrapper once more: where its
interval does not hold 1, something else was measured. A process on one core, which ``wrk`` loads from another one over
one connection, so slices are exact.

``inside``: applications are awaited with hand-made scopes, without a server, in three arms: without logging, with the
middleware in its default configuration, and without logging once more. *unlogged ÷ logged* is the ratio of CPU times
within a block, and *added* the difference per request: trimmed means over blocks (a tenth at either end left out) with
bootstrap intervals of 95 %. *control* is the ratio between the two arms without logging. If its interval does not hold
1, or is wider than the goal is away from 1, the row is *not measured*. A process ends as soon as both ratios are known
to ±0.3 %, or with its share of the time limit. A row is the mean of several processes with Student's interval.

Python's garbage collector runs, but what was there before the measurement is frozen. The listener is a thread on the
same core: what it takes is not in the loop thread's clock, but it is in the caches of all arms.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loadtests.cost.bench_loggers import memory_directory, scratch_directory
from loadtests.results import keep
from loadtests.turns.bench_turns_arms import COMPARED
from loadtests.turns.bench_turns_inside import inside
from loadtests.turns.bench_turns_peers import Workload
from loadtests.turns.bench_turns_report import LEAST_BLOCKS, Case, ChunkRow, Row, head, place
from loadtests.turns.bench_turns_slices import Block
from loadtests.turns.wrk import HOST, find_wrk, run_wrk

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
    "/trivial": Case("uvicorn, GET of a few bytes", least_ratio=0.970),
    "/v1/chat/completions": Case("uvicorn, POST of JSON", least_ratio=0.975),
    "/stream64": Case("uvicorn, stream of 64", 8, least_ratio=0.985),
    "/work": Case("uvicorn, 1 ms of work", 8),
}


@dataclass(frozen=True)
class Load:
    """How the server is loaded."""

    wrk: str
    connections: int
    limit_s: float
    processes: int
    least_blocks: int = LEAST_BLOCKS


@dataclass(frozen=True)
class Server:
    """The process that serves all arms, running."""

    process: subprocess.Popen[bytes]
    port: int
    directory: Path

    def ask(self, question: str) -> dict[str, Any]:
        """Restart or pause the measurement, and return what there is of it."""
        with urllib.request.urlopen(f"http://{HOST}:{self.port}/turns/{question}", timeout=START_S) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def measure(self, load: Load, route: str, case: Case) -> list[Block]:
        """Load one route for its share of the time, and return the blocks."""
        url, script = self.target(route)
        run_wrk(load.wrk, url, 1, load.connections, script)  # warms caches and the connection handling
        self.ask(f"restart?{case.requests}")
        blocks: list[Block] = []
        seconds = max(1, round(load.limit_s / load.processes))
        while len(blocks) < load.least_blocks:
            run_wrk(load.wrk, url, seconds, load.connections, script)
            blocks = [tuple(block) for block in self.ask("pause")["blocks"]]
            seconds *= 2
        return blocks

    def target(self, route: str) -> tuple[str, Path | None]:
        """Return the address of a route, and the script with which wrk asks it."""
        return f"http://{HOST}:{self.port}{route}", self._script(route)

    def _script(self, route: str) -> Path | None:
        if not route.startswith("/v1/"):
            return None
        script = self.directory / "post.lua"
        lines = (
            'wrk.method = "POST"',
            f"wrk.body = [==[{json.dumps(ASK)}]==]",
            'wrk.headers["content-type"] = "application/json"',
        )
        script.write_text("\n".join(lines), encoding="utf-8")
        return script

    def stop(self) -> None:
        """End the server; raise if it found requests without a record."""
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(STOP_S):
            raise RuntimeError(f"the server failed:\n{(self.directory / 'console.log').read_text(errors='replace')}")


@contextmanager
def running(arms: Sequence[str], clock: str = "thread") -> Iterator[Server]:
    """Run the server with these arms on the first core; ``clock``: whose CPU time a slice is, as the server has it."""
    with scratch_directory(memory_directory()) as directory, socket.create_server((HOST, 0), backlog=1024) as listening:
        options = ["--fd", str(listening.fileno()), "--core", str(min(os.sched_getaffinity(0))), "--clock", clock]
        with (directory / "console.log").open("wb") as console:
            process = subprocess.Popen(
                [sys.executable, "-m", SERVER, *options, "--directory", str(directory / "log"), *arms],
                pass_fds=[listening.fileno()],
                stdout=console,
                stderr=subprocess.STDOUT,
            )
        try:
            yield Server(process, listening.getsockname()[1], directory)
        finally:
            process.kill()
            process.wait()


def uvicorn(load: Load) -> list[Workload]:
    """Measure what each arm adds to the requests of a real server."""
    found: dict[str, list[list[Block]]] = {route: [] for route in ROUTES}
    for _ in range(load.processes):
        with running(COMPARED) as server:
            for route, case in ROUTES.items():
                found[route].append(server.measure(load, route, case))
            server.stop()
    return [Workload.of(case, found[route]) for route, case in ROUTES.items()]


def show(row: Row | ChunkRow) -> None:
    """Print a row as soon as it is known."""
    print(row.line(), flush=True)


def main() -> None:
    """Measure what was asked for, and print it."""
    options = _options()
    seen_on = place()
    print("  ".join(f"{name}: {value}" for name, value in seen_on.items()))
    print("garbage collector: on, what was there before is frozen", end="")
    print("; QUICK: short, the figures mean nothing" if options.quick else "", flush=True)
    about = {"machine": seen_on, "quick": options.quick, "connections": options.connections}
    limit_s = 0.2 if options.quick else options.seconds
    processes = 1 if options.quick else options.processes
    found: dict[str, list[dict[str, Any]]] = {}
    if "inside" in options.parts:
        print(f"\n{head()}", flush=True)
        found["inside"] = [row.as_json() for row in inside(limit_s, processes, show)]
    if "uvicorn" in options.parts:
        found["turns"] = _served(options, limit_s, processes)
    if options.keep:
        for name, rows in found.items():
            print(f"kept in {keep(name, {**about, 'rows': rows})}")
    if options.json:
        written = {**about, "rows": [row for rows in found.values() for row in rows]}
        options.json.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _served(options: argparse.Namespace, limit_s: float, processes: int) -> list[dict[str, Any]]:
    wrk = find_wrk()
    if wrk is None:
        print("uvicorn: not measured: wrk is missing and could not be installed (Debian package: wrk)")
        return []
    workloads = uvicorn(Load(wrk, options.connections, limit_s, processes, 2 if options.quick else LEAST_BLOCKS))
    for one in workloads:
        print(one.text())
    return [peer.as_json() for one in workloads for peer in one.peers]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ["inside", "uvicorn"]
    parser.add_argument("parts", nargs="*", choices=[*parts, "all"], default="all", metavar="PART")
    parser.add_argument(
        "--seconds",
        type=float,
        default=LIMIT_S,
        help=f"of a row or kind of request; {LIMIT_S} unless given",
    )
    parser.add_argument(
        "--processes", type=int, default=PROCESSES, help=f"one after the other; {PROCESSES} unless given"
    )
    parser.add_argument("--connections", type=int, default=1, help="of wrk; 1 unless given")
    lengths = parser.add_mutually_exclusive_group()
    lengths.add_argument("--quick", action="store_true", help="short: shows that it runs, measures nothing")
    lengths.add_argument("--keep", action="store_true", help="keep the figures in loadtests/results")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write what was found to this file")
    options = parser.parse_args()
    if "all" in options.parts:
        options.parts = parts
    return options


if __name__ == "__main__":
    main()
