"""The reverse proxy as a process, and servers behind it that send exactly the bytes they are given."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from inference_logging import Config
from tests.kit.sidecars import environment
from tests.kit.support import read_records, wait_until

Serve = Callable[[socket.socket], None]
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Made-By: Server\r\n\r\nhello"
GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


class Proxy:
    """The proxy in front of a port of this machine, until it is stopped."""

    def __init__(self, program: Path, config: Config, to: int, *options: str) -> None:
        """Start it at a free port."""
        self.config = config
        command = [
            str(program),
            "proxy",
            "--listen",
            "127.0.0.1:0",
            "--to",
            f"127.0.0.1:{to}",
            "--threads",
            "1",
            *options,
        ]
        self.process = subprocess.Popen(command, env=environment(config), stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        first = self.process.stderr.readline()
        assert "listens on" in first, first + self.process.stderr.read()
        self.port = int(first.split("listens on ")[1].split(",")[0].rsplit(":", 1)[1])

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"http://127.0.0.1:{self.port}"

    def records(self, event: str = "request") -> list[dict[str, Any]]:
        """Return the records of an event that are written by now."""
        return read_records(self.config.directory, event)

    def record(self, event: str = "request") -> dict[str, Any]:
        """Wait for the one record of an event."""
        wait_until(lambda: self.records(event), f"a record of {event}")
        [record] = self.records(event)
        return record

    def stop(self) -> int:
        """Ask it to end, and return its exit code."""
        self.process.terminate()
        return self.process.wait(60)

    def end(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait(60)
        assert self.process.stderr is not None
        self.process.stderr.close()


Start = Callable[..., Proxy]


class Raw:
    """A server of one function: it gets each connection, and what it sends is what a client has to see."""

    def __init__(self, serve: Serve) -> None:
        """Listen at a free port."""
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self.socket.getsockname()[1]
        self.serve = serve
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self.serve(connection)

    def close(self) -> None:
        """Take no more connections."""
        self.socket.close()


@contextlib.contextmanager
def raw(serve: Serve) -> Iterator[Raw]:
    """Run such a server."""
    server = Raw(serve)
    try:
        yield server
    finally:
        server.close()


def head_of(connection: socket.socket) -> bytes:
    """Read a request up to the end of its head, and what came with it."""
    found = b""
    while b"\r\n\r\n" not in found:
        part = connection.recv(65_536)
        if not part:
            return found
        found += part
    return found


def once(answer: bytes, heads: list[bytes] | None = None) -> Serve:
    """Return a server that answers one request of a connection with these bytes, and notes its head."""

    def serve(connection: socket.socket) -> None:
        head = head_of(connection)
        if heads is not None:
            heads.append(head)
        connection.sendall(answer)

    return serve


TICK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntick\r\n"
"""The first half of an answer."""


def ticking(goes_on: threading.Event | None = None) -> Serve:
    """Return a server that sends half an answer, and the rest once ``goes_on`` is set; without it never."""

    def serve(connection: socket.socket) -> None:
        once(TICK)(connection)
        if goes_on is None:
            connection.recv(1)
            return
        assert goes_on.wait(60)
        connection.sendall(b"4\r\ntock\r\n0\r\n\r\n")

    return serve


def answers(answer: bytes) -> Serve:
    """Return a server that reads each request of a connection, and answers it with these bytes."""

    def serve(connection: socket.socket) -> None:
        while found := head_of(connection):
            head, _, body = found.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            left = int(length[1]) - len(body) if length else 0
            while left > 0 and (part := connection.recv(left)):
                left -= len(part)
            connection.sendall(answer)

    return serve


def exchange(port: int, request: bytes) -> bytes:
    """Send bytes over a connection of its own, and return everything that comes back until it is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65_536), b""))


HOST = b"Host: a\r\n"

END = b"Connection: close\r\n\r\n"

LINE = b"GET / HTTP/1.1\r\n"


def status_of(answer: bytes) -> int:
    """Return the status of an answer; 0: there is none, or its connection ended."""
    found = re.match(rb"HTTP/1\.[01] (\d{3}) ", answer)
    return int(found[1]) if found else 0
