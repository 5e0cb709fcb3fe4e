"""How requests end behind the proxy, and the limits of its clients: time, number, and where what it closed shows."""

from __future__ import annotations

import contextlib
import shlex
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, StreamEnded

from tests.kit.command_line import run
from tests.kit.proxies import (
    END,
    GET,
    HELLO,
    HOST,
    TICK,
    Proxy,
    Start,
    answers,
    exchange,
    once,
    raw,
    status_of,
    ticking,
)
from tests.kit.proxies import LINE as BEGINNING
from tests.kit.signatures import Configure
from tests.kit.support import read_records, wait_until

pytestmark = pytest.mark.servers


@pytest.fixture
def refusing() -> Iterator[int]:
    """Give a port that refuses connections, and that no other test gets."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_a_client_that_leaves_is_recorded_and_the_server_notices(proxying: Start) -> None:
    noticed = threading.Event()

    def serve(connection: socket.socket) -> None:
        once(TICK)(connection)
        if connection.recv(1) == b"":
            noticed.set()

    with raw(serve) as server:
        proxy = proxying(server.port)
        with httpx.stream("GET", proxy.url, timeout=60) as answer:
            assert next(answer.iter_raw()) == b"tick"
        assert noticed.wait(60)
    assert proxy.record()["outcome"] == "client_disconnect"


def test_a_server_that_dies_in_the_middle_is_an_error_for_client_and_record(proxying: Start) -> None:
    with raw(once(TICK)) as server:
        proxy = proxying(server.port)
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(proxy.url, timeout=60)
    record = proxy.record()
    assert (record["outcome"], record["chunks"]) == ("error", 1)
    assert record["error.type"].endswith("ServerLost")


def test_a_server_that_is_not_there_is_a_502_with_the_reason_on_record(proxying: Start, refusing: int) -> None:
    proxy = proxying(refusing)
    answer = httpx.get(f"{proxy.url}/v1/models", timeout=60)
    assert (answer.status_code, "no answer" in answer.json()["detail"]) == (502, True)
    record, message = proxy.record(), proxy.record("log")
    assert (record["outcome"], record["http.response.status_code"]) == ("error", 502)
    assert "refused" in message["attributes"]["reason"]
    assert message["attributes"]["server.address"] == f"127.0.0.1:{refusing}"
    assert message["request_id"] == record["request_id"]


def test_a_call_over_grpc_to_a_server_that_is_not_there_is_unavailable(proxying: Start, refusing: int) -> None:
    proxy = proxying(refusing)
    with httpx.Client(http1=False, http2=True, timeout=60) as client:
        head = {"content-type": "application/grpc", "te": "trailers"}
        answer = client.post(f"{proxy.url}/package.Service/Method", headers=head, content=bytes(5))
    # 14 is UNAVAILABLE; gRPC has the failure of a call in its own status, not in that of HTTP.
    assert (answer.status_code, answer.headers["grpc-status"], answer.content) == (200, "14", b"")
    assert (answer.headers["content-type"], "no answer" in answer.headers["grpc-message"]) == ("application/grpc", True)
    record = proxy.record()
    assert (record["outcome"], record["rpc.response.status_code"]) == ("error", "UNAVAILABLE")
    assert (record["error.type"], record["rpc.method"]) == ("UNAVAILABLE", "package.Service/Method")
    assert "refused" in proxy.record("log")["attributes"]["reason"]


def test_a_connection_that_the_server_has_closed_is_not_used_again(proxying: Start) -> None:
    with raw(once(HELLO)) as server:
        proxy = proxying(server.port)
        with httpx.Client(timeout=60) as client:
            assert [client.get(proxy.url).status_code for _ in range(5)] == [200] * 5


def test_connections_to_the_server_are_used_again(proxying: Start) -> None:
    connections: list[int] = []

    def serve(connection: socket.socket) -> None:
        connections.append(connection.fileno())
        answers(HELLO)(connection)

    with raw(serve) as server:
        proxy = proxying(server.port)
        for _ in range(5):
            assert exchange(proxy.port, GET).endswith(b"hello")
    assert len(connections) == 1


def test_a_drain_lets_requests_end(proxying: Start) -> None:
    goes_on = threading.Event()
    with raw(ticking(goes_on)) as server:
        proxy = proxying(server.port, drain_deadline_s=60.0)
        with httpx.stream("GET", proxy.url, timeout=60) as answer:
            parts = answer.iter_raw()
            assert next(parts) == b"tick"
            proxy.process.terminate()
            assert proxy.process.stderr is not None
            assert "no more connections" in proxy.process.stderr.readline()
            goes_on.set()
            assert b"".join(parts) == b"tock"
        assert proxy.process.wait(60) == 0
    assert proxy.record()["outcome"] == "ok"


def test_a_request_that_outlasts_the_drain_ended_with_the_server(proxying: Start) -> None:
    with raw(ticking()) as server:
        proxy = proxying(server.port, drain_deadline_s=0.5)
        with httpx.stream("GET", proxy.url, timeout=60) as answer:
            parts = answer.iter_raw()
            assert next(parts) == b"tick"
            assert proxy.stop() == 0
    assert proxy.record()["outcome"] == "server_shutdown"


def test_a_killed_proxy_leaves_a_record_for_each_open_request(proxying: Start) -> None:
    with raw(ticking()) as server:
        proxy = proxying(server.port)
        clients = [httpx.Client(timeout=60) for _ in range(8)]
        requests = [client.build_request("GET", f"{proxy.url}/{number}") for number, client in enumerate(clients)]
        open_answers = [client.send(request, stream=True) for client, request in zip(clients, requests, strict=True)]
        parts = [answer.iter_raw() for answer in open_answers]
        assert [next(part) for part in parts] == [b"tick"] * 8
        proxy.process.kill()
        proxy.process.wait(60)
        for client in clients:
            client.close()
    queue = str(proxy.config.resolved_queue_directory)
    recovered = run("recover", queue, "--directory", str(proxy.config.directory))
    assert recovered.code == 0, recovered
    records = read_records(proxy.config.directory, "request")
    assert sorted(record["url.path"] for record in records) == [f"/{number}" for number in range(8)]
    assert {record["outcome"] for record in records} == {"process_died"}
    assert run("verify", str(proxy.config.directory), "--queue-directory", queue).code == 0


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
        assert status_of(exchange(proxy.port, BEGINNING + HOST + END)) == 200
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
            client.sendall(BEGINNING + HOST + b"\r\n")
            assert status_of(client.recv(1024)) == 200
        with contextlib.suppress(ConnectionError):
            assert exchange(proxy.port, BEGINNING + HOST + END) == b""


def test_a_client_is_answered_beside_more_silent_ones_than_there_are_descriptors(
    listener_binary: Path, configure: Configure, tmp_path: Path
) -> None:
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nulimit -n 256\nexec {shlex.quote(str(listener_binary))} "$@"\n')
    limited.chmod(0o700)
    with raw(answers(HELLO)) as server, contextlib.ExitStack() as open_:
        proxy = Proxy(limited, configure(), server.port, "--header-timeout", "3600")
        open_.callback(proxy.end)
        for _ in range(300):
            open_.enter_context(socket.create_connection(("127.0.0.1", proxy.port), timeout=60))
        assert status_of(exchange(proxy.port, BEGINNING + HOST + END)) == 200


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
    with raw(ticking(goes_on)) as stream, raw(answers(HELLO)) as server:
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
