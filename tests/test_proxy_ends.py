"""How requests end behind the proxy: clients and servers that go, connections that close, a drain, a kill."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.command_line import run
from tests.proxies import GET, HELLO, Start, answers, exchange, head_of, raw
from tests.support import read_records

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
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntick\r\n")
        if connection.recv(1) == b"":
            noticed.set()

    with raw(serve) as server:
        proxy = proxying(server.port)
        with httpx.stream("GET", proxy.url, timeout=60) as answer:
            assert next(answer.iter_raw()) == b"tick"
        assert noticed.wait(60)
    assert proxy.record()["outcome"] == "client_disconnect"


def test_a_server_that_dies_in_the_middle_is_an_error_for_client_and_record(proxying: Start) -> None:
    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntick\r\n")

    with raw(serve) as server:
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
    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(HELLO)

    with raw(serve) as server:
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

    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntick\r\n")
        assert goes_on.wait(60)
        connection.sendall(b"4\r\ntock\r\n0\r\n\r\n")

    with raw(serve) as server:
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
    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntick\r\n")
        connection.recv(1)

    with raw(serve) as server:
        proxy = proxying(server.port, drain_deadline_s=0.5)
        with httpx.stream("GET", proxy.url, timeout=60) as answer:
            parts = answer.iter_raw()
            assert next(parts) == b"tick"
            assert proxy.stop() == 0
    assert proxy.record()["outcome"] == "server_shutdown"


def test_a_killed_proxy_leaves_a_record_for_each_open_request(proxying: Start) -> None:
    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntick\r\n")
        connection.recv(1)

    with raw(serve) as server:
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
