"""A real vLLM whose clients leave: it answers 200 to nobody, and the record says client_disconnect."""

from __future__ import annotations

import json
import re
import socket
from typing import Any

import pytest

from tests.integrations.vllm_server import VllmServer
from tests.support import wait_until

pytestmark = pytest.mark.vllm

LONG = 8000
BODIES = {
    "/v1/completions": {"prompt": "tell me a story", "max_tokens": LONG, "ignore_eos": True},
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "tell me a story"}],
        "max_tokens": LONG,
        "ignore_eos": True,
    },
    "/v1/messages": {
        "messages": [{"role": "user", "content": "tell me a story"}],
        "max_tokens": LONG,
    },
    "/v1/responses": {"input": "tell me a story", "max_output_tokens": LONG, "ignore_eos": True},
}
# In an event with text, of each protocol.
WRITTEN = rb'"(content|delta|text)":"[^"]'


def ask(server: VllmServer, path: str, name: str, *, stream: bool) -> socket.socket:
    """Send a request, byte by byte as curl does, and return its connection."""
    body = json.dumps({"model": "tiny", "stream": stream, **BODIES[path]}).encode()
    name = server.names.take(name)
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nx-request-id: {name}\r\ncontent-length: {len(body)}\r\n"
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=180)
    connection.sendall(f"{head}content-type: application/json\r\n\r\n".encode() + body)
    return connection


def read_until(connection: socket.socket, mark: bytes) -> None:
    """Read until what the pattern ``mark`` describes has come."""
    read = b""
    while not re.search(mark, read):
        more = connection.recv(65536)
        assert more, f"the stream ended before {mark!r}: {read!r}"
        read += more


def running(server: VllmServer) -> float:
    """Return how many requests the engine says it works on."""
    metrics = server.client.get("/metrics").text
    return sum(float(number) for number in re.findall(r"^vllm:num_requests_running\{.*\} (.+)$", metrics, re.MULTILINE))


def leave(server: VllmServer, path: str, name: str, *, stream: bool) -> dict[str, Any]:
    """Ask and leave before the answer is whole; return the record of that."""
    with ask(server, path, name, stream=stream) as connection:
        if stream:
            read_until(connection, WRITTEN)
        else:
            wait_until(lambda: running(server) == 1, "the engine to work on it")
    return server.record(name)


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_that_its_client_leaves_is_recorded_with_what_it_got(vllm: VllmServer, path: str) -> None:
    record = leave(vllm, path, f"left-stream{path.replace('/', '-')}", stream=True)
    assert (record["outcome"], record["http.response.status_code"]) == ("client_disconnect", 200)
    assert 1 <= record["chunks"] < LONG
    wait_until(lambda: running(vllm) == 0, "the engine to give it up")


@pytest.mark.parametrize("path", BODIES)
def test_an_answer_that_its_client_does_not_wait_for_is_no_success(vllm: VllmServer, path: str) -> None:
    record = leave(vllm, path, f"left-whole{path.replace('/', '-')}", stream=False)
    assert record["outcome"] == "client_disconnect"
    assert "chunks" not in record
    wait_until(lambda: running(vllm) == 0, "the engine to give it up")


def test_of_clients_that_leave_at_once_each_has_a_record(vllm: VllmServer) -> None:
    names = [f"left-at-once-{number}" for number in range(8)]
    for name in names:
        ask(vllm, "/v1/chat/completions", name, stream=name.endswith(("0", "2", "4", "6"))).close()
    outcomes = [vllm.record(name)["outcome"] for name in names]
    assert set(outcomes) <= {"client_disconnect", "ok"}, outcomes
