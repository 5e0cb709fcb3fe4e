"""`inference-logging-listener proxy`: bodies pass unchanged and as they come, and each request is on record."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from inference_logging import Config
from tests.command_line import run
from tests.proxies import Proxy, answers, exchange, head_of, raw
from tests.sidecars import environment
from tests.support import read_records, wait_until

pytestmark = pytest.mark.servers

Start = Callable[..., Proxy]
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Made-By: Server\r\n\r\nhello"
GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.fixture
def start(listener_binary: Path, configure: Callable[..., Config]) -> Iterator[Start]:
    """Start proxies in front of a port; they end with the test."""
    proxies: list[Proxy] = []

    def begin(to: int, *options: str, **parameters: Any) -> Proxy:
        proxies.append(Proxy(listener_binary, configure(**parameters), to, *options))
        return proxies[-1]

    yield begin
    for proxy in proxies:
        proxy.end()


@pytest.fixture(scope="module")
def application() -> Iterator[int]:
    """Serve `proxied_app` with uvicorn, and return its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = [sys.executable, "-m", "uvicorn", "--fd", str(listening.fileno()), "--no-access-log"]
        process = subprocess.Popen(
            [*command, "--log-level", "warning", "tests.proxied_app:app"], pass_fds=(listening.fileno(),)
        )
        yield listening.getsockname()[1]
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def http2_application() -> Iterator[int]:
    """Serve `proxied_app` with Hypercorn, which speaks HTTP/2 to who begins so, and return its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        bind = f"fd://{listening.fileno()}"
        command = [sys.executable, "-m", "hypercorn", "--bind", bind, "--log-level", "warning", "tests.proxied_app:app"]
        process = subprocess.Popen(command, pass_fds=(listening.fileno(),))
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
def test_status_headers_and_body_pass_unchanged(start: Start, answer: bytes) -> None:
    with raw(answers(answer)) as server:
        proxy = start(server.port)
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


def test_a_body_that_ends_with_the_connection_passes(start: Start) -> None:
    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")

    with raw(serve) as server:
        assert body_of(exchange(start(server.port).port, GET)) == b"until the end"


def test_the_request_passes_unchanged_but_for_what_belongs_to_its_connection(start: Start) -> None:
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
        proxy = start(server.port)
        exchange(proxy.port, head + hop + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    [request] = seen
    lines = request.partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert lines[:4] == head.split(b"\r\n")[:4]
    assert [line for line in lines if line.lower().startswith((b"connection", b"x-hop", b"keep-alive"))] == []
    assert body_of(request) == b"abcde"
    record = proxy.record()
    assert (record["url.path"], record["http.request.body.size"]) == ("/a%20b", 5)


def test_chunks_pass_as_they_come(start: Start) -> None:
    goes_on = threading.Event()

    def serve(connection: socket.socket) -> None:
        head_of(connection)
        kind = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + kind + b"9\r\ndata: 1\n\n\r\n")
        assert goes_on.wait(60)
        connection.sendall(b"9\r\ndata: 2\n\n\r\n9\r\ndata: 3\n\n\r\n0\r\n\r\n")

    with raw(serve) as server:
        proxy = start(server.port)
        with httpx.stream("GET", proxy.url, timeout=60) as answer:
            parts = answer.iter_raw()
            # The server sends the rest only when this has arrived.
            assert next(parts) == b"data: 1\n\n"
            goes_on.set()
            assert b"".join(parts) == b"data: 2\n\ndata: 3\n\n"
    assert proxy.record()["chunks"] == 3


def test_a_chat_is_recorded_with_model_tokens_and_chunks(start: Start, application: int) -> None:
    proxy = start(application)
    body = {"model": "tiny", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    direct = httpx.post(f"http://127.0.0.1:{application}/v1/chat/completions", json=body, timeout=60)
    passed = httpx.post(f"{proxy.url}/v1/chat/completions", json=body, timeout=60)
    assert passed.content == direct.content
    record = proxy.record()
    assert record["gen_ai.request.model"] == "tiny"
    assert (record["chunks"], record["gen_ai.usage.output_tokens"]) == (4, 4)
    assert record["client.address"] == "127.0.0.1"


def test_http2_clients_are_served(start: Start, application: int) -> None:
    proxy = start(application)
    with httpx.Client(http1=False, http2=True, timeout=60) as client:
        answers = [client.post(f"{proxy.url}/echo", content=os.urandom(size)) for size in (0, 1, 100_000)]
    assert [answer.http_version for answer in answers] == ["HTTP/2"] * 3
    assert [int(answer.headers["x-length"]) for answer in answers] == [0, 1, 100_000]
    wait_until(lambda: len(proxy.records()) == 3, "three records")
    assert {record["network.protocol.version"] for record in proxy.records()} == {"2"}


def test_the_server_is_reached_by_http2_where_asked(start: Start, http2_application: int) -> None:
    proxy = start(http2_application, "--http2")
    body = os.urandom(300_000)
    assert httpx.post(f"{proxy.url}/echo", content=body, timeout=60).content == body
    assert proxy.record()["http.response.body.size"] == len(body)


def test_a_call_over_grpc_is_recorded_with_the_status_of_its_trailers(start: Start, http2_application: int) -> None:
    proxy = start(http2_application)
    with httpx.Client(http1=False, http2=True, timeout=60) as client:
        headers = {"content-type": "application/grpc", "te": "trailers"}
        answer = client.post(f"{proxy.url}/package.Service/Method", content=b"\0\0\0\0\x01a", headers=headers)
    assert answer.content == b"\0\0\0\0\x03abc"
    record = proxy.record()
    assert (record["rpc.system.name"], record["rpc.method"]) == ("grpc", "package.Service/Method")
    assert (record["rpc.response.status_code"], record["outcome"]) == ("UNAVAILABLE", "error")
    assert (record["http.request.body.size"], record["http.response.body.size"]) == (6, 8)


def test_the_callers_trace_goes_through(start: Start, application: int) -> None:
    proxy = start(application)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    seen = httpx.get(f"{proxy.url}/headers", headers={"traceparent": trace}, timeout=60).json()
    assert (seen["traceparent"], seen["host"]) == (trace, f"127.0.0.1:{proxy.port}")
    assert proxy.record()["trace_id"] == "0af7651916cd43dd8448eb211c80319c"


def test_a_websocket_is_counted(start: Start, application: int) -> None:
    proxy = start(application)
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


def test_a_refused_websocket_is_recorded(start: Start, application: int) -> None:
    proxy = start(application)
    with pytest.raises(Exception, match="403"), connect(f"ws://127.0.0.1:{proxy.port}/missing"):
        pass
    record = proxy.record("websocket.connection")
    assert (record["outcome"], record["http.response.status_code"]) == ("ok", 403)


def test_a_client_that_leaves_is_recorded_and_the_server_notices(start: Start) -> None:
    noticed = threading.Event()

    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntick\r\n")
        if connection.recv(1) == b"":
            noticed.set()

    with raw(serve) as server:
        proxy = start(server.port)
        with httpx.stream("GET", proxy.url, timeout=60) as answer:
            assert next(answer.iter_raw()) == b"tick"
        assert noticed.wait(60)
    assert proxy.record()["outcome"] == "client_disconnect"


def test_a_server_that_dies_in_the_middle_is_an_error_for_client_and_record(start: Start) -> None:
    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntick\r\n")

    with raw(serve) as server:
        proxy = start(server.port)
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(proxy.url, timeout=60)
    record = proxy.record()
    assert (record["outcome"], record["chunks"]) == ("error", 1)
    assert record["error.type"].endswith("ServerLost")


def test_a_server_that_is_not_there_is_a_502_with_the_reason_on_record(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    proxy = start(port)
    answer = httpx.get(f"{proxy.url}/v1/models", timeout=60)
    assert (answer.status_code, "no answer" in answer.json()["detail"]) == (502, True)
    record, message = proxy.record(), proxy.record("log")
    assert (record["outcome"], record["http.response.status_code"]) == ("error", 502)
    assert "refused" in message["attributes"]["reason"]
    assert message["attributes"]["server.address"] == f"127.0.0.1:{port}"
    assert message["request_id"] == record["request_id"]


def test_a_call_over_grpc_to_a_server_that_is_not_there_is_unavailable(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    proxy = start(port)
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


def test_a_connection_that_the_server_has_closed_is_not_used_again(start: Start) -> None:
    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(HELLO)

    with raw(serve) as server:
        proxy = start(server.port)
        with httpx.Client(timeout=60) as client:
            assert [client.get(proxy.url).status_code for _ in range(5)] == [200] * 5


def test_connections_to_the_server_are_used_again(start: Start) -> None:
    connections: list[int] = []

    def serve(connection: socket.socket) -> None:
        connections.append(connection.fileno())
        answers(HELLO)(connection)

    with raw(serve) as server:
        proxy = start(server.port)
        for _ in range(5):
            assert exchange(proxy.port, GET).endswith(b"hello")
    assert len(connections) == 1


def test_health_is_answered_by_the_proxy(start: Start, application: int) -> None:
    proxy = start(application)
    answer = httpx.get(f"{proxy.url}/health/logging", timeout=60)
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    assert proxy.records() == []


def test_a_drain_lets_requests_end(start: Start) -> None:
    goes_on = threading.Event()

    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntick\r\n")
        assert goes_on.wait(60)
        connection.sendall(b"4\r\ntock\r\n0\r\n\r\n")

    with raw(serve) as server:
        proxy = start(server.port, drain_deadline_s=60.0)
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


def test_a_request_that_outlasts_the_drain_ended_with_the_server(start: Start) -> None:
    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntick\r\n")
        connection.recv(1)

    with raw(serve) as server:
        proxy = start(server.port, drain_deadline_s=0.5)
        with httpx.stream("GET", proxy.url, timeout=60) as answer:
            parts = answer.iter_raw()
            assert next(parts) == b"tick"
            assert proxy.stop() == 0
    assert proxy.record()["outcome"] == "server_shutdown"


def test_a_killed_proxy_leaves_a_record_for_each_open_request(start: Start) -> None:
    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntick\r\n")
        connection.recv(1)

    with raw(serve) as server:
        proxy = start(server.port)
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


def test_a_slow_client_of_a_large_answer_takes_little_memory(start: Start) -> None:
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
        proxy = start(server.port)
        before, most, read = resident(), 0, 0
        with httpx.stream("GET", proxy.url, timeout=60) as answer:
            for part in answer.iter_raw(1024 * 1024):
                read += len(part)
                most = max(most, resident())
    assert read == size
    assert most - before < 4 * 1024 * 1024, (before, most)


def test_it_may_open_as_many_files_as_the_system_allows(start: Start, application: int) -> None:
    proxy = start(application)
    limits = Path(f"/proc/{proxy.process.pid}/limits").read_text(encoding="utf-8")
    [line] = [line for line in limits.splitlines() if line.startswith("Max open files")]
    soft, hard = line.split()[3:5]
    assert soft == hard


def test_switched_off_it_only_passes(start: Start, application: int) -> None:
    proxy = start(application, enabled="off")
    assert httpx.get(f"{proxy.url}/headers", timeout=60).status_code == 200
    with connect(f"ws://127.0.0.1:{proxy.port}/echo-messages") as socket_:
        socket_.send("there")
        assert socket_.recv() == "there"
    assert proxy.stop() == 0
    assert not proxy.config.directory.exists() or proxy.records() == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "127.0.0.1:1"), "Missing option '--listen'"),
        (("--listen", "127.0.0.1:0"), "Missing option '--to'"),
        (("--listen", "8080", "--to", "a:1"), "Invalid value for '--listen': '8080'"),
        (("--listen", "a:1", "--to", "https://a:1"), "Invalid value for '--to': 'https://a:1' needs TLS"),
        (("--listen", "a:1", "--to", "a:1", "--threads", "0"), "0 is not in the range 1<=x<=256"),
    ],
)
def test_a_wrong_command_line_is_refused(listener_binary: Path, arguments: tuple[str, ...], said: str) -> None:
    done = subprocess.run(
        [listener_binary, "proxy", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_port_in_use_is_named(listener_binary: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [str(listener_binary), "proxy", "--listen", address, "--to", "a:1", "--directory", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert f"--listen {address}" in done.stderr


def test_what_is_no_http_is_refused_and_the_proxy_goes_on(start: Start) -> None:
    with raw(answers(HELLO)) as server:
        proxy = start(server.port)
        assert exchange(proxy.port, b"\x16\x03\x01 what is this\r\n\r\n").startswith(b"HTTP/1.1 400")
        lengths = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        smuggled = b"POST / HTTP/1.1\r\nHost: a\r\n" + lengths + GET
        assert b"X-Made-By" in exchange(proxy.port, GET)
        exchange(proxy.port, smuggled)
        assert b"X-Made-By" in exchange(proxy.port, GET)
    wait_until(lambda: len(proxy.records()) >= 2, "two records")
    assert json.dumps(proxy.records()).count("what is this") == 0


def test_the_command_of_the_package_becomes_the_program(
    listener_binary: Path, configure: Callable[..., Config]
) -> None:
    code = f"""
from pathlib import Path
from inference_logging.cli import main, native
native._program = lambda: Path({str(listener_binary)!r})
raise SystemExit(main.run(["proxy", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--threads", "2"]))
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment(configure()), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.terminate()
        assert (process.wait(60), "passes requests to 127.0.0.1:1" in first) == (0, True), first


def test_without_the_program_the_command_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference_logging.cli.native._program", lambda: None)
    done = run("proxy", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1")
    assert (done.code, "make listener" in done.err) == (1, True), done
