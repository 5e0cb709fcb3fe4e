"""A server of `view` in the test's process, and requests to it as a browser or somebody else sends them."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import orjson

from inference_logging.read.table.table import Table
from inference_logging.read.view.app import Content, View
from inference_logging.read.view.links import Link
from inference_logging.read.view.server import Serving, bind


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body's content."""
        return json.loads(self.body)


class Client:
    """Sends requests to a server by sockets: what it sends is what stands on the wire."""

    def __init__(self, serving: Serving, view: View) -> None:
        """Talk to a server."""
        self.serving, self.view = serving, view
        self.port: int = serving.port
        self.prefix = serving.url.split("/", 3)[3]
        """The token and a slash."""

    @property
    def own(self) -> str:
        """The value of Host that a browser sends."""
        return f"127.0.0.1:{self.port}"

    def send(self, target: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> Answer:
        """Send a request with these headers instead of the usual ones, and return the whole answer."""
        with self.connect(target, headers, method) as stream:
            return _read(stream)

    def connect(self, target: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> socket.socket:
        """Send a request and return its connection."""
        given = {"Host": self.own, "Connection": "close", **(headers or {})}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items() if value)]
        stream = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        stream.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("utf-8"))
        return stream

    def target(self, path: str, **parameters: Any) -> str:
        """Return the target of a path below the token; parameters that are no text go as JSON."""
        given = {name: one if isinstance(one, str) else json.dumps(one) for name, one in parameters.items()}
        return f"/{self.prefix}{quote(path)}" + (f"?{urlencode(given)}" if given else "")

    def get(self, path: str, **parameters: Any) -> Answer:
        """Return the answer to the page's own request."""
        return self.send(self.target(path, **parameters), {"Sec-Fetch-Site": "same-origin"})

    def rows(self, **query: Any) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        answer = self.get("api/rows", q=query)
        assert answer.status == 200, answer
        found: list[dict[str, Any]] = answer.json()["rows"]
        return found


def _read(stream: socket.socket) -> Answer:
    content = b""
    while block := stream.recv(1 << 16):
        content += block
    head, _, body = content.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = _joined(body)
    return Answer(int(status.split()[1]), headers, body)


def _joined(body: bytes) -> bytes:
    found = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        found, body = found + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return found


@contextmanager
def serving(directories: Sequence[Path], index: Table | None = None, links: Sequence[Link] = ()) -> Iterator[Client]:
    """Serve directories with an index, without one with the table, until the end of the block."""
    with tempfile.TemporaryDirectory() as cache:
        used = index if index is not None else Table(directories, None, Path(cache))
        used.refresh(20.0)
        with _running(View(used, Content(tuple(directories), None, tuple(links)))) as client:
            yield client


@contextmanager
def _running(view: View) -> Iterator[Client]:
    made = Serving(view, bind("127.0.0.1", 0))
    started = threading.Event()
    thread = threading.Thread(target=made.run, args=(started.set,))
    thread.start()
    try:
        assert started.wait(20)
        yield Client(made, view)
    finally:
        made.stop()
        thread.join(20)
        assert not thread.is_alive()


LINE = re.compile(
    r"http://(?P<host>127\.0\.0\.1|\[::1\]):(?P<port>\d+)/(?P<token>[\w-]{43})/ "
    r"\(elsewhere: ssh -L (\d+):(\S+):(\d+) \S+@\S+\); Ctrl-C ends it\n"
)


class Started(NamedTuple):
    """A running command."""

    process: subprocess.Popen[str]
    port: int
    token: str

    def get(self, path: str) -> tuple[int, Any]:
        """Return status and content of an answer."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)) as connection:
            connection.request("GET", f"/{self.token}/{path}")
            answer = connection.getresponse()
            return answer.status, orjson.loads(answer.read() or b"null")

    def wait_for_rows(self, number: int) -> None:
        """Wait until so many records are indexed."""
        deadline = time.monotonic() + 180
        while self.get("api/progress")[1].get("rows") != number:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@contextmanager
def started(*arguments: str, cache: Path) -> Iterator[Started]:
    command = [sys.executable, "-m", "inference_logging.cli.main", "view", "--no-browser", *arguments]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            match = LINE.fullmatch(process.stdout.readline())
            assert match is not None, process.communicate(timeout=120)
            assert match[4] == match["port"] == match[6]
            yield Started(process, int(match["port"]), match["token"])
        finally:
            process.kill()
