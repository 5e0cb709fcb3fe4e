"""What logging costs a real server: requests per second and CPU time per request, as ratios to no logging.

The server under test is loadtests/server.py: FastAPI on uvicorn with httptools and uvloop, one worker, pinned to one
core together with our listener thread; ``wrk`` is pinned to another core and drives it over loopback, 32 connections
that are kept open. A round starts new servers of all modes, since two processes of one program can differ by some
percent for their whole life, and loads one at a time, in an order that rotates from round to round. Two of them have no
logging: ``none`` is the mean of both in the round, and their ratio, ``control``, shows what noise looks like. CPU time
is the server process's own (all threads), read from the kernel's process clock before and after each load.

``trivial``: a few bytes. ``stream64``: 64 server-sent events, timeline on. Uvicorn's access log
stands beside for scale. What the listener takes from the server's core is in these figures; what the request path
costs is measured more finely within one process (`bench_turns`). At the end our records are counted: as many as
requests that reached the application.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from operator import truediv
from pathlib import Path

from bench_loggers import memory_directory, scratch_directory
from bench_report import Report, at_least, pairwise

HOST = "127.0.0.1"
CONNECTIONS = 32
ROUTES = ("/trivial", "/stream64")
MODES = {"none": "none", "ours": "ours", "control": "none", "uvicorn-access": "uvicorn-access"}
"""The servers of a round, and the mode of `server.py` that each runs in."""
START_S = 30.0
STOP_S = 60.0


@dataclass(frozen=True)
class Load:
    """What one load gave: requests per second, and CPU time of the server per request."""

    requests_per_s: float
    cpu_us: float


Loads = dict[str, dict[str, list[Load]]]


@dataclass(frozen=True)
class Server:
    """One server under test, running."""

    mode: str
    process: subprocess.Popen[bytes]
    port: int
    directory: Path

    def load(self, wrk: str, route: str, seconds: int) -> Load:
        """Load one route for some seconds."""
        before = self.cpu_s()
        requests, rate = run_wrk(wrk, f"http://{HOST}:{self.port}{route}", seconds)
        return Load(rate, (self.cpu_s() - before) / requests * 1e6)

    def cpu_s(self) -> float:
        """Return the CPU time of the process so far (the clock of clock_getcpuclockid(3), in nanoseconds)."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def wait_until_up(self) -> None:
        """Wait for the first answer."""
        patience = time.monotonic() + START_S
        while not _answers(f"http://{HOST}:{self.port}/trivial"):
            if self.process.poll() is not None or time.monotonic() > patience:
                raise RuntimeError(f"the server did not start: {self.mode}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the server as an orchestrator does, and wait for its drain."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_S)


def uvicorn(quick: bool) -> Report:
    """Measure the cost of logging in a real server."""
    report = Report(f"uvicorn: FastAPI, httptools, uvloop, one worker, {CONNECTIONS} connections, ratios to no logging")
    wrk = find_wrk()
    if wrk is None:
        report.remarks.append("NOT MEASURED: wrk is missing and could not be installed (Debian package: wrk)")
        return report
    rounds, seconds = (1, 1) if quick else (9, 3)
    loads: Loads = {route: {mode: [] for mode in MODES} for route in ROUTES}
    accepted = sum(_round(loads, wrk, number, seconds) for number in range(rounds))
    for route in ROUTES:
        _add_figures(report, route, loads[route])
    report.remarks.append(
        f"{accepted:,} requests reached the application of ours, and as many records are in its segments"
    )
    return report


def _round(loads: Loads, wrk: str, number: int, seconds: int) -> int:
    turned = deque(MODES)
    turned.rotate(number)
    with scratch_directory() as directory, ExitStack() as stack:
        servers = {mode: stack.enter_context(running(mode, directory / mode)) for mode in turned}
        for route in ROUTES:
            for server in servers.values():
                server.load(wrk, route, 1)  # warms caches and the connection handling
            for server in servers.values():
                loads[route][server.mode].append(server.load(wrk, route, seconds))
        for server in servers.values():
            server.stop()
        return _check_records(servers["ours"])


def _add_figures(report: Report, route: str, loads: dict[str, list[Load]]) -> None:
    none = [_mean(pair) for pair in zip(loads["none"], loads["control"], strict=True)]
    report.add(f"{route}: no logging", "req/s", (load.requests_per_s for load in none))
    control = pairwise(truediv, _rates(loads["control"]), _rates(loads["none"]))
    report.add(f"{route}: control, one without logging ÷ the other", "×", control)
    for mode in ("ours", "uvicorn-access"):
        rates = pairwise(truediv, _rates(loads[mode]), _rates(none))
        costs = pairwise(truediv, (one.cpu_us for one in loads[mode]), (one.cpu_us for one in none))
        report.add(f"{route}: {mode} ÷ none, req/s", "×", rates, at_least(0.985) if mode == "ours" else None)
        report.add(f"{route}: {mode} ÷ none, CPU per request", "×", costs)
        report.add(f"{route}: {mode}, CPU per request", "µs", (one.cpu_us for one in loads[mode]))
    report.add(f"{route}: none, CPU per request", "µs", (one.cpu_us for one in none))


def _rates(loads: list[Load]) -> list[float]:
    return [load.requests_per_s for load in loads]


def _mean(loads: tuple[Load, Load]) -> Load:
    one, other = loads
    return Load((one.requests_per_s + other.requests_per_s) / 2, (one.cpu_us + other.cpu_us) / 2)


@contextmanager
def running(mode: str, directory: Path) -> Iterator[Server]:
    """Run a server on the first core; its console (where the access log goes) is a file in ``directory``."""
    directory.mkdir()
    with (
        scratch_directory(memory_directory()) as queues,
        socket.create_server((HOST, 0), backlog=1024) as listening,
        (directory / "console.log").open("wb") as console,
    ):
        port = listening.getsockname()[1]
        process = subprocess.Popen(
            _command(mode, listening.fileno(), directory),
            pass_fds=[listening.fileno()],
            stdout=console,
            stderr=subprocess.STDOUT,
            env={**os.environ, "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(queues)},
        )
        server = Server(mode, process, port, directory)
        try:
            server.wait_until_up()
            yield server
        finally:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(answer.read())
    except OSError:
        return False


def _command(mode: str, fd: int, directory: Path) -> list[str]:
    server = Path(__file__).resolve().parent / "server.py"
    options = ["--mode", MODES[mode], "--fd", str(fd), "--core", str(min(os.sched_getaffinity(0)))]
    files = ["--directory", str(directory / "log"), "--counts", str(directory / "counts.json")]
    return [sys.executable, str(server), *options, *files]


def run_wrk(
    wrk: str, url: str, seconds: int, connections: int = CONNECTIONS, script: Path | None = None
) -> tuple[int, float]:
    """Load ``url`` from the last core, with a Lua script if one is given; return requests and requests per second."""
    cores = os.sched_getaffinity(0)
    load_core = str(max(cores))
    command = ["taskset", "-c", load_core, wrk, "-t1", f"-c{connections}", f"-d{seconds}s", url]
    command += ["-s", str(script)] if script else []
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in output or "Socket errors" in output:
        raise RuntimeError(f"wrk saw errors:\n{output}")
    requests = re.search(r"(\d+) requests in", output)
    rate = re.search(r"Requests/sec:\s*([\d.]+)", output)
    if not requests or not rate:
        raise RuntimeError(f"wrk's answer was not understood:\n{output}")
    return int(requests[1]), float(rate[1])


def _check_records(server: Server) -> int:
    accepted: int = json.loads((server.directory / "counts.json").read_text(encoding="utf-8"))["accepted"]
    mark = b'"event_name":"request"'
    segments = [path for path in (server.directory / "log").glob("*.jsonl") if not path.is_symlink()]
    records = sum(path.read_bytes().count(mark) for path in segments)
    if records != accepted:
        raise RuntimeError(f"{accepted} requests reached the application, but {records} records are in the segments")
    return accepted


def find_wrk() -> str | None:
    """Return the path of wrk; install the Debian package if it is missing and we may."""
    if shutil.which("wrk") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print("wrk is missing: apt-get install wrk", flush=True)
        subprocess.run(["apt-get", "install", "-qq", "-y", "wrk"], stdout=subprocess.DEVNULL, check=False)
    return shutil.which("wrk")
