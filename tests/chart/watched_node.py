"""What node_exporter and cAdvisor report of this machine and of processes in it, as Prometheus scrapes them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

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
