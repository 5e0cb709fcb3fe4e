"""Two pods under load, one with a listener, an audit lane, a shipper and losses, and a Prometheus that scrapes all.

It also scrapes what node_exporter and cAdvisor would report of this machine and of the processes.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from inference_logging import Config
from tests.chart.prometheus import Prometheus, Target, installed, scraping, written_rules
from tests.kit.c_programs import built
from tests.kit.servers import Clients, Server, free_port, serving
from tests.kit.sidecars import Sidecar, environment
from tests.kit.support import wait_until
from tests.ship.endpoint import Collector

_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Node:
    """This machine as a node, and the processes that are containers of it."""

    def __init__(self) -> None:
        """Begin without containers."""
        self._containers: dict[tuple[str, str, str], int] = {}

    def add(self, namespace: str, pod: str, container: str, pid: int) -> None:
        """Report a process, and of those of its session if it leads one."""
        self._containers[namespace, pod, container] = pid

    def text(self) -> str:
        """Return all series."""
        name = os.uname().nodename
        lines = [f'node_uname_info{{nodename="{name}"}} 1']
        for line in Path("/proc/stat").read_text().splitlines():
            cpu, *ticks = line.split()
            if cpu.startswith("cpu") and cpu != "cpu":
                for mode, count in zip(_MODES, ticks, strict=False):
                    labels = f'cpu="{cpu.removeprefix("cpu")}",mode="{mode}"'
                    lines.append(f"node_cpu_seconds_total{{{labels}}} {int(count) * _TICK_S}")
        seconds = dict(_processes())
        for (namespace, pod, container), pid in self._containers.items():
            used = sum(took for (one, session), took in seconds.items() if pid in (one, session))
            labels = f'namespace="{namespace}",pod="{pod}",container="{container}",node="{name}"'
            lines.append(f"container_cpu_usage_seconds_total{{{labels}}} {used}")
        return "\n".join([*lines, ""])


def _processes() -> Iterator[tuple[tuple[int, int], float]]:
    """Yield process and session, and the seconds of processor that it and its dead children have used."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            # The name, in parentheses, can have blanks.
            fields = path.read_text().rpartition(")")[2].split()
            yield (int(path.parent.name), int(fields[3])), sum(map(int, fields[11:15])) * _TICK_S


@contextlib.contextmanager
def serving_node(node: Node) -> Iterator[int]:
    """Serve its series; yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = node.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLE = ROOT / "examples" / "fastapi"
CHAT = ("serving", "chat")
COMPLETIONS = ("batch", "completions")
"""Namespace and service of each."""
MODELS = ("large", "small")
TENANTS = ("acme", "example", "somebody")
SINKS = "INFERENCE_LOGGING_ADDITIONAL_SINKS"
SETTINGS = {
    "INFERENCE_LOGGING_RECORD_HEADERS": "x-tenant=tenant.id",
    "INFERENCE_LOGGING_METRICS_TENANTS": ",".join(TENANTS[:2]),
    "INFERENCE_LOGGING_ENGINE_RECORDS": "on",
    "INFERENCE_LOGGING_ENGINE_STATS_INTERVAL_S": "1",
    "PYTHONPATH": os.pathsep.join((str(EXAMPLE), str(ROOT), *filter(None, (os.environ.get("PYTHONPATH"),)))),
}
"""What all servers have in their environment."""


class Load(Clients):
    """Clients of a server, until the end: streams, whole answers, refused and failing ones, some that go away."""

    def __init__(self, server: Server, clients: int, pause_s: float) -> None:
        """Take the server that they ask."""
        self._url, self._pause_s = server.url, pause_s
        super().__init__(self._ask, clients)

    def _ask(self, client: int) -> None:
        drawn, number = random.Random(client), 0
        with httpx.Client(base_url=self._url, timeout=120) as connection:
            while not self._ending.wait(drawn.expovariate(1 / self._pause_s)):
                number += 1
                # While a server ends or begins anew, there is none.
                with contextlib.suppress(httpx.TransportError):
                    self._one(connection, drawn, number)

    def _one(self, client: httpx.Client, drawn: random.Random, number: int) -> None:
        headers = {"x-tenant": drawn.choice(TENANTS)}
        tokens, pace = 1 + int(drawn.expovariate(1 / 12)), drawn.choice((60, 200, 1000))
        texts = {"messages": [{"role": "user", "content": "word " * drawn.randint(1, 300)}]}
        whole = {"model": drawn.choice(MODELS), "max_tokens": tokens, "tokens_per_second": pace, **texts}
        streamed = {**whole, "stream": True, "stream_options": {"include_usage": True}}
        client.post("/v1/chat/completions", json=streamed if number % 2 else whole, headers=headers)
        client.post("/v1/completions", json={**whole, "max_tokens": number % 24}, headers=headers)  # 0: refused
        if number % 30 == 0:
            client.post("/v1/embeddings", json=whole)  # not there
            client.post("/v1/responses", json=whole)  # fails
        if number % 10 == 0:
            client.post("/audited")
            client.get("/health")
        if number % 25 == 0:
            with client.stream("POST", "/v1/chat/completions", json={**streamed, "max_tokens": 500}) as answer:
                next(answer.iter_raw())  # and goes away


@dataclass(frozen=True)
class Watched:
    """Everything together."""

    prometheus: Prometheus
    config: Config
    listener: Sidecar
    directory: Path
    reader: socket.socket
    """Of the additional sink of the chats."""
    node: Node

    @contextlib.contextmanager
    def completions(self, pod: str) -> Iterator[None]:
        """Run another pod for completions, whose server listens itself."""
        directory = self.directory / pod
        config = Config(directory=directory / "segments", queue_directory=directory / "queues", metrics_path="/metrics")
        with serving(config, *_command(1), **SETTINGS) as server, Load(server, 1, 0.1):
            self.node.add(COMPLETIONS[0], pod, "server", server.process.pid)
            Target(server.port, "server", *COMPLETIONS, pod).add_to(self.prometheus.targets)
            yield

    def lose_copies(self) -> None:
        """End who reads the additional sink."""
        self.reader.close()

    def lose_records(self) -> None:
        """Stop the listener of the chats until their queue has been full."""
        self.listener.signal(signal.SIGSTOP)
        dropped = 'sum(increase(inference_logging_records_dropped_total{reason="queue_full"}[10m])) > 0'
        wait_until(lambda: self.prometheus.query(dropped), "a queue to be full")
        self.listener.signal(signal.SIGCONT)


@contextlib.contextmanager
def watched(directory: Path, interval: str = "1s", clients: int = 1) -> Iterator[Watched]:
    """Run all: nothing is lost yet."""
    installed("prometheus")
    config = _config(directory)
    with ExitStack() as running:
        reader = running.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        reader.bind(("127.0.0.1", 0))
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**SETTINGS, SINKS: f"udp://127.0.0.1:{reader.getsockname()[1]}"}.items():
                patch.setenv(name, value)
            listener = running.enter_context(Sidecar(config, "--metrics-port", "0", "--metrics-address", "127.0.0.1"))
            port = wait_until(lambda: _reported_port(listener), "the listener's port")
            server = running.enter_context(serving(config, *_command(2)))
            shipper, shipping, parent = _shipping(config, running)
        ports = [("server", server.port), ("listener", port), ("shipper", shipping), ("shipper", parent)]
        targets = [Target(port, container, *CHAT, "chat-0") for container, port in ports]
        node = Node()
        for container, pid in {
            "server": server.process.pid,
            "listener": listener.process.pid,
            "shipper": shipper,
        }.items():
            node.add(CHAT[0], "chat-0", container, pid)
        targets.append(Target(running.enter_context(serving_node(node)), "node-exporter", "", "", ""))
        running.enter_context(Load(server, clients, 0.02))
        prometheus = running.enter_context(scraping(directory, targets, written_rules(), interval))
        seen = Watched(prometheus, config, listener, directory, reader, node)
        running.enter_context(seen.completions("completions-0"))
        yield seen


def _config(directory: Path) -> Config:
    return Config(
        directory=directory / "segments",
        queue_directory=directory / "queues",
        queue_bytes=1 << 16,
        max_record_bytes=1 << 14,
        sink_buffer_bytes=1 << 16,
        listener="external",
        metrics_path="/metrics",
        sample_ratio=0.5,
        flush_interval_s=0.1,
        rotate_bytes=1 << 15,
        quota_bytes=5 << 14,
        compress="zstd",
        compress_keep_segments=1,
        audit="on",
        audit_directory=directory / "audit",
    )


def _command(workers: int) -> tuple[str, ...]:
    options = ("--app-dir", str(HERE), "--port", "{port}", "--workers", str(workers), "--no-access-log")
    return ("uvicorn", "watched_app:app", *options)


def _reported_port(listener: Sidecar) -> int | None:
    found = [re.search(r"serves /metrics on port (\d+)", line) for line in listener.lines]
    return next((int(match[1]) for match in found if match), None)


def _shipping(config: Config, running: ExitStack) -> tuple[int, int, int]:
    """Run a shipper to a collector below a parent; return the parent, and the ports of the metrics of both."""
    collector, port, parent = Collector(), free_port(), free_port()
    running.callback(collector.close)
    supervise = [str(built() / "inference-logging-listener"), "supervise"]
    ship = [sys.executable, "-m", "inference_logging.cli.main", "ship", "--metrics-port", str(port)]
    given: dict[str, Any] = {**environment(config), "INFERENCE_LOGGING_SHIP_TO": collector.url}
    process = subprocess.Popen(
        [*supervise, f"--metrics-port={parent}", "--", *ship],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=given,
    )
    running.callback(process.wait, 60)
    running.callback(process.terminate)
    return process.pid, port, parent
