"""Locust as the load, which behaves as clients do.

A load that is slower than the server measures itself. `Load.busy` shows that: it is the share of a core that the server
used, and req/s says something about the server only where that is close to 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from loadtests.compare.measure import ServerUnderTest

SATURATED = 0.9
WARM_UP_REQUESTS = 200


class Scenario(NamedTuple):
    """What is asked of the server: its path and body, and the Locust user that does the same."""

    name: str
    path: str
    user: str
    body: dict[str, Any] | None = None


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("trivial", "/trivial", "TrivialUser"),
        Scenario("stream64", "/stream64", "Stream64User"),
        Scenario("chat", "/v1/chat/completions", "ChatUser", {"max_tokens": 64, "stream": True}),
    )
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
    load = _locust(server.url, scenario, seconds, users)
    cpu_s = server.cpu_s() - before
    if load.requests == 0:
        raise LoadError(f"{scenario.name} got no answer in mode {server.mode} ({load.failures} failures)")
    return load._replace(cpu_s=cpu_s)


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


def _locust(url: str, scenario: Scenario, seconds: float, users: int) -> Load:
    result = locust(url, [f"-u{users}", "-r1000", f"-t{seconds:g}s", scenario.user])
    rows = [row for row in result["requests"].values() if row["type"] != "SSE"]
    times = rows[0] if rows else {}
    requests = sum(row["count"] for row in rows)
    failures = sum(row["failures"] for row in rows)
    return Load(requests, failures, result["seconds"], times.get("p50_ms", 0.0), times.get("p99_ms", 0.0))
