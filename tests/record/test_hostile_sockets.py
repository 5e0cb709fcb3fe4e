"""Hostile clients on raw sockets against uvicorn with both of its parsers, and the memory that they can take."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import socket
import tracemalloc
from collections.abc import Awaitable, Callable, Generator, Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config
from tests.kit.hostile_app import CHUNKS, MISBEHAVIOURS
from tests.kit.servers import HERE, Server
from tests.kit.signatures import Recording
from tests.kit.support import Recorded, http_scope, read_lines, read_records, resident_bytes, wait_until

MIB = 1 << 20
PATIENCE_S = 180.0


def get(path: bytes, *headers: bytes, method: bytes = b"GET", body: bytes = b"") -> bytes:
    lines = [method + b" " + path + b" HTTP/1.1", b"Host: h", b"Connection: close", *headers]
    return b"\r\n".join([*lines, b"", body])


FORGED = b'"}%0a{"event_name":"request","outcome":"ok"}%0d%0a%00%1b%5b2J%e2%80%a8'
REQUESTS: dict[str, bytes] = {
    "an id of 1 MB": get(b"/id", b"X-Request-Id: " + b"x" * MIB),
    "an id of 60 KB": get(b"/id", b"X-Request-Id: " + b"x" * 60_000),
    "ids that break lines": get(b"/id", b"X-Request-Id: a\r\n b", b"traceparent: 00-\x01\x02", b"baggage: \xff\xfe"),
    "a bare line feed": get(b"/id", b"X-Request-Id: a\nSet-Cookie: b"),
    "a null": get(b"/id", b"X-Request-Id: a\x00b"),
    "a path that forges": get(b"/" + FORGED),
    "a path that is no UTF-8": get(b"/%ff%fe%c0%af%ed%a0%80"),
    "raw bytes in the path": get(b"/\xff\xfe"),
    "a control character in the path": get(b"/\x01\x1b[2J"),
    "a path of 30 KB": get(b"/" + b"p" * 30_000),
    "a path of 1 MB": get(b"/" + b"p" * MIB),
    "a query that forges": get(b"/?" + FORGED),
    "an odd method": get(b"/", method=b"FROBNICATE"),
    "no method": get(b"/", method=b""),
    "a hundred thousand headers": get(b"/many", *(b"x-%d: v" % number for number in range(100_000))),
    "a thousand headers": get(b"/many", *(b"x-%d: v" % number for number in range(1000))),
    "the same id a thousand times": get(b"/many", *([b"X-Request-Id: again", b"traceparent: 00-0"] * 500)),
    "a header without a name": get(b"/", b": nameless"),
    "headers that are no headers": get(b"/", b"no colon", b"\xff\xff: \x80"),
    "no body though announced": get(b"/", b"Content-Length: 0", method=b"POST"),
    "a body that never ends": get(b"/", b"Content-Length: 1000000000", method=b"POST", body=b"{"),
    "a chunked body that never ends": get(b"/", b"Transfer-Encoding: chunked", method=b"POST", body=b"5\r\nhello\r\n"),
    "a chunk of no size": get(b"/", b"Transfer-Encoding: chunked", method=b"POST", body=b"zz\r\n"),
    "a body that is no UTF-8": get(
        b"/v1/chat/completions",
        b"Content-Type: application/json",
        b"Content-Length: 4",
        method=b"POST",
        body=b'"\xff\xfe"',
    ),
    "both lengths": get(b"/", b"Content-Length: 1", b"Transfer-Encoding: chunked", method=b"POST", body=b"0\r\n\r\n"),
    "two lengths": get(b"/", b"Content-Length: 1", b"Content-Length: 2", method=b"POST", body=b"ab"),
    "a negative length": get(b"/", b"Content-Length: -1", method=b"POST"),
    "nothing": b"",
    "half a request": b"GET / HT",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
    "the oldest HTTP": b"GET /old\r\n\r\n",
    "HTTP 1.0": b"GET /old HTTP/1.0\r\n\r\n",
    "two requests at once": b"GET /one HTTP/1.1\r\nHost: h\r\n\r\n" + get(b"/two"),
    "a raise": get(b"/raise"),
    "a return value": get(b"/return"),
    **{f"misbehaviour {name}": get(f"/misbehave/{name}".encode()) for name in MISBEHAVIOURS},
}


@dataclass
class Pair:
    """The same application behind the same server: with the middleware and without."""

    logged: Server
    plain: Server


@pytest.fixture(scope="module", params=["httptools", "h11"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    for name in [name for name in os.environ if name.startswith("INFERENCE_LOGGING_")]:
        del os.environ[name]
    path: Path = tmp_path_factory.mktemp("sockets")
    config = Config(directory=path / "segments", queue_directory=path / "queues", queue_bytes=4 * MIB)
    options = (
        "--no-server-header",
        "--no-date-header",
        "--no-access-log",
        "--loop",
        "asyncio",
        "--http",
        request.param,
    )
    command = ["uvicorn", "--app-dir", str(HERE), "--port", "{port}", *options]
    with contextlib.ExitStack() as ending:
        servers = []
        for app in ("logged", "plain"):
            servers.append(Server(config, [*command, f"hostile_app:{app}"]))
            ending.callback(servers[-1].end)
        for server in servers:
            wait_until(functools.partial(exchange, server, get(b"/served")), "the server to be ready")
        yield Pair(*servers)


def exchange(server: Server, request: bytes) -> bytes:
    """Send ``request``, then nothing more, and return all that the server answers."""
    return attempt(server, request)[0]


def attempt(server: Server, request: bytes) -> tuple[bytes, bool]:
    """As ``exchange``; say also whether the answer may be cut: the server reset the connection."""
    assert server.process.poll() is None, b"".join(server.output).decode()
    try:
        stream = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S)
    except ConnectionRefusedError:
        return b"", True
    answer, is_reset = b"", False
    with stream:
        try:
            stream.sendall(request)
            stream.shutdown(socket.SHUT_WR)
        except OSError:
            is_reset = True
        try:
            while part := stream.recv(MIB):
                answer += part
        except OSError:
            is_reset = True
    return answer, is_reset


def are_same(ours: tuple[bytes, bool], theirs: tuple[bytes, bool]) -> bool:
    """Compare two answers. A server that refuses before it has read all resets, and then some of its answer is lost."""
    shorter, longer = sorted((ours[0], theirs[0]), key=len)
    return shorter == longer or ((ours[1] or theirs[1]) and longer.startswith(shorter))


def served(server: Server) -> int:
    """Return how many requests the application has served before this one."""
    return int(exchange(server, get(b"/served")).partition(b"\r\n\r\n")[2].split(b"\r\n")[-1] or b"0")


def said(server: Server, since: int) -> list[str]:
    """Return the errors that the server has logged, without the frames of their tracebacks."""
    lines = b"".join(server.output[since:]).decode("utf-8", "replace").splitlines()
    return [line for line in lines if re.match(r"(ERROR|WARNING|[\w.]+(Error|Exception)\b)", line)]


def peak_bytes(server: Server) -> int:
    """Return the most memory that the process has had."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


@pytest.mark.servers
def test_each_hostile_request_gets_the_same_bytes_and_leaves_at_most_one_valid_line(pair: Pair) -> None:
    config = pair.logged.config
    marks = len(pair.logged.output), len(pair.plain.output)
    different = {
        name: (ours[0][:300], theirs[0][:300])
        for name, request in REQUESTS.items()
        if not are_same(ours := attempt(pair.logged, request), theirs := attempt(pair.plain, request))
    }
    assert different == {}
    # Each request to /served is one itself, and the one that asked when the server was ready.
    expected = served(pair.logged)
    assert served(pair.plain) == expected

    def recorded() -> list[dict[str, Any]]:
        return [record for record in read_records(config.directory, "request") if record["url.path"] != "/served"]

    asked = [record for record in read_records(config.directory, "request") if record["url.path"] == "/served"]
    wait_until(lambda: len(recorded()) >= expected - 1 - len(asked) and len(recorded()) > 20, "the records")
    names = {"request", "segment.header", "server.started"}
    assert {line["event_name"] for line in read_lines(config.directory)} <= names
    assert {record["outcome"] for record in recorded()} == {"ok", "error", "client_disconnect"}
    forged = '/"}\n{"event_name":"request","outcome":"ok"}\r\n\0\x1b[2J\u2028'
    assert [record["url.path"] for record in recorded()].count(forged) == 1
    wait_until(lambda: said(pair.logged, marks[0]) == said(pair.plain, marks[1]), "the servers to say the same")
    assert len(said(pair.logged, marks[0])) > 20


@pytest.mark.servers
def test_each_application_that_misbehaves_is_recorded_as_what_its_client_saw(pair: Pair) -> None:
    for name in MISBEHAVIOURS:
        exchange(pair.logged, get(f"/misbehave/{name}".encode()))
    directory = pair.logged.config.directory

    def seen() -> dict[str, list[tuple[str, int | None]]]:
        found: dict[str, list[tuple[str, int | None]]] = {}
        for record in read_records(directory, "request"):
            values = (record["outcome"], record.get("http.response.status_code"))
            found.setdefault(record["url.path"].removeprefix("/misbehave/"), []).append(values)
        return found

    wait_until(lambda: MISBEHAVIOURS.keys() <= seen().keys(), "the records")
    outcomes = {name: found[0] for name, found in seen().items()}
    assert outcomes["second-start"] == ("error", 200)
    assert outcomes["body-after-end"] == ("error", 200)
    assert outcomes["body-first"] == ("error", 500)
    assert outcomes["nothing"] == ("error", 500)
    assert outcomes["half"] == ("error", 200)
    assert outcomes["body-bytearray"] == outcomes["headers-tuple"] == ("ok", 200)


def endless_body(server: Server, chunks: int) -> None:
    """Send a chunked body of so many KiB and stop amid it."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as stream:
        stream.sendall(
            get(b"/endless", b"Transfer-Encoding: chunked", b"Content-Type: application/json", method=b"POST")
        )
        for _ in range(chunks):
            stream.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")


def slow_reader(server: Server) -> None:
    """Ask for many chunks, read the first few only, and go."""
    with socket.socket() as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stream.settimeout(PATIENCE_S)
        stream.connect(("127.0.0.1", server.port))
        stream.sendall(get(b"/chunks"))
        stream.recv(1000)


@pytest.mark.servers
def test_endless_bodies_slow_readers_and_many_tiny_chunks_take_no_more_memory_than_without_us(pair: Pair) -> None:
    for server in (pair.logged, pair.plain):
        endless_body(server, CHUNKS)
        slow_reader(server)
        answer = exchange(server, get(b"/chunks"))
        assert answer.count(b"1\r\nx\r\n") == CHUNKS
    directory = pair.logged.config.directory

    def ended(path: str) -> list[dict[str, Any]]:
        return [record for record in read_records(directory, "request") if record["url.path"] == path]

    # The reader that went is not reported to an application that does not ask: its sends go nowhere, and it ends well.
    both = wait_until(lambda: len(ended("/chunks")) == 2 and ended("/chunks"), "the records of the chunks")
    assert {record["chunks"] for record in both} == {record["http.response.body.size"] for record in both} == {CHUNKS}
    assert [len(record["chunk_gaps_us"]) for record in both] == [256, 256]
    (endless,) = wait_until(lambda: ended("/endless"), "the record of the body")
    assert 0 < endless["http.request.body.size"] <= 1024 * CHUNKS
    # The queue, the batch that is written, and the listener's own: fixed sizes, whatever the clients do.
    assert peak_bytes(pair.logged) - peak_bytes(pair.plain) < 24 * MIB
    assert json.loads(exchange(pair.logged, get(b"/still")).partition(b"\r\n\r\n")[2].split(b"\r\n")[0]) is not None


MILLION = 1_000_000
JSON = [(b"content-type", b"application/json")]


class Done:
    """An awaitable that is there already."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


DONE = Done()


def send(message: MutableMapping[str, Any]) -> Awaitable[None]:
    """Keep nothing."""
    return DONE


async def receive() -> dict[str, Any]:
    """Return one more part of a body without end."""
    return {"type": "http.request", "body": b"[1, 2, 3]", "more_body": True}


async def million_chunks(scope: Any, receive: Any, send: Any) -> None:
    """Send a million tiny chunks of a stream."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for _ in range(MILLION):
        await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": True})
    scope["measure"]()
    await send({"type": "http.response.body"})


async def endless(scope: Any, receive: Any, send: Any) -> None:
    """Receive a body of many parts and never answer."""
    for _ in range(MILLION // 4):
        await receive()
    scope["measure"]()


async def large_parts(scope: Any, receive: Any, send: Any) -> None:
    """Send a JSON answer in parts of a MiB, each one made when it is needed."""
    await send({"type": "http.response.start", "status": 200, "headers": JSON})
    for _ in range(500):
        await send({"type": "http.response.body", "body": bytes(MIB), "more_body": True})
    scope["measure"]()


def run(served: Callable[[Any, Any, Any], Any]) -> int:
    """Serve one JSON request to its end, in which nothing ever waits; return what was resident amid it."""
    measured: list[int] = []
    scope = {**http_scope("/v1/chat/completions", "POST", JSON), "measure": lambda: measured.append(resident_bytes())}
    with pytest.raises(StopIteration):
        served(scope, receive, send).send(None)
    return measured[0] if measured else 0


@pytest.mark.servers
@pytest.mark.parametrize("app", [million_chunks, endless, large_parts], ids=lambda app: app.__name__)
@pytest.mark.parametrize("chunks", ["timeline", "events"])
def test_what_is_held_does_not_grow_with_the_stream(
    recording: Recording, app: Callable[[Any, Any, Any], Any], chunks: str
) -> None:
    recorded = recording(chunks=chunks)
    served = recorded.wrap(app)
    run(served)  # Fills what is allocated once: the batch, the listener's buffers.
    assert recorded.logger.flush(60)
    before = resident_bytes()
    # Four bytes per chunk would be seen here.
    assert run(served) - before < 2 * MIB


@pytest.mark.servers
def test_no_python_object_stays_for_a_chunk(recorded: Recorded) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(20_000):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})

    def peak(served: Callable[[Any, Any, Any], Any]) -> int:
        run(served)
        tracemalloc.start()
        try:
            run(served)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(recorded.wrap(app)) - peak(app) < 16 * 1024
