"""Hypercorn and granian as second and third server: streams, clients that go, exceptions, ends, HTTP/2, workers."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from h2.connection import H2Connection
from h2.events import DataReceived, StreamEnded
from websockets.sync.client import connect

from inference_logging import Config, Logger
from tests.kit.servers import Load, Server, serving
from tests.kit.signatures import Configure
from tests.kit.support import read_lines, read_records, wait_until

pytestmark = pytest.mark.servers

HERE = Path(__file__).parent

SERVERS = {
    "hypercorn-asyncio": ("hypercorn", "streaming_app:app", "--bind", "127.0.0.1:{port}", "-k", "asyncio"),
    "hypercorn-uvloop": ("hypercorn", "streaming_app:app", "--bind", "127.0.0.1:{port}", "-k", "uvloop"),
    "hypercorn-trio": ("hypercorn", "streaming_app:app", "--bind", "127.0.0.1:{port}", "-k", "trio"),
    "granian": ("granian", "streaming_app:app", "--interface", "asgi", "--port", "{port}"),
}
# Both end streams that are still open after so many seconds.
GRACE = {"hypercorn": ("--graceful-timeout", "1"), "granian": ("--workers-kill-timeout", "2")}


@contextlib.contextmanager
def serve(config: Config, server: str, *options: str) -> Iterator[Server]:
    """Serve the application with the given server until its books can be read."""
    command = (*SERVERS[server], *GRACE[SERVERS[server][0]], *options)
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    with serving(config, *command, PYTHONPATH=path) as running:
        yield running


def request_at(config: Config, path: str) -> dict[str, Any]:
    """Wait for the one terminal record of ``path``."""
    wait_until(
        lambda: [record for record in read_records(config.directory, "request") if record["url.path"] == path], path
    )
    (record,) = (record for record in read_records(config.directory, "request") if record["url.path"] == path)
    return record


def assert_books_balance(directory: Path) -> None:
    """Check that what was accepted is written, and that nothing was dropped, by the last footer of each process."""
    last = {
        books["boot_id"]: books
        for footer in read_lines(directory)
        if footer["event_name"] == "segment.footer"
        for books in footer["processes"]
    }
    assert last
    assert all(books["accepted"] == books["written"] and not books["dropped"] for books in last.values())


@pytest.mark.parametrize("server", SERVERS)
def test_what_a_server_can_do_to_a_request_leaves_one_right_record_each(configure: Configure, server: str) -> None:
    config = configure()
    with serve(config, server) as running:
        assert running.get("/")["http_version"] == "1.1"
        body = httpx.get(f"{running.url}/stream/30", timeout=120).content
        assert body == b"".join(b"data: %d\n\n" % number for number in range(30))
        assert (
            httpx.post(f"{running.url}/echo", content=[b"a" * 70_000, b"b"], timeout=120).content
            == b"a" * 70_000 + b"b"
        )
        assert httpx.get(f"{running.url}/fail", timeout=120).status_code == 500
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{running.url}/fail-late", timeout=120)
        assert httpx.get(f"{running.url}/background", timeout=120).json() == {}
        assert httpx.get(f"{running.url}/file", timeout=120).content == (HERE / "streaming_app.py").read_bytes()
        with connect(f"ws://127.0.0.1:{running.port}/talk") as websocket:
            websocket.send("hello")
            assert websocket.recv() == "hello"
        try:
            with httpx.stream("GET", f"{running.url}/endless", timeout=120) as response:
                next(response.iter_bytes())
        except httpx.ReadError as error:
            if server != "hypercorn-trio":
                raise
            pytest.xfail(f"hypercorn's trio worker resets a new connection now and then: {error}")
        # The client has gone amid the stream; the server notices at one of the next chunks.
        ended = request_at(config, "/endless")["outcome"]
        # Hypercorn's trio worker may cancel the application before it says why.
        assert ended in {"client_disconnect", "server_shutdown" if server == "hypercorn-trio" else ""}
        running.stop()
    seen = {record["url.path"]: record for record in read_records(config.directory, "request")}
    assert Counter(record["url.path"] for record in read_records(config.directory, "request")) == Counter(seen.keys())
    assert {path: (record["outcome"], record.get("error.type")) for path, record in seen.items()} == {
        "/": ("ok", None),
        "/stream/30": ("ok", None),
        "/echo": ("ok", None),
        "/fail": ("error", "LookupError"),
        "/fail-late": ("error", "LookupError"),
        "/background": ("ok", None),
        "/file": ("ok", None),
        "/endless": (ended, seen["/endless"].get("error.type")),
    }
    assert seen["/stream/30"]["chunks"] == 30
    assert seen["/echo"]["http.request.body.size"] == seen["/echo"]["http.response.body.size"] == 70_001
    assert (seen["/fail"]["http.response.status_code"], seen["/fail-late"]["http.response.status_code"]) == (500, 200)
    # granian sends the file by itself, so that its size is not known here.
    sizes = {"granian": None}.get(server, (HERE / "streaming_app.py").stat().st_size)
    assert seen["/file"].get("http.response.body.size") == sizes
    logs = {record["message"]: record for record in read_records(config.directory, "log")}
    assert logs["background"]["span_id"] == seen["/background"]["span_id"]
    assert {"startup", "shutdown"} <= logs.keys()
    assert_books_balance(config.directory)


@contextlib.contextmanager
def open_stream(server: Server) -> Iterator[None]:
    """Keep a stream without end open, from its first chunk until the server ends it."""
    began = threading.Event()

    def read() -> None:
        with contextlib.suppress(httpx.HTTPError), httpx.stream("GET", f"{server.url}/endless", timeout=90) as response:
            for _ in response.iter_bytes():
                began.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert began.wait(30)
    yield
    reader.join()


WAITS_FOR_STREAMS = pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="from Python 3.12 on hypercorn's asyncio worker waits for open streams for ever, without us too",
)


@pytest.mark.parametrize(
    "server", [pytest.param("hypercorn-asyncio", marks=WAITS_FOR_STREAMS), "hypercorn-uvloop", "hypercorn-trio"]
)
def test_a_shutdown_that_ends_an_open_stream_leaves_its_record(configure: Configure, server: str) -> None:
    config = configure()
    with serve(config, server) as running, open_stream(running):
        running.stop()
    (record,) = read_records(config.directory, "request")
    assert (record["outcome"], record["http.response.status_code"]) == ("server_shutdown", 200)
    assert record["chunks"] > 0
    assert_books_balance(config.directory)


def test_what_granian_has_answered_before_it_kills_a_worker_with_an_open_stream_is_written_by_the_next_start(
    configure: Configure,
) -> None:
    # It sends SIGKILL: no code of ours runs. What was accepted is in the queue, and the request under way in its slot.
    config = configure(flush_interval_s=60, flush_records=1_000_000)
    with serve(config, "granian") as running:
        running.get("/")
        with open_stream(running):
            running.stop()
    with Logger(config) as next_start:
        wait_until(lambda: next_start.flush() and not next_start.backlog_records(), "the queue of the killed worker")
    found = [(record["url.path"], record["outcome"]) for record in read_records(config.directory, "request")]
    assert found == [("/", "ok"), ("/endless", "process_died")]


@pytest.mark.parametrize("server", ["hypercorn-asyncio", "granian"])
def test_two_workers_record_each_answer(configure: Configure, server: str) -> None:
    config = configure()
    with serve(config, server, "--workers", "2") as running:
        with Load(running, "/") as load:
            load.wait_for(200)
        running.stop()
    # Hypercorn kills its other workers as soon as the first has ended: the next start writes what they still had.
    with Logger(config):
        pass
    assert load.failed == set()
    found = Counter(record["client_request_id"] for record in read_records(config.directory, "request"))
    assert {name: count for name, count in found.items() if count != 1} == {}
    assert load.answered <= found.keys()


def reset_one_stream(port: int, path: str) -> None:
    """Read the first chunk of ``path``, reset its stream, and see that the same connection answers another."""
    connection = H2Connection()
    connection.initiate_connection()
    with socket.create_connection(("127.0.0.1", port), timeout=120) as stream:

        def ask(stream_id: int, path: str) -> None:
            names = [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "localhost")]
            connection.send_headers(stream_id, names, end_stream=True)

        def read_until(kind: type, stream_id: int) -> None:
            while True:
                stream.sendall(connection.data_to_send())
                for event in connection.receive_data(stream.recv(65536)):
                    if isinstance(event, kind) and getattr(event, "stream_id", None) == stream_id:
                        return

        ask(1, path)
        read_until(DataReceived, 1)
        connection.reset_stream(1)
        ask(3, "/")
        read_until(StreamEnded, 3)


def test_http2_streams_of_one_connection_each_leave_their_record(configure: Configure) -> None:
    config = configure()
    with serve(config, "hypercorn-asyncio") as running:
        with httpx.Client(http1=False, http2=True, base_url=running.url, timeout=120) as client:
            assert client.get("/").json()["http_version"] == "2"
            with contextlib.ExitStack() as open_streams:
                responses = [open_streams.enter_context(client.stream("GET", f"/stream/{n}")) for n in range(1, 21)]
                for number, response in reversed(list(enumerate(responses, start=1))):
                    assert len(response.read().split()) == 2 * number
        reset_one_stream(running.port, "/endless")
        assert request_at(config, "/endless")["outcome"] == "client_disconnect"
        running.stop()
    requests = read_records(config.directory, "request")
    assert {record["network.protocol.version"] for record in requests} == {"2"}
    streams = {record["url.path"]: record["chunks"] for record in requests if "/stream/" in record["url.path"]}
    assert streams == {f"/stream/{number}": number for number in range(1, 21)}
    assert_books_balance(config.directory)
