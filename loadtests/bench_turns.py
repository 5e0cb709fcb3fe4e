"""What logging costs, by turns within one process: ``make bench-turns``.

    python loadtests/bench_turns.py [inside] [uvicorn] [--seconds S] [--processes N] [--quick | --keep] [--json PATH]

Two processes of one program can differ by some percent for their whole life, and a shared machine has moods; logging
costs less than either. So one process serves the same application in three arms that take turns: without logging,
with the middleware in its default configuration, and without logging once more. A slice is 64 consecutive requests (16
of streams) for one arm; a block is one slice of each, in random order. The CPU clock of the thread that runs the event
loop is read between slices. *unlogged ÷ logged* is the ratio of CPU times within a block, and *added* the difference
per request: trimmed means over blocks (a tenth at either end left out) with bootstrap intervals of 95 %. *control* is
the ratio between the two arms without logging. If its interval does not hold 1, or is wider than the goal is away from
1, the row is *not measured*.

A process ends as soon as both ratios are known to ±0.3 %, or with its share of the time limit. One after the other,
several are measured, since what logging costs differs from process to process a little: a row is their mean with
Student's interval.

``inside``: applications are awaited with hand-made scopes, no server. ``uvicorn``: a process on one core, which ``wrk``
loads from another one over one connection, so slices are exact; with more connections a slice ends where its last
request reaches the application, while the server has read parts of others. Python's garbage collector runs, but what
was there before the measurement is frozen. The listener is a thread on the same core: what it takes is not in the loop
thread's clock, but it is in the caches of all arms; its own CPU time for a record stands beside.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench_loggers import scratch_directory
from bench_turns_inside import inside
from bench_turns_report import LEAST_BLOCKS, Case, ChunkRow, Row, head, place
from bench_uvicorn import HOST, START_S, STOP_S, find_wrk, run_wrk
from results import keep

LIMIT_S: Final = 90
PROCESSES: Final = 6
RUN_S: Final = 5
"""How long wrk runs before the blocks are looked at."""

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
    "/stream64": Case("uvicorn, stream of 64", 16, least_ratio=0.985),
}


@dataclass(frozen=True)
class Load:
    """How the server is loaded."""

    wrk: str
    connections: int
    limit_s: float
    processes: int


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

    def measure(self, load: Load, route: str, case: Case) -> Row:
        """Load one route until its row is precise, or the limit is reached."""
        url, script = self.target(route)
        run_wrk(load.wrk, url, 1, load.connections, script)  # warms caches and the connection handling
        before = self.ask(f"restart?{case.requests}")
        start, limit_s = time.monotonic(), load.limit_s / load.processes
        while True:
            left_s = limit_s - (time.monotonic() - start)
            run_wrk(load.wrk, url, max(1, round(min(RUN_S, left_s))), load.connections, script)
            now = self.ask("pause")
            if len(now["blocks"]) < LEAST_BLOCKS:
                continue
            records = now["written"] - before["written"]
            listener_us = (now["listener_s"] - before["listener_s"]) / records * 1e6
            row = Row.of(case, [tuple(block) for block in now["blocks"]], listener_us)
            if row.is_precise or time.monotonic() - start + 1 >= limit_s:
                return row

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
def running(clock: str = "thread") -> Iterator[Server]:
    """Run the server on the first core; ``clock``: whose CPU time a slice is, as the server has it."""
    with scratch_directory() as directory, socket.create_server((HOST, 0), backlog=1024) as listening:
        server = Path(__file__).resolve().parent / "bench_turns_server.py"
        options = ["--fd", str(listening.fileno()), "--core", str(min(os.sched_getaffinity(0))), "--clock", clock]
        with (directory / "console.log").open("wb") as console:
            process = subprocess.Popen(
                [sys.executable, str(server), *options, "--directory", str(directory / "log")],
                pass_fds=[listening.fileno()],
                stdout=console,
                stderr=subprocess.STDOUT,
            )
        try:
            yield Server(process, listening.getsockname()[1], directory)
        finally:
            process.kill()
            process.wait()


def uvicorn(load: Load) -> list[Row | ChunkRow]:
    """Measure the three routes of a real server."""
    rows: list[Row | ChunkRow] = []
    for route, case in ROUTES.items():
        rows.append(Row.across([_measure(load, route, case) for _ in range(load.processes)]))
        show(rows[-1])
    return rows


def _measure(load: Load, route: str, case: Case) -> Row:
    with running() as server:
        row = server.measure(load, route, case)
        server.stop()
    return row


def show(row: Row | ChunkRow) -> None:
    """Print a row as soon as it is known."""
    print(row.line(), flush=True)


def main() -> None:
    """Measure what was asked for, and print it."""
    options = _options()
    seen_on = place()
    print("  ".join(f"{name}: {value}" for name, value in seen_on.items()))
    print("garbage collector: on, what was there before is frozen", end="")
    print("; QUICK: short, the figures mean nothing" if options.quick else "")
    print(f"\n{head()}", flush=True)
    limit_s = 0.2 if options.quick else options.seconds
    processes = 1 if options.quick else options.processes
    rows = inside(limit_s, processes, show) if "inside" in options.parts else []
    if "uvicorn" in options.parts:
        wrk = find_wrk()
        if wrk is None:
            print("uvicorn: not measured: wrk is missing and could not be installed (Debian package: wrk)")
        else:
            rows += uvicorn(Load(wrk, options.connections, limit_s, processes))
    found = {
        "machine": seen_on,
        "quick": options.quick,
        "connections": options.connections,
        "rows": [row.as_json() for row in rows],
    }
    if options.keep:
        print(f"kept in {keep('turns', found)}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ["inside", "uvicorn"]
    parser.add_argument("parts", nargs="*", choices=[*parts, "all"], default="all", metavar="PART")
    parser.add_argument("--seconds", type=float, default=LIMIT_S, help=f"time limit of a row; {LIMIT_S} unless given")
    parser.add_argument("--processes", type=int, default=PROCESSES, help=f"for a row; {PROCESSES} unless given")
    parser.add_argument("--connections", type=int, default=1, help="of wrk; 1 unless given")
    lengths = parser.add_mutually_exclusive_group()
    lengths.add_argument("--quick", action="store_true", help="short: shows that it runs, measures nothing")
    lengths.add_argument("--keep", action="store_true", help="keep the figures in loadtests/results")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write what was found to this file")
    options = parser.parse_args()
    if "all" in options.parts:
        options.parts = parts
    if options.keep and set(options.parts) != set(parts):
        parser.error(f"--keep with {' '.join(options.parts)}: only the result of all parts is kept")
    return options


if __name__ == "__main__":
    main()
