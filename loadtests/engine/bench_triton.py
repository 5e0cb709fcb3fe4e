"""What logging costs a real Triton server, as ratios to no logging: ``make bench-triton``.

    python -m loadtests.engine.bench_triton [--quick] [--json PATH]

One server has a model for each way of logging, all of which give back what they got, with two instances each: one is
loaded at a time by ``wrk`` over HTTP with 16 connections, right before or right after the model without logging, by
turns, to which it is compared. ``control`` is that model against itself: its ratio shows what noise looks like. Our
listener is a process of its own, as a sidecar is. Client, server, stubs and listener share the cores.

``cost`` is a model that measures inside of ``execute`` what one call of each takes. At the end our records are counted:
as many as requests that were answered; and ``inference-logging verify`` agrees.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loadtests.cost.bench_loggers import free_port, memory_directory, scratch_directory
from loadtests.cost.bench_report import Report, at_least, at_most, machine
from loadtests.turns.wrk import find_wrk

ROOT: Final = Path(__file__).resolve().parents[2]
HOST: Final = "127.0.0.1"
CONNECTIONS: Final = 16
START_S: Final = 60.0
EXIT_TIMEOUT_S: Final = 20
BASE: Final = "bare"
MODES: Final = ("control", "ours", "ours_without_tensors", "triton_logger", "stdlib_file", "stdlib_queue")
COSTS: Final = ("ours, begin and end", "reading the same fields", "triton_logger", "stdlib_file", "stdlib_queue")
BODY: Final = {"id": "0123456789", "inputs": [{"name": "X", "datatype": "FP32", "shape": [4], "data": [1, 2, 3, 4]}]}


@dataclass(frozen=True)
class Load:
    """What one load gave."""

    infer_per_s: float
    p99_ms: float
    answered: int


@dataclass
class Server:
    """The server under test, running."""

    process: subprocess.Popen[bytes]
    port: int
    directory: Path
    queues: Path
    recorded: int = 0

    def load(self, wrk: str, model: str, seconds: int) -> Load:
        """Load one model for some seconds. Raises ``RuntimeError`` if a request failed."""
        script = self.directory / "post.lua"
        content = json.dumps(BODY).replace("'", "")
        script.write_text(
            f"wrk.method = 'POST'\nwrk.body = '{content}'\nwrk.headers['Content-Type'] = 'application/json'\n"
        )
        url = f"http://{HOST}:{self.port}/v2/models/{model}/infer"
        command = [wrk, "--threads", "1", "--connections", str(CONNECTIONS), "--duration", f"{seconds}s", "--latency"]
        said = subprocess.run(
            [*command, "--script", str(script), url], check=True, capture_output=True, text=True
        ).stdout
        if "Non-2xx" in said:
            raise RuntimeError(f"requests to {model} failed:\n{said}")
        latency = re.search(r"99%\s+([\d.]+)(us|ms|s)", said)
        rate, count = re.search(r"Requests/sec:\s+([\d.]+)", said), re.search(r"(\d+) requests in", said)
        if not (latency and rate and count):
            raise RuntimeError(f"wrk said something else:\n{said}")
        p99_ms = float(latency[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[latency[2]]
        return Load(float(rate[1]), p99_ms, int(count[1]))

    def ask(self, model: str) -> dict[str, Any]:
        """Return the answer to one request."""
        request = urllib.request.Request(
            f"http://{HOST}:{self.port}/v2/models/{model}/infer", json.dumps(BODY).encode()
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            found: dict[str, Any] = json.load(answer)
            return found


def triton(quick: bool) -> list[Report]:
    """Measure all ways of logging in one server."""
    report = Report(f"Triton: HTTP, {CONNECTIONS} connections, 2 instances of each model, ratios to no logging")
    cost = Report("Triton: one call inside of execute, median of 15 rounds by turns, in each of the measurements")
    wrk = find_wrk()
    if wrk is None:
        report.remarks.append("NOT MEASURED: wrk is missing and could not be installed (Debian package: wrk)")
        return [report]
    rounds, seconds = (1, 1) if quick else (15, 2)
    models = {mode: BASE if mode == "control" else mode for mode in MODES}
    loads: dict[str, list[tuple[Load, Load]]] = {mode: [] for mode in MODES}
    with scratch_directory() as directory, running(directory) as server:
        for model in sorted({*models.values()}):
            server.load(wrk, model, 1)
        for turn in range(rounds):
            for mode, model in models.items():
                pair = [server.load(wrk, name, seconds) for name in ((BASE, model) if turn % 2 else (model, BASE))]
                base, other = pair if turn % 2 else reversed(pair)
                loads[mode].append((base, other))
        costs = [server.ask("cost")["outputs"][0]["data"] for _ in range(1 if quick else 5)]
        report.remarks.append(_stop_and_count(server))
    _add_loads(report, loads)
    for position, name in enumerate(COSTS):
        cost.add(name, "µs", (found[position] / 1e3 for found in costs))
    cost.add("ours, beyond reading the fields", "µs", ((one[0] - one[1]) / 1e3 for one in costs), at_most(1.0))
    return [report, cost]


def _add_loads(report: Report, loads: dict[str, list[tuple[Load, Load]]]) -> None:
    for name, unit, figure in (("infer/s", "infer/s", "infer_per_s"), ("p99", "ms", "p99_ms")):
        values = {mode: [[getattr(one, figure) for one in pair] for pair in loads[mode]] for mode in MODES}
        report.add(f"{name}: none", unit, (base for pairs in values.values() for base, _ in pairs))
        for mode in MODES:
            goal = at_least(0.99) if mode == "ours" and unit == "infer/s" else None
            report.add(f"{name}: {mode} ÷ none", "×", (other / base for base, other in values[mode]), goal)


@contextmanager
def running(directory: Path) -> Iterator[Server]:
    """Run a server and our listener beside it."""
    venv = ROOT / ".venv-triton"
    (home,) = venv.glob("lib/python3*/site-packages/pytriton/tritonserver")
    shutil.copytree(Path(__file__).with_name("triton_models"), directory / "models")
    ports = {name: free_port() for name in ("http", "grpc", "metrics")}
    with scratch_directory(memory_directory()) as queues, (directory / "console.log").open("wb") as console:
        environment = _environment(venv, directory, queues)
        listen = [str(Path(sys.executable).with_name("inference-logging")), "listen", "--status-interval-s", "0"]
        listener = subprocess.Popen(listen, env=environment, stderr=console)
        process = subprocess.Popen(
            [
                home / "bin" / "tritonserver",
                f"--model-repository={directory / 'models'}",
                f"--backend-directory={home / 'backends'}",
                *(f"--{name}-address={HOST}" for name in ports),
                *(f"--{name}-port={port}" for name, port in ports.items()),
                "--disable-auto-complete-config",
                "--allow-gpu-metrics=false",
                f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
                f"--backend-config=python,shm-region-prefix-name=bench{os.getpid()}_",
            ],
            env=environment,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        server = Server(process, ports["http"], directory, queues)
        try:
            _wait_until_up(server)
            yield server
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            listener.send_signal(signal.SIGTERM)
            listener.wait(30)
            for region in Path("/dev/shm").glob(f"bench{os.getpid()}_*"):
                region.unlink(missing_ok=True)


def _environment(venv: Path, directory: Path, queues: Path) -> dict[str, str]:
    import sysconfig

    inherited = {name: value for name, value in os.environ.items() if not name.startswith("INFERENCE_LOGGING_")}
    libraries = [str(sysconfig.get_config_var("LIBDIR")), os.environ.get("LD_LIBRARY_PATH", "")]
    return {
        **inherited,
        "PATH": f"{venv / 'bin'}{os.pathsep}{inherited['PATH']}",
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
        "BENCH_DIRECTORY": str(directory),
        "INFERENCE_LOGGING_DIRECTORY": str(directory / "log"),
        "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(queues),
        "INFERENCE_LOGGING_LISTENER": "external",
        "INFERENCE_LOGGING_SERVER_RECORD": "off",
    }


def _wait_until_up(server: Server) -> None:
    patience = time.monotonic() + START_S
    while True:
        with suppress(OSError), urllib.request.urlopen(f"http://{HOST}:{server.port}/v2/health/ready", timeout=1):
            return
        if server.process.poll() is not None or time.monotonic() > patience:
            said = (server.directory / "console.log").read_text(errors="replace")
            raise RuntimeError(f"Triton did not start\n{said[-3000:]}")
        time.sleep(0.05)


def _stop_and_count(server: Server) -> str:
    accepted = _accepted(server)
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(EXIT_TIMEOUT_S + 15)
    time.sleep(1.0)
    logs = server.directory / "log"
    segments = [path for path in logs.glob("*.jsonl") if not path.is_symlink()]
    of_ours = b'"triton.model_name":"ours"'
    records = sum(line.count(of_ours) for path in segments for line in path.open("rb"))
    if records != accepted:
        raise RuntimeError(f"the model `ours` has served {accepted} requests, and {records} records are there")
    command = [str(Path(sys.executable).with_name("inference-logging")), "verify", str(logs)]
    verify = subprocess.run([*command, "--queue-directory", str(server.queues)], check=False, stdout=subprocess.PIPE)
    if verify.returncode:
        raise RuntimeError(f"the books do not balance\n{verify.stdout.decode()}")
    return f"{records:,} requests to ours by Triton's count, as many records; verify: the books balance"


def _accepted(server: Server) -> int:
    url = f"http://{HOST}:{server.port}/v2/models/ours/stats"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return int(json.load(answer)["model_stats"][0]["inference_stats"]["success"]["count"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round: shows that it runs")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    options = parser.parse_args()
    seen_on = machine()
    print("  ".join(f"{name}: {value}" for name, value in seen_on.items()))
    print("median (lowest … highest round)" + ("; QUICK: the figures mean nothing" * options.quick))
    reports = triton(options.quick)
    for report in reports:
        report.print()
    if options.json:
        found = {"machine": seen_on, "quick": options.quick, "sections": [report.as_json() for report in reports]}
        options.json.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
