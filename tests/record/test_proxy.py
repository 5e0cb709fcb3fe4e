"""`inference-logging-listener proxy`: bodies pass unchanged and as they come, and each request is on record."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.kit.proxies import GET, HELLO, Start, answers, exchange, head_of, once, raw
from tests.kit.support import wait_until

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def application() -> Iterator[int]:
    """Serve `proxied_app` with uvicorn, and return its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = [sys.executable, "-m", "uvicorn", "--fd", str(listening.fileno()), "--no-access-log"]
        process = subprocess.Popen(
            [*command, "--log-level", "warning", "tests.kit.proxied_app:app"], pass_fds=(listening.fileno(),)
        )
        yield listening.getsockname()[1]
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def http2_application() -> Iterator[int]:
    """Serve `proxied_app` with Hypercorn, which speaks HTTP/2 to who begins so, and return its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        bind = f"fd://{listening.fileno()}"
        command = [sys.executable, "-m", "hypercorn", "--bind", bind, "--log-level", "warning"]
        process = subprocess.Popen([*command, "tests.kit.proxied_app:app"], pass_fds=(listening.fileno(),))
        yield listening.getsockname()[1]
        process.terminate()
        process.wait(60)


def body_of(answer: bytes) -> bytes:
    """Return the body of an answer as its framing gives it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return body
    found = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        size = size.partition(b";")[0]
        found, body = found + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return found


@pytest.mark.parametrize(
    "answer",
    [
        HELLO,
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n5;ext=1\r\ndefgh\r\n0\r\n\r\n",
        b"HTTP/1.1 500 Broken\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x00\xff",
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 1\r\n\r\n\x00",
    ],
)
def test_status_headers_and_body_pass_unchanged(proxying: Start, answer: bytes) -> None:
    with raw(answers(answer)) as server:
        proxy = proxying(server.port)
        passed = exchange(proxy.port, GET)
    head, _, _ = passed.partition(b"\r\n\r\n")
    sent, _, _ = answer.partition(b"\r\n\r\n")
    assert body_of(passed) == body_of(answer)
    status, code = sent.split(b"\r\n")[0].split(b" ")[:2]
    assert head.split(b"\r\n")[0].split(b" ")[:2] == [status, code]
    kept = [line for line in sent.split(b"\r\n")[1:] if not line.startswith(b"Transfer-Encoding")]
    assert [line for line in head.split(b"\r\n")[1:] if line in kept] == kept
    record = proxy.record()
    assert record["http.response.status_code"] == int(code)
    assert record["http.response.body.size"] == len(body_of(answer))
    assert record["outcome"] == ("error" if int(code) >= 500 else "ok")


def test_a_body_that_ends_with_the_connection_passes(proxying: Start) -> None:
    with raw(once(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")) as server:
        assert body_of(exchange(proxying(server.port).port, GET)) == b"until the end"


def test_the_request_passes_unchanged_but_for_what_belongs_to_its_connection(proxying: Start) -> None:
    seen: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        found = head_of(connection)
        while b"0\r\n\r\n" not in found:
            found += connection.recv(65_536)
        seen.append(found)
        connection.sendall(HELLO)

    with raw(serve) as server:
        head = b"POST /a%20b?c=%2F HTTP/1.1\r\nHost: Engine\r\nX-Own-Name: 1\r\nAuthorization: Bearer x\r\n"
        hop = b"Connection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        proxy = proxying(server.port)
        exchange(proxy.port, head + hop + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    [request] = seen
    lines = request.partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert lines[:4] == head.split(b"\r\n")[:4]
    assert [line for line in lines if line.lower().startswith((b"connection", b"x-hop", b"keep-alive"))] == []
    assert body_of(request) == b"abcde"
    record = proxy.record()
    assert (record["url.path"], record["http.request.body.size"]) == ("/a%20b", 5)


def test_chunks_pass_as_they_come(proxying: Start) -> None:
    goes_on = threading.Event()

    def serve(connection: socket.socket) -> None:
        head_of(connection)
        kind = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + kind + b"9\r\ndata: 1\n\n\r\n")
        assert goes_on.wait(60)
        connection.sendall(b"9\r\ndata: 2\n\n\r\n9\r\ndata: 3\n\n\r\n0\r\n\r\n")

    with raw(serve) as server:
        proxy = proxying(server.port)
        with httpx.stream("GET", proxy.url, timeout=60) as answer:
            parts = answer.iter_raw()
            # The server sends the rest only when this has arrived.
            assert next(parts) == b"data: 1\n\n"
            goes_on.set()
            assert b"".join(parts) == b"data: 2\n\ndata: 3\n\n"
    assert proxy.record()["chunks"] == 3


def test_a_chat_is_recorded_with_model_tokens_and_chunks(proxying: Start, application: int) -> None:
    proxy = proxying(application)
    body = {"model": "tiny", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    direct = httpx.post(f"http://127.0.0.1:{application}/v1/chat/completions", json=body, timeout=60)
    passed = httpx.post(f"{proxy.url}/v1/chat/completions", json=body, timeout=60)
    assert passed.content == direct.content
    record = proxy.record()
    assert record["gen_ai.request.model"] == "tiny"
    assert (record["chunks"], record["gen_ai.usage.output_tokens"]) == (4, 4)
    assert record["client.address"] == "127.0.0.1"


def test_http2_clients_are_served(proxying: Start, application: int) -> None:
    proxy = proxying(application)
    with httpx.Client(http1=False, http2=True, timeout=60) as client:
        answers = [client.post(f"{proxy.url}/echo", content=os.urandom(size)) for size in (0, 1, 100_000)]
    assert [answer.http_version for answer in answers] == ["HTTP/2"] * 3
    assert [int(answer.headers["x-length"]) for answer in answers] == [0, 1, 100_000]
    wait_until(lambda: len(proxy.records()) == 3, "three records")
    assert {record["network.protocol.version"] for record in proxy.records()} == {"2"}


def test_the_server_is_reached_by_http2_where_asked(proxying: Start, http2_application: int) -> None:
    proxy = proxying(http2_application, "--http2")
    body = os.urandom(300_000)
    assert httpx.post(f"{proxy.url}/echo", content=body, timeout=60).content == body
    assert proxy.record()["http.response.body.size"] == len(body)


def test_a_call_over_grpc_is_recorded_with_the_status_of_its_trailers(proxying: Start, http2_application: int) -> None:
    proxy = proxying(http2_application)
    with httpx.Client(http1=False, http2=True, timeout=60) as client:
        headers = {"content-type": "application/grpc", "te": "trailers"}
        answer = client.post(f"{proxy.url}/package.Service/Method", content=b"\0\0\0\0\x01a", headers=headers)
    assert answer.content == b"\0\0\0\0\x03abc"
    record = proxy.record()
    assert (record["rpc.system.name"], record["rpc.method"]) == ("grpc", "package.Service/Method")
    assert (record["rpc.response.status_code"], record["outcome"]) == ("UNAVAILABLE", "error")
    assert (record["http.request.body.size"], record["http.response.body.size"]) == (6, 8)


def test_the_callers_trace_goes_through(proxying: Start, application: int) -> None:
    proxy = proxying(application)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    seen = httpx.get(f"{proxy.url}/headers", headers={"traceparent": trace}, timeout=60).json()
    assert (seen["traceparent"], seen["host"]) == (trace, f"127.0.0.1:{proxy.port}")
    assert proxy.record()["trace_id"] == "0af7651916cd43dd8448eb211c80319c"


def test_a_websocket_is_counted(proxying: Start, application: int) -> None:
    proxy = proxying(application)
    texts = ["one", "x" * 70_000, ""]
    with connect(
        f"ws://127.0.0.1:{proxy.port}/echo-messages", subprotocols=[Subprotocol("chat")], compression=None
    ) as socket_:
        for text in texts:
            socket_.send(text)
            assert socket_.recv() == text
    record = proxy.record("websocket.connection")
    counts = [record[f"websocket.{name}"] for name in ("messages_received", "messages_sent", "bytes_received")]
    assert counts == [3, 3, 70_003]
    assert (record["websocket.close_code"], record["websocket.closed_by"]) == (1000, "client")
    assert (record["outcome"], record["http.response.status_code"]) == ("ok", 101)
    assert record["websocket.subprotocol"] == "chat"
    assert proxy.records() == []


def test_a_websocket_that_the_server_refuses_is_a_request(proxying: Start, application: int) -> None:
    proxy = proxying(application)
    with pytest.raises(Exception, match="403"), connect(f"ws://127.0.0.1:{proxy.port}/missing"):
        pass
    record = proxy.record()
    assert (record["outcome"], record["http.response.status_code"]) == ("ok", 403)
    assert proxy.records("websocket.connection") == []


def test_health_is_answered_by_the_proxy(proxying: Start, application: int) -> None:
    proxy = proxying(application)
    answer = httpx.get(f"{proxy.url}/health/logging", timeout=60)
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    assert proxy.records() == []


def test_a_slow_client_of_a_large_answer_takes_little_memory(proxying: Start) -> None:
    size = 128 * 1024 * 1024

    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // (1024 * 1024)):
            connection.sendall(bytes(1024 * 1024))

    def resident() -> int:
        status = Path(f"/proc/{proxy.process.pid}/status").read_text(encoding="utf-8")
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    with raw(serve) as server:
        proxy = proxying(server.port)
        before, most, read = resident(), 0, 0
        with httpx.stream("GET", proxy.url, timeout=60) as answer:
            for part in answer.iter_raw(1024 * 1024):
                read += len(part)
                most = max(most, resident())
    assert read == size
    assert most - before < 4 * 1024 * 1024, (before, most)


def test_it_may_open_as_many_files_as_the_system_allows(proxying: Start, application: int) -> None:
    proxy = proxying(application)
    limits = Path(f"/proc/{proxy.process.pid}/limits").read_text(encoding="utf-8")
    [line] = [line for line in limits.splitlines() if line.startswith("Max open files")]
    soft, hard = line.split()[3:5]
    assert soft == hard


def test_switched_off_it_only_passes(proxying: Start, application: int) -> None:
    proxy = proxying(application, enabled="off")
    assert httpx.get(f"{proxy.url}/headers", timeout=60).status_code == 200
    with connect(f"ws://127.0.0.1:{proxy.port}/echo-messages") as socket_:
        socket_.send("there")
        assert socket_.recv() == "there"
    assert proxy.stop() == 0
    assert not proxy.config.directory.exists() or proxy.records() == []


def test_what_is_no_http_is_refused_and_the_proxy_goes_on(proxying: Start) -> None:
    with raw(answers(HELLO)) as server:
        proxy = proxying(server.port)
        assert exchange(proxy.port, b"\x16\x03\x01 what is this\r\n\r\n").startswith(b"HTTP/1.1 400")
        lengths = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        smuggled = b"POST / HTTP/1.1\r\nHost: a\r\n" + lengths + GET
        assert b"X-Made-By" in exchange(proxy.port, GET)
        exchange(proxy.port, smuggled)
        assert b"X-Made-By" in exchange(proxy.port, GET)
    wait_until(lambda: len(proxy.records()) >= 2, "two records")
    assert json.dumps(proxy.records()).count("what is this") == 0
