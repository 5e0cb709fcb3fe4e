"""Run the server under test in a process of its own, load it by Locust, and read what it cost: CPU, requests, records.

The count of requests comes from a counter in front of the app, the count of records from the files that are left once
the process has ended, so neither can hide what the other one lost.

A load that is slower than the server measures itself. `Load.busy` shows that: it is the share of a core that the server
used, and req/s says something about the server only where that is close to 1.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from loadtests import harness
from loadtests.harness import HOST

COUNTS = "counts.json"
SATURATED = 0.9
WARM_UP_REQUESTS = 200
DEADLINE_S = 30.0
CONTROL = "control"
"""A second server without logging: how far it is from the first one is what the method cannot see."""


class Cores(NamedTuple):
    """Which cores the server and the load run on."""

    server: int
    load: tuple[int, ...]

    @classmethod
    def of_this_process(cls) -> Cores:
        """Give the last core to the server (the first one tends to get the kernel's chores), the others to the load."""
        usable = sorted(os.sched_getaffinity(0))
        return cls(usable[-1], tuple(usable[:-1] or usable))

    def __str__(self) -> str:
        """Say where things run, and what to make of it on one core."""
        if self.server in self.load:
            return (
                f"one core only (core {self.server}): server and load share it, so req/s includes the load's own work"
            )
        return f"server on core {self.server}, load on core {', '.join(map(str, self.load))}"


class Books(NamedTuple):
    """What a server that has ended leaves behind; `records` is None for a mode that writes none."""

    accepted: int
    records: int | None

    @property
    def balanced(self) -> bool:
        """Whether every accepted request has its record."""
        return self.records is None or self.records == self.accepted

    def after(self, before: Books | None) -> Books:
        """Return both together."""
        records = None if self.records is None else self.records + ((before and before.records) or 0)
        return Books(self.accepted + (before.accepted if before else 0), records)

    def __str__(self) -> str:
        """Return the comparison of requests and records in words."""
        if self.records is None:
            return f"none; {self.accepted:,} requests"
        return f"{self.records:,} {'=' if self.balanced else '≠'} {self.accepted:,}"


class ServerError(RuntimeError):
    """The server under test could not be started or stopped; the message holds the end of its output."""


@contextmanager
def serving(mode: str, directory: Path, core: int) -> Iterator[ServerUnderTest]:
    """Run ``loadtests/compare/server.py`` in `mode`, its log in `directory`, on `core`.

    What an earlier run left in `directory` is removed. Raises ``ServerError`` if anything else is in there.
    """
    output, mode = directory / "server.out", "none" if mode == CONTROL else mode
    if directory.is_dir() and any(directory.iterdir()):
        if not output.is_file():
            raise ServerError(f"{directory} is not empty and not from an earlier run: choose another --out")
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    options = ["--mode", mode, "--core", core, "--directory", directory, "--counts", directory / COUNTS]
    with harness.scratch_directory(harness.memory_directory()) as queues:
        variables = {**os.environ, "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(queues)}
        with harness.listening("loadtests.compare.server", options, variables, output) as (process, port):
            yield ServerUnderTest(mode, directory, process, port)


class ServerUnderTest(NamedTuple):
    """One server process."""

    mode: str
    directory: Path
    process: subprocess.Popen[bytes]
    port: int

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://{HOST}:{self.port}"

    def request(self, path: str, body: dict[str, Any] | None = None, times: int = 1) -> bytes:
        """Send a request `times` times and return the last answer's body.

        The socket listens before the process runs, so the first answer also shows that the server is up.
        Raises ``ServerError`` if it is not within 30 s, or says that it failed.
        """
        answer = b""
        try:
            for _ in range(times):
                answer = harness.get(f"{self.url}{path}", body, DEADLINE_S)
        except OSError as error:
            raise ServerError(f"mode {self.mode}: no answer on {path}: {error}\n{self._tail()}") from error
        return answer

    def cpu_s(self) -> float:
        """Return the CPU time that the process has used so far."""
        return harness.cpu_s(self.process.pid)

    def stop(self) -> Books:
        """Stop the server as an orchestrator would and count what it leaves.

        Raises ``ServerError`` if it does not end by itself within 30 s, or ends with an error.
        """
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired as error:
            raise ServerError(f"mode {self.mode}: did not stop\n{self._tail()}") from error
        if status != 0:
            raise ServerError(f"mode {self.mode}: ended with status {status}\n{self._tail()}")
        accepted: int = json.loads((self.directory / COUNTS).read_text())["accepted"]
        return Books(accepted, self._records())

    def _records(self) -> int | None:
        if self.mode == "none":
            return None
        if self.mode == "uvicorn-access":
            return (self.directory / "server.out").read_bytes().count(b' HTTP/1.1" ')
        return len(harness.lines(self.directory, b'"http.request.method":'))

    def _tail(self) -> str:
        return (self.directory / "server.out").read_text(errors="replace")[-2000:]


class Scenario(NamedTuple):
    """What is asked of the server: its path and body, and the Locust user that does the same."""

    path: str
    user: str
    body: dict[str, Any] | None = None


SCENARIOS = {
    "trivial": Scenario("/trivial", "TrivialUser"),
    "stream64": Scenario("/stream64", "Stream64User"),
    "chat": Scenario("/v1/chat/completions", "ChatUser", {"max_tokens": 64, "stream": True}),
}


class Load(NamedTuple):
    """What one run of a tool did, and what it cost the server."""

    requests: int
    failures: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_s: float = 0.0

    @property
    def rps(self) -> float:
        """Answered requests per second."""
        return self.requests / self.seconds

    @property
    def cpu_us(self) -> float:
        """The server's CPU time per request."""
        return self.cpu_s / self.requests * 1e6

    @property
    def busy(self) -> float:
        """The share of a core that the server used."""
        return self.cpu_s / self.seconds


class LoadError(RuntimeError):
    """Locust failed, or answered nothing; the message holds the end of its output."""


def drive(server: ServerUnderTest, scenario: Scenario, seconds: float, users: int) -> Load:
    """Load `server` in a closed loop with `users` connections, and charge it with the CPU time it used meanwhile."""
    before = server.cpu_s()
    result = locust(server.url, [f"-u{users}", "-r1000", f"-t{seconds:g}s", scenario.user])
    rows = [row for row in result["requests"].values() if row["type"] != "SSE"]
    requests, failures = (sum(row[name] for row in rows) for name in ("count", "failures"))
    if not requests:
        raise LoadError(f"{scenario.path} got no answer in mode {server.mode} ({failures} failures)")
    cpu_s = server.cpu_s() - before
    return Load(requests, failures, result["seconds"], rows[0].get("p50_ms", 0.0), rows[0].get("p99_ms", 0.0), cpu_s)


def locust(url: str, options: list[str]) -> dict[str, Any]:
    """Run Locust with `options` on the locustfile beside this, and return its result file; raises ``LoadError``."""
    with tempfile.TemporaryDirectory() as scratch:
        result = Path(scratch) / "result.json"
        script = Path(__file__).with_name("locustfile.py")
        command = [sys.executable, "-m", "locust", "-f", str(script), "--headless", "--only-summary"]
        # Failed requests are counted and shown; they are no reason to throw the run away.
        command += ["--loglevel=WARNING", "--exit-code-on-error=0", f"--host={url}", f"--result={result}", *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise LoadError(f"Locust ended with status {done.returncode}\n{done.stdout[-2000:]}")
        answer: dict[str, Any] = json.loads(result.read_text())
        return answer
