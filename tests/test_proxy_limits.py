"""How long clients of the proxy may say nothing, how many there may be, and where what it closed is counted."""

from __future__ import annotations

import contextlib
import shlex
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, StreamEnded

from inference_logging import Config
from tests.proxies import HELLO, Proxy, Start, answers, exchange, head_of, raw
from tests.support import wait_until
from tests.test_proxy_heads import END, GET, HOST, status_of

pytestmark = pytest.mark.servers

SILENT = pytest.mark.parametrize(
    "said", [b"", b"PRI * HT", b"GET / HT"], ids=["nothing", "half a preface", "half a line"]
)


@SILENT
def test_connections_without_a_request_keep_no_new_client_out(proxying: Start, said: bytes) -> None:
    with raw(answers(HELLO)) as server, contextlib.ExitStack() as open_:
        proxy = proxying(server.port, "--max-connections", "8", "--header-timeout", "3600")
        for _ in range(40):
            silent = open_.enter_context(socket.create_connection(("127.0.0.1", proxy.port), timeout=60))
            silent.sendall(said)
        assert status_of(exchange(proxy.port, GET + HOST + END)) == 200
        wait_until(lambda: proxy.records("log"), "a record of what was closed")
    assert proxy.records("log")[0]["message"] == "connections closed without a request"


@SILENT
def test_a_client_that_sends_no_head_is_given_up(proxying: Start, said: bytes) -> None:
    with raw(answers(HELLO)) as server:
        proxy = proxying(server.port, "--header-timeout", "1")
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as silent:
            silent.sendall(said)
            while silent.recv(1024):
                pass


def test_of_connections_with_requests_the_new_one_is_closed(proxying: Start) -> None:
    with raw(answers(HELLO)) as server, contextlib.ExitStack() as open_:
        proxy = proxying(server.port, "--max-connections", "2")
        for _ in range(2):
            client = open_.enter_context(socket.create_connection(("127.0.0.1", proxy.port), timeout=60))
            client.sendall(GET + HOST + b"\r\n")
            assert status_of(client.recv(1024)) == 200
        with contextlib.suppress(ConnectionError):
            assert exchange(proxy.port, GET + HOST + END) == b""


def test_a_client_is_answered_beside_more_silent_ones_than_there_are_descriptors(
    listener_binary: Path, configure: Callable[..., Config], tmp_path: Path
) -> None:
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nulimit -n 256\nexec {shlex.quote(str(listener_binary))} "$@"\n')
    limited.chmod(0o700)
    with raw(answers(HELLO)) as server, contextlib.ExitStack() as open_:
        proxy = Proxy(limited, configure(), server.port, "--header-timeout", "3600")
        open_.callback(proxy.end)
        for _ in range(300):
            open_.enter_context(socket.create_connection(("127.0.0.1", proxy.port), timeout=60))
        assert status_of(exchange(proxy.port, GET + HOST + END)) == 200


GOAWAY = 7


class Http2:
    """A connection of a client by HTTP/2."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._connection = H2Connection(H2Configuration(client_side=True))
        self._connection.initiate_connection()
        self._streams = 0

    def ask(self) -> None:
        """Send a request."""
        head = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")]
        self._connection.send_headers(2 * self._streams + 1, head, end_stream=True)
        self._streams += 1
        self.socket.sendall(self._connection.data_to_send())

    def rest(self) -> list[int]:
        """Read to the end of the connection, and return the types of its frames."""
        left, types = b"".join(iter(lambda: self.socket.recv(65_536), b"")), []
        while left:
            types.append(left[3])
            left = left[9 + int.from_bytes(left[:3], "big") :]
        return types

    def read_until(self, kind: type[Event]) -> None:
        """Read until something has happened."""
        events: list[Event] = []
        while not any(isinstance(event, kind) for event in events):
            part = self.socket.recv(65_536)
            assert part, f"the connection has ended before {kind.__name__}"
            events = self._connection.receive_data(part)
            self.socket.sendall(self._connection.data_to_send())


def test_an_idle_connection_by_http2_is_ended_and_one_with_an_open_answer_is_not(proxying: Start) -> None:
    goes_on = threading.Event()

    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntick\r\n")
        assert goes_on.wait(60)
        connection.sendall(b"4\r\ntock\r\n0\r\n\r\n")

    with raw(serve) as stream, raw(answers(HELLO)) as server:
        slow, quick = (proxying(one.port, "--header-timeout", "1") for one in (stream, server))
        busy, idle = Http2(slow.port), Http2(quick.port)
        with busy.socket, idle.socket:
            busy.ask()
            busy.read_until(DataReceived)
            for _ in range(2):
                idle.ask()
                idle.read_until(StreamEnded)
            # The one with an answer has been open for longer than this one was idle.
            assert GOAWAY in idle.rest()
            goes_on.set()
            busy.read_until(StreamEnded)


def silent(proxy: Proxy, open_: contextlib.ExitStack) -> list[socket.socket]:
    """Open three connections on which nothing is said."""
    return [open_.enter_context(socket.create_connection(("127.0.0.1", proxy.port), timeout=60)) for _ in range(3)]


def end_of(proxy: Proxy) -> dict[str, int]:
    """End the proxy, and return what it puts on record about that."""
    assert proxy.stop() == 0
    [end] = [log["attributes"] for log in proxy.records("log") if log["message"] == "the proxy ended"]
    assert isinstance(end, dict)
    return end


def test_one_that_made_room_is_counted_in_the_record_of_the_end(proxying: Start) -> None:
    with raw(answers(HELLO)) as server, contextlib.ExitStack() as open_:
        proxy = proxying(server.port, "--max-connections", "2", "--header-timeout", "3600")
        assert silent(proxy, open_)[0].recv(1) == b""
        assert end_of(proxy) == {"connections_closed": 1, "header_timeout": 0, "max_connections": 1}


def test_those_that_were_silent_for_too_long_are_a_metric(proxying: Start) -> None:
    with raw(answers(HELLO)) as server, contextlib.ExitStack() as open_:
        proxy = proxying(server.port, "--header-timeout", "1", metrics_path="/own-metrics")
        silent(proxy, open_)

        def counted() -> float:
            sample = 'inference_logging_proxy_connections_closed_total{reason="header_timeout"} '
            metrics = exchange(proxy.port, b"GET /own-metrics HTTP/1.1\r\n" + HOST + END).decode()
            return sum(float(line.removeprefix(sample)) for line in metrics.splitlines() if line.startswith(sample))

        wait_until(lambda: counted() >= 3, "three to be counted")
        assert end_of(proxy)["header_timeout"] >= 3
