"""What a listener beside the servers takes, with Python and without: the time to its first answer, and memory.

Each round starts the two after another on an empty queue directory, in changing order. *Start* is the time from `exec`
to the first answer of `/live`. *Resident* is what the kernel counts for the process (`VmRSS`) less the pages that it
shares with producers (`RssShmem`), once it leads and has written 10,000 records of a producer.

The listener without Python is what `make listener` has built, else the one that cargo builds here for this machine.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inference_logging import Config, Logger
from inference_logging.prove.bench.machine import memory_bytes
from loadtests.cost.bench_loggers import EVENT, FIELDS, emit_until_accepted
from loadtests.cost.bench_report import Report, at_most
from loadtests.harness import HOST, environment, free_port, memory_directory, scratch_directory

ROOT = Path(__file__).resolve().parents[2]
RECORDS = 10_000
DEADLINE_S = 60.0
LOOK_S = 0.001


def sidecar(quick: bool) -> Report:
    """Measure start and resident memory."""
    contenders = {
        "with Python": (sys.executable, "-m", "inference_logging.cli.main"),
        "without Python": (str(_binary(quick)),),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for number in range(2 if quick else 15):
        for name in sorted(contenders, reverse=number % 2 == 1):
            found[name].append(_life(contenders[name]))
    report = Report("sidecar: `listen` beside a server, from exec to the first answer of /live")
    for name, goals in {"with Python": (None, None), "without Python": (at_most(20), at_most(6))}.items():
        report.add(f"start, {name}", "ms", [1e3 * start_s for start_s, _ in found[name]], goals[0])
        report.add(f"resident beside mapped queues, {name}", "MiB", [mib for _, mib in found[name]], goals[1])
    report.remarks.append(f"the program without Python: {Path(contenders['without Python'][0]).name}")
    return report


def _binary(quick: bool) -> Path:
    static = ROOT / "dist" / "inference-logging-listener"
    if static.exists():
        return static
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo" / "bin" / "cargo")
    # What the tests have built does where the figures mean nothing.
    folder, profile = ("debug", "dev") if quick else ("release", "release")
    build = [cargo, "build", "--quiet", "--profile", profile, "--package", "inference_logging_program"]
    subprocess.run(build, cwd=ROOT / "native", check=True)
    return ROOT / "native" / "target" / folder / "inference-logging-listener"


def _life(command: tuple[str, ...]) -> tuple[float, float]:
    """Return the seconds to the first answer, and MiB of memory after work."""
    with scratch_directory(memory_directory()) as directory:
        config = Config(listener="external", directory=directory / "segments", queue_directory=directory / "queues")
        with _listening(command, config) as (process, port, begun):
            _await_answer(port)
            start_s = time.perf_counter() - begun
            with Logger(config) as logger:
                emit_until_accepted(logger.event(EVENT, FIELDS), RECORDS)
                logger.flush()
                resident, shared = (memory_bytes(figure, str(process.pid)) for figure in ("VmRSS", "RssShmem"))
                return start_s, (resident - shared) / 1024**2


@contextmanager
def _listening(command: tuple[str, ...], config: Config) -> Iterator[tuple[subprocess.Popen[bytes], int, float]]:
    port = free_port()
    variables = environment(**{name: getattr(config, name) for name in config.model_fields_set})
    arguments = [*command, "listen", "--metrics-port", str(port), "--metrics-address", HOST]
    begun = time.perf_counter()
    with subprocess.Popen(arguments, env=variables, stderr=subprocess.DEVNULL) as process:
        try:
            yield process, port, begun
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


def _await_answer(port: int) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < end_s:
        try:
            with socket.create_connection((HOST, port), timeout=DEADLINE_S) as client:
                client.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                if b" 200 " in client.recv(64):
                    return
        except OSError:
            pass
        time.sleep(LOOK_S)
    raise RuntimeError("the listener does not answer")
