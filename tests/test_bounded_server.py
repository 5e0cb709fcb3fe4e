"""A side process's port: connections that send nothing cost a bounded number of threads and keep nobody out."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from inference_logging.record.asgi.bounded_server import MOST_CONNECTIONS, BoundedServer, serve


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [environ["PATH_INFO"].encode()]


@pytest.fixture
def server() -> Iterator[BoundedServer]:
    server = serve("127.0.0.1", 0, application)
    yield server
    server.shutdown()
    server.server_close()


def get(server: BoundedServer) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=120)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().read()
    finally:
        connection.close()


def test_half_open_connections_take_a_bounded_number_of_threads_and_others_are_answered(
    server: BoundedServer, capfd: pytest.CaptureFixture[str]
) -> None:
    before = threading.active_count()
    with ExitStack() as stack:
        for number in range(10 * MOST_CONNECTIONS):
            half_open = stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=120))
            half_open.sendall(b"GET /hea" if number % 2 else b"")
            if number % MOST_CONNECTIONS == 0:
                assert get(server) == b"/health"
            assert threading.active_count() <= before + MOST_CONNECTIONS
        assert get(server) == b"/health"
        assert threading.active_count() <= before + MOST_CONNECTIONS
    assert "Traceback" not in capfd.readouterr().err


def test_a_client_that_goes_away_frees_its_place(server: BoundedServer) -> None:
    for _ in range(3 * MOST_CONNECTIONS):
        socket.create_connection(("127.0.0.1", server.server_port), timeout=120).close()
    assert get(server) == b"/health"


def test_a_request_without_a_version_is_refused(server: BoundedServer) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=120) as connection:
        connection.sendall(b"GET /health\r\n\r\n")
        with connection.makefile("rb") as answer:
            assert b"the request has no version of HTTP" in answer.read()
    assert get(server) == b"/health"
