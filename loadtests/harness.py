"""What benchmarks share: directories, ports, environments, servers, wrk, records, figures, and the command line.

A figure is the median over interleaved rounds (each round measures every contender, so that a change of the machine's
mood hits all of them alike). Of few rounds the lowest and highest stand beside it, of many its interval of 95 %. A goal
is judged on the median only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import IO, Any, Final, NamedTuple

from inference_logging.prove.bench import machine as bench_machine
from inference_logging.prove.bench.child import memory_directory, scratch_directory
from inference_logging.prove.bench.text import number_text
from inference_logging.read.pages.content import Table
from inference_logging.read.stats.interval import Interval, bootstrap

__all__ = ["memory_directory", "scratch_directory"]

ROOT: Final = Path(__file__).resolve().parent.parent
HOST: Final = "127.0.0.1"
NO_WRK: Final = "not measured: wrk is missing and could not be installed (Debian package: wrk)"


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.create_server((HOST, 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


class Loaded(NamedTuple):
    """What wrk says of a load."""

    requests: int
    per_s: float
    p99_ms: float


def run_wrk(
    wrk: str, url: str, seconds: float, connections: int, script: Path | None = None, core: int | None = None
) -> Loaded:
    """Load ``url``, with a Lua script if one is given, from one core or from any. Raises if a request failed."""
    command = ["taskset", "-c", str(core)] if core is not None else []
    command += [wrk, "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--latency", url]
    command += ["-s", str(script)] if script else []
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = [re.search(pattern, said) for pattern in (r"(\d+) requests in", r"Requests/sec:\s*([\d.]+)")]
    p99 = re.search(r"99%\s+([\d.]+)(us|ms|s|m)\b", said)
    if "Non-2xx" in said or "Socket errors" in said or not (found[0] and found[1] and p99):
        raise RuntimeError(f"wrk saw errors at {url}:\n{said}")
    milliseconds = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}
    return Loaded(int(found[0][1]), float(found[1][1]), float(p99[1]) * milliseconds[p99[2]])


def post_script(directory: Path, body: object) -> Path:
    """Write what lets wrk post ``body`` as JSON."""
    script = directory / "post.lua"
    text = f'wrk.method = "POST"\nwrk.body = [==[{json.dumps(body)}]==]\n'
    script.write_text(text + 'wrk.headers["content-type"] = "application/json"\n', encoding="utf-8")
    return script


def find_wrk() -> str | None:
    """Return the path of wrk; install the Debian package if it is missing and we may."""
    if shutil.which("wrk") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print("wrk is missing: apt-get install wrk", flush=True)
        subprocess.run(["apt-get", "install", "-qq", "-y", "wrk"], stdout=subprocess.DEVNULL, check=False)
    return shutil.which("wrk")


def environment(**settings: object) -> dict[str, str]:
    """Return the caller's environment without its settings of this package, and with these."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("INFERENCE_LOGGING_")}
    return inherited | {f"INFERENCE_LOGGING_{name.upper()}": str(value) for name, value in settings.items()}


@contextmanager
def process(
    command: list[Any], variables: dict[str, str], console: IO[bytes], inherited: Sequence[int] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server, whose console is a file; whatever is left of it and its children is killed."""
    server = subprocess.Popen(
        command, env=variables, stdout=console, stderr=subprocess.STDOUT, start_new_session=True, pass_fds=inherited
    )
    try:
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


class Child:
    """A process that reads and prints lines."""

    def __init__(self, *command: str | Path, said: Path, **options: Any) -> None:
        """Start it in a group of its own, with ``options`` of ``Popen``; ``said`` takes its standard error."""
        with said.open("ab") as errors:
            self._process = subprocess.Popen(
                [str(one) for one in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True, start_new_session=True, **options,
            )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._said, self._name = said, " ".join(map(str, command[1:4]))

    def say(self, text: str) -> None:
        """Write a line to it."""
        print(text, file=self._input, flush=True)

    def hear(self, pattern: str) -> re.Match[str]:
        """Read until a line begins with ``pattern``; raises ``RuntimeError`` if it ends before."""
        for line in self._output:
            if found := re.match(pattern, line):
                return found
        raise self._failure()

    def kill(self) -> None:
        """End it by SIGKILL, if it has not ended, and what is left of its group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.returncode is None:
            self._wait()

    def end(self) -> None:
        """Let it read that nothing more comes, and wait until it has ended; raises ``RuntimeError`` if it fails."""
        self._input.close()
        self._output.read()
        self._wait()
        if self._process.returncode:
            raise self._failure()

    def _wait(self) -> None:
        self._process.wait()
        with suppress(BrokenPipeError):
            self._input.close()
        self._output.close()

    def _failure(self) -> RuntimeError:
        return RuntimeError(f"{self._name} ended: {self._said.read_text(encoding='utf-8')[-1000:]}")


@contextmanager
def listening(
    module: str, options: list[Any], variables: dict[str, str], console: Path
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a module that serves on an inherited socket; give its process and port. Requests wait until it is up."""
    with socket.create_server((HOST, 0), backlog=4096) as listens, console.open("wb") as said:
        command = [sys.executable, "-m", module, "--fd", str(listens.fileno()), *map(str, options)]
        with process(command, variables, said, [listens.fileno()]) as running:
            yield running, listens.getsockname()[1]


def serve(app: Any, fd: int, **options: Any) -> None:
    """Serve ``app`` in this process until SIGTERM: the other end of ``listening``."""
    import uvicorn

    config = uvicorn.Config(app, loop="uvloop", lifespan="on", interface="asgi3", **options)
    # uvicorn raises a signal again once it has shut down; its default action would end us before what follows.
    signal.signal(signal.SIGTERM, lambda *_: None)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=fd)])


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far, all threads."""
    return time.clock_gettime((~pid << 3) | 2)  # the clock of clock_getcpuclockid(3)


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for found in lists for child in found.read_text().split()]


def get(url: str, body: object = None, timeout_s: float = 10.0) -> bytes:
    """Return an answer's body; ``body`` is posted as JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        content: bytes = answer.read()
        return content


def wait_until_up(server: subprocess.Popen[bytes], url: str, patience_s: float, console: Path) -> None:
    """Wait for the first answer; raises ``RuntimeError`` with the end of the console if there is none."""
    patience = time.monotonic() + patience_s
    while True:
        with suppress(OSError):
            get(url)
            return
        if server.poll() is not None or time.monotonic() > patience:
            raise RuntimeError(f"the server did not start:\n{console.read_text(errors='replace')[-3000:]}")
        time.sleep(0.05)


def seconds(work: Callable[[], object]) -> float:
    """Return how long ``work`` takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def segments(logs: Path) -> list[Path]:
    """Return the plain segments below a directory."""
    return [path for path in logs.rglob("*.jsonl") if not path.is_symlink()]


def lines(logs: Path, words: bytes) -> list[bytes]:
    """Return the lines of all segments that have these words."""
    return [line for path in segments(logs) for line in path.read_bytes().splitlines() if words in line]


def check_books(logs: Path, queues: Path, answered: int, records: int) -> None:
    """Raise ``RuntimeError`` unless each answered request has a record, and `inference-logging verify` agrees."""
    if records != answered:
        raise RuntimeError(f"{logs.parent.name}: {answered} requests were answered, and {records} records are there")
    command = [str(Path(sys.executable).with_name("inference-logging")), "verify", str(logs)]
    verify = subprocess.run([*command, "--queue-directory", str(queues)], check=False, capture_output=True, text=True)
    if verify.returncode:
        raise RuntimeError(f"{logs.parent.name}: the books do not balance\n{verify.stdout}")


def parser(description: str | None, *, keeps: bool = False) -> argparse.ArgumentParser:
    """Return a parser with the options that each of these commands has; with ``keeps`` also ``--keep``."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    lengths = made.add_mutually_exclusive_group()
    lengths.add_argument("--quick", action="store_true", help="one short round: shows that it runs")
    if keeps:
        lengths.add_argument("--keep", action="store_true", help="keep the figures in loadtests/results")
    made.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    return made


def measured(
    options: argparse.Namespace, command: str, how: str, measure: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Print where and how is measured, measure, and return what was found; ``--json`` also writes it."""
    seen_on = machine()
    print("  ".join(f"{name}: {value}" for name, value in seen_on.items()))
    print(how + "; QUICK: the figures mean nothing" * options.quick, flush=True)
    found = {"command": command, "machine": seen_on, "quick": options.quick, **measure()}
    print(f"\nload average now {machine()['load average']}")
    write(options.json, found)
    return found


def write(path: Path | None, found: object) -> None:
    """Write what was found for ``--json``, if it was given."""
    if path is not None:
        path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


MANY: Final = 20
"""Rounds from which on a bootstrap's interval means something."""


class Goal(NamedTuple):
    """A bound that a figure keeps: ``<=`` or ``>=`` with a number in the figure's unit."""

    sense: str
    bound: float

    def is_reached(self, value: float) -> bool:
        """Return whether ``value`` is on the right side of the bound."""
        return value <= self.bound if self.sense == "<=" else value >= self.bound

    def verdict(self, value: float) -> str:
        """Return the goal and the mark."""
        sign = "≤" if self.sense == "<=" else "≥"
        return f"goal {sign} {self.bound:g}: {'reached' if self.is_reached(value) else 'NOT REACHED'}"


class Figure(NamedTuple):
    """One measured number: the median of its rounds, their spread, and the goal if there is one."""

    name: str
    unit: str
    rounds: Sequence[float]
    goal: Goal | None = None

    @property
    def found(self) -> Interval:
        """The median round, with its interval, or the lowest and highest round."""
        if len(self.rounds) >= MANY:
            return bootstrap(self.rounds)
        return Interval(median(self.rounds), min(self.rounds), max(self.rounds))

    def cells(self) -> tuple[str, ...]:
        """Return the row of the report's table."""
        value, low, high = self.found.as_json().values()
        spread = f"({number_text(low)} … {number_text(high)})" if len(self.rounds) > 1 else ""
        verdict = self.goal.verdict(value) if self.goal else ""
        return self.name, f"{number_text(value)} {self.unit}".rstrip(), spread, verdict

    def as_json(self) -> dict[str, Any]:
        """Return the figure for the file of ``--json``."""
        goal = self.goal._asdict() if self.goal else None
        value, low, high = self.found.as_json().values()
        reached = self.goal.is_reached(value) if self.goal else None
        rounds = {"median": value, "low": low, "high": high, "rounds": len(self.rounds)}
        return {"name": self.name, "unit": self.unit, **rounds, "goal": goal, "reached": reached}


@dataclass
class Report:
    """What one section found: figures in the order of their lines, and remarks that belong beside them."""

    title: str
    figures: list[Figure] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, name: str, unit: str, rounds: Iterable[float], goal: Goal | None = None) -> None:
        """Add a figure."""
        self.figures.append(Figure(name, unit, [float(value) for value in rounds], goal))

    def print(self) -> None:
        """Print title, figures and remarks."""
        heads = ("", "median", "rounds", "verdict")
        remarks = "\n".join(f"  - {remark}" for remark in self.remarks)
        table = Table(f"\n{self.title}", heads, [figure.cells() for figure in self.figures], remarks)
        print(table.text(), flush=True)

    def as_json(self) -> dict[str, Any]:
        """Return the section for the file of ``--json``."""
        figures = [figure.as_json() for figure in self.figures]
        return {"title": self.title, "figures": figures, "remarks": self.remarks}


def sections(reports: Iterable[Report]) -> list[dict[str, Any]]:
    """Print each report as it comes, and return all for the file of ``--json``."""
    found = []
    for report in reports:
        report.print()
        found.append(report.as_json())
    return found


def at_most(bound: float) -> Goal:
    """Return the goal of being at or below ``bound``."""
    return Goal("<=", bound)


def at_least(bound: float) -> Goal:
    """Return the goal of being at or above ``bound``."""
    return Goal(">=", bound)


def ratios(above: Iterable[float], below: Iterable[float]) -> list[float]:
    """Divide the figures of the same round: a ratio is taken within a round, never between medians."""
    return [one / other for one, other in zip(above, below, strict=True)]


def machine() -> dict[str, str]:
    """Return what is known about the machine, the interpreter's build and the load among it, as text."""
    place = bench_machine.machine()
    load = " ".join(f"{value:.2f}" for value in place.pop("load"))  # type: ignore[misc]
    python = f"{place['python']}, {_build()}"
    return {name: str(value) for name, value in place.items()} | {"python": python, "load average": load}


def _build() -> str:
    if "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        return "built with PGO (--enable-optimizations)"
    # Debian profiles in its own rules, of which the interpreter knows nothing.
    if sys.base_prefix == "/usr" and Path("/etc/debian_version").exists():
        return "Debian's build, which has PGO"
    return "built without PGO"
