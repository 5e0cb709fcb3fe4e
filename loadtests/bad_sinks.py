"""What bad sinks do to a server under load: nothing, it should turn out.

    python loadtests/bad_sinks.py --seconds 60

For each damage (full disk, read-only, missing directory, slow, two kinds of hung, closed pipe) the example server logs
into a place that is damaged while it is under load, for at least ``--seconds``, then repaired. A second server without
logging is loaded in turns with it, so that the machine's own moods hit both. Printed for each: requests that failed,
p99 of requests ÷ p99 without logging (median of the turns, and their spread), what health and metrics said meanwhile,
that it went on without a restart, and whether the counts add up: requests that reached the application = records that
arrived + records that the queue refused and counted.

The status is 1 where a request failed, the sink did not recover, or the counts do not add up.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from damages import DAMAGES, CannotDamageError, Healthy
from inference_logging import Config, Logger
from load import Load, parse_wrk
from measure import HERE, LOOPBACK, Cores, total

TURN_S = 5.0
CONNECTIONS = 4
QUEUE_BYTES = 4 << 20
PATIENCE_S = 60.0
HEALTH, METRICS, ROUTE = "/health/logging", "/metrics", "/trivial"
SHOWN_METRICS = ("sink_errors_total", "records_dropped_total", "sink_state", "fallback_active")


@dataclass
class Outcome:
    """What one damage came to."""

    name: str
    requests: int = 0
    failed: int = 0
    ratios: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    recovered_s: float | None = None
    accepted: int = 0
    arrived: int = 0
    dropped: int = 0

    @property
    def is_good(self) -> bool:
        """Whether everything is as it should be, times aside."""
        return self.failed == 0 and self.recovered_s is not None and self.accepted == self.arrived + self.dropped


class Server:
    """One server process under test."""

    def __init__(
        self, mode: str, scratch: Path, core: int, directory: Path, stdout: int | None, **settings: str
    ) -> None:
        """Start it; `settings` are parameters of ours."""
        self.queues = scratch / "queues"
        self._counts = scratch / "counts.json"
        self._said = (scratch / "stderr").open("wb")
        self.asked = 0
        own = {
            "queue_directory": str(self.queues),
            "queue_bytes": str(QUEUE_BYTES),
            "metrics_path": METRICS,
            **settings,
        }
        environment = {f"INFERENCE_LOGGING_{name.upper()}": value for name, value in own.items()}
        with socket.create_server((LOOPBACK, 0), backlog=1024) as listening:
            self.url = f"http://{LOOPBACK}:{listening.getsockname()[1]}"
            options = {"mode": mode, "fd": listening.fileno(), "core": core, "directory": directory}
            options["counts"] = self._counts
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "server.py"), *(f"--{name}={value}" for name, value in options.items())],
                pass_fds=[listening.fileno()],
                stdout=subprocess.DEVNULL if stdout is None else stdout,
                stderr=self._said,
                env={**os.environ, **environment},
            )

    def ask(self, path: str) -> tuple[int, bytes]:
        """Return status and body of an answer that leaves no record; it is counted, since the application sees it."""
        self.asked += 1
        try:
            with urllib.request.urlopen(self.url + path, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def stop(self) -> int:
        """End the server and return how many requests reached the application, those of `ask` left out."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_S)
        accepted: int = json.loads(self._counts.read_text())["accepted"]
        return accepted - self.asked

    def end(self) -> None:
        """Make sure that nothing is left running."""
        self._process.kill()
        self._process.wait()
        self._said.close()


def drive(server: Server, core: int, seconds: float) -> Load:
    """Load a server with wrk."""
    command = [
        "taskset",
        "-c",
        str(core),
        "wrk",
        "-t1",
        f"-c{CONNECTIONS}",
        f"-d{max(1, round(seconds))}s",
        "--latency",
    ]
    output = subprocess.run([*command, server.url + ROUTE], check=True, capture_output=True, text=True).stdout
    return parse_wrk(output)


@contextlib.contextmanager
def servers(damage: Healthy, scratch: Path, cores: Cores) -> Iterator[tuple[Server, Server]]:
    """Run a server without logging, and one that logs to the place of a damage; both answer."""
    with contextlib.ExitStack() as stack:
        running = []
        for mode, directory in (("none", scratch / "nothing"), ("ours", damage.directory)):
            own = scratch / mode
            own.mkdir()
            settings = damage.settings if mode == "ours" else {}
            stdout = damage.stdout if mode == "ours" else None
            server = Server(mode, own, cores.server, directory, stdout, **settings)
            stack.callback(server.end)
            running.append(server)
        for server in running:
            server.ask("/health")
        yield running[0], running[1]


def suffer(kind: type[Healthy], scratch: Path, seconds: float, cores: Cores) -> Outcome:
    """Load both servers in turns while the damage lasts; then repair it and count."""
    outcome = Outcome(kind.name)
    with kind(scratch) as damage, servers(damage, scratch, cores) as (none, ours):
        # Read through the queue directory, as a sidecar would, with the server's sinks: a directory is of one
        # configuration.
        own = {"directory": damage.directory, "queue_directory": ours.queues, "listener": "external"}
        small = {"queue_bytes": 1 << 16, "max_record_bytes": 1 << 14}
        looking = Config(**{**damage.settings, **own, **small})
        for server in (none, ours):
            drive(server, cores.load[0], 1)
        with Logger(looking) as watch:
            damage.strike()
            end = time.monotonic() + seconds
            while not outcome.ratios or time.monotonic() < end:
                _one_turn(outcome, none, ours, cores, min(TURN_S, seconds))
            damage.repair()
            _recover(outcome, ours, watch, cores)
            outcome.dropped = sum(total(queue["dropped"]) for queue in watch.service.queues())
            outcome.accepted = ours.stop()
        outcome.arrived = damage.records()
    return outcome


def _one_turn(outcome: Outcome, none: Server, ours: Server, cores: Cores, seconds: float) -> None:
    order = (none, ours) if len(outcome.ratios) % 2 == 0 else (ours, none)
    loads = {server: drive(server, cores.load[0], seconds) for server in order}
    outcome.requests += loads[ours].requests
    outcome.failed += loads[ours].failures
    outcome.ratios.append(loads[ours].p99_ms / loads[none].p99_ms)
    outcome.p99_ms.append(loads[ours].p99_ms)
    status, body = ours.ask(HEALTH)
    said = json.loads(body)
    outcome.health.append(f"{status} {said.get('status')}: {'; '.join(map(str, said.get('reasons', ())))}")
    text = ours.ask(METRICS)[1].decode()
    shown = [line for line in text.splitlines() if not line.startswith("#") and _is_shown(line)]
    outcome.metrics = [line.removeprefix("inference_logging_") for line in shown]


def _is_shown(line: str) -> bool:
    return any(name in line for name in SHOWN_METRICS) and not line.endswith(" 0.0")


def _recover(outcome: Outcome, ours: Server, watch: Logger, cores: Cores) -> None:
    """Wait until what waited is written; then load once more, and wait for that."""
    begun = time.monotonic()
    if not _settles(watch):
        return
    outcome.recovered_s = time.monotonic() - begun
    again = drive(ours, cores.load[0], 1)
    outcome.failed += again.failures
    if not _settles(watch):
        outcome.recovered_s = None


def _settles(watch: Logger) -> bool:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if watch.backlog_records() == 0 and watch.service.sinks()[0]["state"] == "ok":
            return True
        time.sleep(0.01)
    return False


def show(outcome: Outcome) -> str:
    """Put an outcome into words."""
    ratios = f"{statistics.median(outcome.ratios):.2f} ({min(outcome.ratios):.2f}..{max(outcome.ratios):.2f})"
    back = (
        "NOT RECOVERED" if outcome.recovered_s is None else f"written {outcome.recovered_s:.1f} s after it was repaired"
    )
    balance = "=" if outcome.accepted == outcome.arrived + outcome.dropped else "DOES NOT EQUAL"
    lines = [
        f"{outcome.name}: {outcome.failed} of {outcome.requests:,} requests failed",
        f"  p99 {statistics.median(outcome.p99_ms):.2f} ms, {ratios} times that without logging",
        f"  health: {outcome.health[-1]}",
        *(f"  {line}" for line in outcome.metrics),
        f"  {back}, without a restart",
        f"  {outcome.accepted:,} requests {balance} {outcome.arrived:,} records + {outcome.dropped:,} dropped, counted",
    ]
    return "\n".join(lines)


def main() -> int:
    """Run the damages asked for and print what they came to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each damage lasts at least")
    names = [kind.name for kind in DAMAGES]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these damages only")
    options = parser.parse_args()
    cores, good = Cores.of_this_process(), True
    for kind in [kind for kind in DAMAGES if kind.name in options.only]:
        with tempfile.TemporaryDirectory(prefix="bad-sinks-", dir="/dev/shm") as scratch:
            try:
                outcome = suffer(kind, Path(scratch), options.seconds, cores)
            except CannotDamageError as error:
                print(f"{kind.name}: NOT TRIED, {error}", flush=True)
                continue
        print(show(outcome), flush=True)
        good &= outcome.is_good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
