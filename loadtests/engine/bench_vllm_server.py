"""The vLLM servers under test: how each logs, where it runs, what it cost, and whether its records are all there.

Every server is a real ``vllm serve`` of the tiny model on the CPU. The engine computes with one thread on a core of its
own, as it would on an accelerator; the API server, our listener with it, has another one. Where there is no third core,
the client shares the API server's. CPU time is that of the API server's process, all threads, from the kernel's process
clock; the engine's process has its own clock.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loadtests.compare.baselines import LOG_NAME
from loadtests.cost.bench_loggers import free_port, memory_directory, scratch_directory
from loadtests.engine.bench_vllm_load import HOST, Seen, Shape, load

START_S: Final = 300.0
STOP_S: Final = 30.0
SETTLE_S: Final = 0.7
"""Longer than ``flush_interval_s``: what the listener does for a load is part of its cost."""
METRICS: Final = "/logging-metrics"

_ROOT: Final = Path(__file__).resolve().parents[2]
_ENGINE: Final = (
    *("--host", HOST, "--served-model-name", "tiny", "--distributed-executor-backend", "uni"),
    *("--no-async-scheduling", "--enforce-eager", "--max-model-len", "1024", "--max-num-seqs", "32"),
    *("--kv-cache-memory-bytes", "268435456"),
    *("--dtype", "float32"),  # in bfloat16 the engine dies of SIGILL on a CPU with AMX
)
_ENVIRONMENT: Final = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # no worker process, which would spin on a core for a second at a time
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",  # two threads of which one shares a core with anything else wait for each other, spinning
}
_NO_ACCESS_LOG: Final = "--disable-uvicorn-access-log"


@dataclass(frozen=True)
class Mode:
    """One way of logging: what it adds to the command line, and our settings."""

    arguments: tuple[str, ...] = (_NO_ACCESS_LOG,)
    middleware: str | None = None
    """Ours."""
    peer: str | None = None
    """A middleware beside ours."""


PROOF: Final = "gen_ai.usage.output_tokens"
"""A field that the record of each request for tokens has."""
_OURS: Final = "inference_logging.InferenceLoggingMiddleware"
_PEER: Final = (_NO_ACCESS_LOG, "--enable-log-requests", "--enable-log-outputs")

MODES: Final = {
    "none": Mode(),
    "ours": Mode(middleware=_OURS),
    "control": Mode(),
    "stdlib-file": Mode(peer="loadtests.engine.bench_vllm_peers.File"),
    "stdlib-queue": Mode(peer="loadtests.engine.bench_vllm_peers.Queue"),
    "vllm-outputs": Mode(_PEER),
}
MEANINGS: Final = (
    (
        "ours: --middleware inference_logging.InferenceLoggingMiddleware, all settings at their defaults (request "
        "records with the timeline of chunks), and metrics_path, which is read between loads"
    ),
    "vllm-outputs: --enable-log-requests --enable-log-outputs. Consoles go to files",
    (
        "stdlib-file, stdlib-queue: one line of JSON per request by the standard library, from a pure-ASGI middleware: "
        "on the request path (FileHandler), or through QueueHandler and QueueListener"
    ),
)


@dataclass(frozen=True)
class Cores:
    """Which cores the API server, the engine and the client run on."""

    api: int
    engine: int
    client: int

    @classmethod
    def of_this_process(cls) -> Cores:
        """Give the engine a core of its own if there are two, and the client if there are three."""
        usable = sorted(os.sched_getaffinity(0))
        return cls(usable[0], usable[1 % len(usable)], usable[2] if len(usable) > 2 else usable[0])

    @contextmanager
    def as_client(self) -> Iterator[None]:
        """Run on the client's core."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self.client})
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    def __str__(self) -> str:
        """Say where things run."""
        return f"API server on core {self.api}, engine on core {self.engine}, client on core {self.client}"


@dataclass(frozen=True)
class Place:
    """What is the same for all servers: vLLM's virtual environment, the model, the cores."""

    venv: Path
    model: Path
    cores: Cores


@dataclass(frozen=True)
class Own:
    """What our part of an API server says of itself since its start, in seconds: the request path, the listener."""

    hot_path_s: float = 0.0
    listener_s: float = 0.0


@dataclass
class Server:
    """One server under test, running."""

    mode: str
    process: subprocess.Popen[bytes]
    port: int
    directory: Path
    queues: Path
    recorded: int = 0
    """Requests sent that must have a record."""

    def load(self, shape: Shape, requests: int) -> Seen:
        """Send so many requests."""
        seen = load(self.port, shape, requests)
        self.recorded += requests
        return seen

    def cpu_s(self) -> float:
        """Return the CPU time of the API server's process so far (the clock of clock_getcpuclockid(3))."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def family_cpu_s(self) -> float:
        """Return the CPU time of the API server and of the engine so far."""
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in (self.process.pid, *_children(self.process.pid)))

    def own(self) -> Own:
        """Return what our part has used so far; nothing where we are not."""
        if MODES[self.mode].middleware is None:
            return Own()
        text = _get(f"http://{HOST}:{self.port}{METRICS}").decode()
        return Own(_counter(text, "hot_path"), _counter(text, "listener_cpu"))

    def pin(self, cores: Cores) -> None:
        """Give API server and engine their cores; threads that they start later stay there."""
        _pin(self.process.pid, cores.api)
        for child in _children(self.process.pid):
            _pin(child, cores.engine)

    def wait_until_up(self) -> None:
        """Wait until the model is served."""
        patience = time.monotonic() + START_S
        while not _answers(f"http://{HOST}:{self.port}/v1/models"):
            if self.process.poll() is not None or time.monotonic() > patience:
                raise RuntimeError(f"vLLM did not start: {self.mode}\n{self._console()[-3000:]}")
            time.sleep(0.5)
        self.recorded += 1

    def stop(self) -> None:
        """End the server as an orchestrator does, and wait for our drain."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_S)

    def check_books(self) -> int:
        """Count the records; raise ``RuntimeError`` unless each request has one and the books balance."""
        logs = self.directory / "log"
        segments = [path for path in logs.glob("*.jsonl") if not path.is_symlink()]
        lines = [line for path in segments for line in path.read_bytes().splitlines()]
        records = [line for line in lines if b'"event_name":"request"' in line]
        reported = sum(f'"{PROOF}":'.encode() in line for line in records)
        if (len(records), reported) != (self.recorded, self.recorded - 1):  # that for the list of models has no tokens
            found = f"{len(records)} records are there, {reported} with {PROOF}"
            raise RuntimeError(f"{self.mode}: {self.recorded} requests were answered, {found}")
        command = [str(Path(sys.executable).with_name("inference-logging")), "verify", str(logs)]
        verify = subprocess.run([*command, "--queue-directory", str(self.queues)], check=False, stdout=subprocess.PIPE)
        if verify.returncode:
            raise RuntimeError(f"{self.mode}: the books do not balance\n{verify.stdout.decode()}")
        return len(records)

    def check_lines(self) -> None:
        """Raise ``RuntimeError`` unless a middleware beside ours has left a line for each request."""
        lines = (self.directory / "log" / LOG_NAME).read_bytes().count(b"\n")
        if lines != self.recorded:
            raise RuntimeError(f"{self.mode}: {self.recorded} requests were answered, {lines} lines are there")

    def _console(self) -> str:
        return (self.directory / "console.log").read_text(errors="replace")


@contextmanager
def running(mode: str, place: Place, directory: Path) -> Iterator[Server]:
    """Run a server; its console is a file in ``directory``."""
    directory.mkdir()
    port = free_port()
    with scratch_directory(memory_directory()) as queues, (directory / "console.log").open("wb") as console:
        process = subprocess.Popen(
            _command(mode, place, port),
            stdout=console,
            stderr=subprocess.STDOUT,
            env=_environment(place, directory / "log", queues),
            start_new_session=True,
        )
        server = Server(mode, process, port, directory, queues)
        try:
            server.wait_until_up()
            server.pin(place.cores)
            yield server
        finally:
            _end(process)


def _command(mode: str, place: Place, port: int) -> list[str]:
    chosen = MODES[mode].middleware or MODES[mode].peer
    ours = ["--middleware", chosen] if chosen else []
    vllm = [str(place.venv / "bin" / "vllm"), "serve", str(place.model), "--port", str(port)]
    return [*vllm, *_ENGINE, *MODES[mode].arguments, *ours]


def _environment(place: Place, logs: Path, queues: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("INFERENCE_LOGGING_")}
    ours = {"DIRECTORY": str(logs), "QUEUE_DIRECTORY": str(queues), "METRICS_PATH": METRICS}
    path = os.pathsep.join([*filter(None, [inherited.get("PYTHONPATH")]), str(_ROOT)])
    settings = {f"INFERENCE_LOGGING_{name}": value for name, value in ours.items()}
    settings["INFERENCE_LOGGING_SERVER_RECORD"] = "off"
    return {
        **inherited,
        **_ENVIRONMENT,
        "VLLM_CPU_OMP_THREADS_BIND": str(place.cores.engine),
        "PYTHONPATH": path,
    } | settings


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for children in lists for child in children.read_text().split()]


def _pin(pid: int, core: int) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):  # a thread that has ended meanwhile
            os.sched_setaffinity(int(thread.name), {core})


def _counter(metrics: str, name: str) -> float:
    found = re.search(rf"^inference_logging_{name}_seconds_total (\S+)$", metrics, re.MULTILINE)
    if not found:
        raise RuntimeError(f"the metrics have no {name}:\n{metrics[:1000]}")
    return float(found[1])


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        content: bytes = answer.read()
        return content


def _answers(url: str) -> bool:
    try:
        return bool(_get(url))
    except OSError:
        return False
