"""What logging costs a real vLLM server, as ratios to no logging: ``make bench-vllm``.

    python -m loadtests.engine.bench_vllm [--quick] [--json PATH] [--modes MODE ...]

Servers of all modes live at once and are loaded one at a time, in an order that rotates from round to round; blocks of
rounds start new ones. ``none`` is the mean of two servers without logging, and their ratio, ``control``, is noise.
loadtests/README.md says more.

The load is a closed loop of chat requests over raw connections. The client reads as little as it can: it may share a
core with the API server, and one that decodes every event would be measured along with the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import uvloop

from loadtests import harness
from loadtests.compare.baselines import LOG_NAME
from loadtests.harness import (
    HOST,
    ROOT,
    Goal,
    Report,
    at_least,
    at_most,
    free_port,
    memory_directory,
    ratios,
    scratch_directory,
    sections,
)

VENV: Final = ROOT / ".venv-vllm"
BASES: Final = ("none", "control")
START_S: Final = 300.0
STOP_S: Final = 30.0
SETTLE_S: Final = 0.7
"""Longer than ``flush_interval_s``: what the listener does for a load is part of its cost."""
METRICS: Final = "/logging-metrics"
OURS: Final = "inference_logging.InferenceLoggingMiddleware"
PROOF: Final = b'"gen_ai.usage.output_tokens":'
"""The record of each request for tokens has it."""

_ENGINE: Final = (
    *("--host", HOST, "--served-model-name", "tiny", "--distributed-executor-backend", "uni"),
    *("--no-async-scheduling", "--enforce-eager", "--max-model-len", "1024", "--max-num-seqs", "32"),
    *("--kv-cache-memory-bytes", "268435456", "--disable-uvicorn-access-log"),
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
MODES: Final = {
    "none": (),
    "ours": ("--middleware", OURS),
    "control": (),
    "stdlib-file": ("--middleware", "loadtests.compare.baselines.File"),
    "stdlib-queue": ("--middleware", "loadtests.compare.baselines.Queue"),
    "vllm-outputs": ("--enable-log-requests", "--enable-log-outputs"),
}
"""What each way of logging adds to the command line."""
MEANINGS: Final = (
    f"ours: --middleware {OURS}, all settings at their defaults, and metrics_path, which is read between loads",
    "vllm-outputs: --enable-log-requests --enable-log-outputs. Consoles go to files",
    "stdlib-file, stdlib-queue: a line of JSON per request from a pure-ASGI middleware, written there or by a thread",
)
CONNECTIONS: Final = 8
PATIENCE_S: Final = 120.0
_PROMPT: Final = "hello world " * 100
_MOST_BYTES: Final = 1 << 20
_ALL_TOKENS: Final = b'"finish_reason":"length"'


class Shape(NamedTuple):
    """One kind of request: so many tokens, streamed or not; ``requests`` make a load of some seconds on two cores."""

    name: str
    tokens: int
    stream: bool
    requests: int

    def request(self, port: int) -> bytes:
        """Return the request as it goes over the wire; the engine must generate all tokens."""
        messages = [{"role": "user", "content": _PROMPT}]
        body = {"model": "tiny", "messages": messages, "max_tokens": self.tokens, "ignore_eos": True, "temperature": 0}
        content = json.dumps({**body, "stream": self.stream}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


SHAPES: Final = (Shape("16 tokens", 16, False, 480), Shape("64 tokens streamed", 64, True, 240))


class Seen(NamedTuple):
    """What the client saw of one load: how long it took, and the median time to the first event or the answer."""

    wall_s: float
    first_ms: float


def load(port: int, shape: Shape, requests: int) -> Seen:
    """Send so many requests, one at a time on each connection. Raises ``RuntimeError`` for a wrong answer."""
    return uvloop.run(asyncio.wait_for(_load(port, shape.request(port), requests), PATIENCE_S))


async def _load(port: int, request: bytes, requests: int) -> Seen:
    turns, firsts = iter(range(requests)), list[float]()
    connections = [
        await asyncio.open_connection(HOST, port, limit=_MOST_BYTES) for _ in range(min(CONNECTIONS, requests))
    ]
    started = time.perf_counter()
    try:
        await asyncio.gather(*(_work(*connection, request, turns, firsts) for connection in connections))
    finally:
        for _, writer in connections:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in connections), return_exceptions=True)
    return Seen(time.perf_counter() - started, median(firsts) * 1e3)


async def _work(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    request: bytes,
    turns: Iterator[int],
    firsts: list[float],
) -> None:
    for _ in turns:
        asked = time.perf_counter()
        writer.write(request)
        head, answer = await reader.readuntil(b"\r\n\r\n"), b""
        _, is_whole, length = head.partition(b"content-length: ")
        if not is_whole:
            answer = await reader.readuntil(b"\n\n")
        else:
            answer = await reader.readexactly(int(length.partition(b"\r\n")[0]))
        firsts.append(time.perf_counter() - asked)
        answer += b"" if is_whole else await reader.readuntil(b"\r\n0\r\n\r\n")
        # Also proves that all tokens were generated: an engine that stops early is another load.
        if not head.startswith(b"HTTP/1.1 200") or _ALL_TOKENS not in answer:
            raise RuntimeError(f"the server's answer is not what was asked for:\n{(head + answer)[:1000]!r}")


class Load(NamedTuple):
    """What one load gave, CPU time per request."""

    requests_per_s: float
    first_ms: float
    cpu_us: float
    hot_path_us: float
    listener_us: float


class Place(NamedTuple):
    """What each of the three cores is for."""

    api: int
    engine: int
    client: int


@dataclass
class Server:
    """One server under test, running."""

    mode: str
    process: subprocess.Popen[bytes]
    port: int
    directory: Path
    queues: Path
    recorded: int = 1
    """Requests sent that must have a record: at first the one that showed that the server is up."""

    def load(self, shape: Shape, requests: int) -> Load:
        """Send so many requests, and return what that took."""
        cpu_s, own = self.cpu_s(), self.own_s()
        seen = load(self.port, shape, requests)
        self.recorded += requests
        time.sleep(SETTLE_S)
        spent = [self.cpu_s() - cpu_s, *(after - before for after, before in zip(self.own_s(), own, strict=True))]
        return Load(requests / seen.wall_s, seen.first_ms, *(seconds / requests * 1e6 for seconds in spent))

    def cpu_s(self) -> float:
        """Return the CPU time of the API server's process so far."""
        return harness.cpu_s(self.process.pid)

    def own_s(self) -> tuple[float, float]:
        """Return what our part says of itself: seconds on the request path, and of the listener; 0 where we are not."""
        if self.mode != "ours":
            return 0.0, 0.0
        text = harness.get(f"http://{HOST}:{self.port}{METRICS}").decode()
        path, listener = (
            re.findall(rf"^inference_logging_{name}_seconds_total (\S+)$", text, re.MULTILINE)
            for name in ("hot_path", "listener_cpu")
        )
        return float(path[0]), float(listener[0])

    def pin(self, place: Place) -> None:
        """Give API server and engine their cores; threads that they start later stay there."""
        for pid, core in [
            (self.process.pid, place.api),
            *((pid, place.engine) for pid in harness.children(self.process.pid)),
        ]:
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with suppress(ProcessLookupError):  # a thread that has ended meanwhile
                    os.sched_setaffinity(int(thread.name), {core})

    def stop(self) -> None:
        """End the server as an orchestrator does, and wait for our drain."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_S)

    def check(self) -> int:
        """Return how many records of ours there are; raise ``RuntimeError`` unless each request left what it must."""
        logs = self.directory / "log"
        if self.mode == "ours":
            records = harness.lines(logs, b'"event_name":"request"')
            harness.check_books(logs, self.queues, self.recorded, len(records))
            if sum(PROOF in line for line in records) != self.recorded - 1:  # that for the list of models has no tokens
                raise RuntimeError(f"{self.mode}: not every record has {PROOF.decode()}")
            return len(records)
        if self.mode.startswith("stdlib"):
            lines = (logs / LOG_NAME).read_bytes().count(b"\n")
            if lines != self.recorded:
                raise RuntimeError(f"{self.mode}: {self.recorded} requests were answered, {lines} lines are there")
        return 0


@contextmanager
def running(mode: str, place: Place, directory: Path) -> Iterator[Server]:
    """Run a server; its console is a file in ``directory``."""
    directory.mkdir()
    port, console = free_port(), directory / "console.log"
    command = [VENV / "bin" / "vllm", "serve", VENV / "models" / "tiny", "--port", str(port), *_ENGINE, *MODES[mode]]
    with scratch_directory(memory_directory()) as queues, console.open("wb") as said:
        path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)])
        variables = harness.environment(
            directory=directory / "log", queue_directory=queues, metrics_path=METRICS, server_record="off"
        ) | {**_ENVIRONMENT, "VLLM_CPU_OMP_THREADS_BIND": str(place.engine), "PYTHONPATH": path}
        with harness.process(command, variables, said) as process:
            harness.wait_until_up(process, f"http://{HOST}:{port}/v1/models", START_S, console)
            server = Server(mode, process, port, directory, queues)
            server.pin(place)
            yield server


Loads = dict[tuple[str, str], list[Load]]
"""By the name of the shape and the mode, one of each round."""


def modes(place: Place, chosen: Iterable[str], quick: bool) -> list[Report]:
    """Measure servers of the chosen modes side by side: one report for each kind of request."""
    names = [*dict.fromkeys((*BASES, *chosen))]
    loads: Loads = {(shape.name, mode): [] for shape in SHAPES for mode in names}
    remarks = [_block(loads, place, names, quick) for _ in range(1 if quick else 2)]
    reports = [_report(shape, loads, names) for shape in SHAPES]
    reports[-1].remarks += [*MEANINGS, *remarks]
    return reports


def _block(loads: Loads, place: Place, names: list[str], quick: bool) -> str:
    with scratch_directory() as directory, ExitStack() as stack:
        servers = [stack.enter_context(running(mode, place, directory / mode)) for mode in names]
        cores, turned = os.sched_getaffinity(0), deque(servers)
        os.sched_setaffinity(0, {place.client})
        for number in range(1 if quick else 6):
            for shape in SHAPES:
                for server in turned:
                    found = server.load(shape, CONNECTIONS if quick else shape.requests)
                    if number or quick:  # the first round warms up
                        loads[shape.name, server.mode].append(found)
            turned.rotate(1)
        os.sched_setaffinity(0, cores)
        for server in servers:
            server.stop()
        records = sum(server.check() for server in servers)
        return f"{records:,} requests to servers with ours, as many records; verify: the books balance"


Read = Callable[[Load], float]


def _report(shape: Shape, loads: Loads, names: list[str]) -> Report:
    report = Report(f"vLLM, {shape.name}: {CONNECTIONS} connections, prompts of 200 words, ratios to no logging")
    bases = [loads[shape.name, mode] for mode in BASES]

    def compare(figure: str, unit: str, read: Read, goal: Goal | None = None) -> None:
        none = [(read(one) + read(other)) / 2 for one, other in zip(*bases, strict=True)]
        report.add(f"{figure}: none", unit, none)
        report.add(f"{figure}: control ÷ none", "×", ratios(map(read, bases[1]), map(read, bases[0])))
        for mode in names[len(BASES) :]:
            found = ratios(map(read, loads[shape.name, mode]), none)
            report.add(f"{figure}: {mode} ÷ none", "×", found, goal if mode == "ours" else None)

    compare("req/s", "req/s", attrgetter("requests_per_s"), at_least(0.995))
    compare("time to first token p50" if shape.stream else "latency p50", "ms", attrgetter("first_ms"))
    compare("CPU of the API server per request", "µs", attrgetter("cpu_us"), at_most(1.01))
    if own := loads.get((shape.name, "ours")):
        report.add("ours: on the request path, as it says itself", "µs", (one.hot_path_us for one in own))
        report.add("ours: listener, CPU per request", "µs", (one.listener_us for one in own))
        shares = [(one.hot_path_us + one.listener_us) / one.cpu_us for one in own]
        report.add("ours: both, of the API server's CPU", "×", shares, at_most(0.01))
    return report


def main() -> None:
    """Measure and print."""
    parser = harness.parser(__doc__)
    parser.add_argument("--modes", nargs="*", choices=list(MODES), default=list(MODES), metavar="MODE")
    options: argparse.Namespace = parser.parse_args()
    usable = sorted(os.sched_getaffinity(0))
    place = Place(usable[0], usable[1 % len(usable)], usable[2] if len(usable) > 2 else usable[0])
    where = f"API server on core {place.api}, engine on core {place.engine}, client on core {place.client}"
    harness.measured(
        options,
        "make bench-vllm",
        f"{where}; median (lowest … highest round)",
        lambda: {"sections": sections(modes(place, options.modes, options.quick))},
    )


if __name__ == "__main__":
    main()
