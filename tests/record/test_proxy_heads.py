"""The proxy: its command, what it takes for a request (RFC 9112, 9110, 9113), and whose request it was."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import httpx
import pytest
from websockets.sync.client import connect
from websockets.sync.server import serve

from tests.kit.command_line import run
from tests.kit.identity import BODY, HEADERS, KEY, SECRET, everything
from tests.kit.proxies import (
    END,
    HELLO,
    HOST,
    LINE,
    Proxy,
    Start,
    answers,
    exchange,
    once,
    raw,
    status_of,
)
from tests.kit.sidecars import environment
from tests.kit.signatures import Configure
from tests.tools.tools import tool

POST = b"POST / HTTP/1.1\r\n"
UPGRADE = b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"


class Case(NamedTuple):
    """Bytes of a client, the status of the answer, and where it is written."""

    request: bytes
    status: int
    source: str


CASES = {
    "one host": Case(LINE + HOST + END, 200, "9112 3.2"),
    "no host": Case(LINE + END, 400, "9112 3.2"),
    "two hosts": Case(LINE + HOST + HOST + END, 400, "9112 3.2"),
    "a host that is none": Case(LINE + b"Host: u@a/b\r\n" + END, 400, "9112 3.2"),
    "HTTP/1.0 without a host": Case(b"GET / HTTP/1.0\r\n\r\n", 200, "9112 3.2"),
    "an absolute target with its host": Case(b"GET http://a/ HTTP/1.1\r\n" + HOST + END, 200, "9112 3.2.2"),
    "an absolute target with another host": Case(b"GET http://b/ HTTP/1.1\r\n" + HOST + END, 400, "9112 3.2.2"),
    "a tunnel": Case(b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n" + END, 501, "9110 9.3.6"),
    "a space before the colon": Case(LINE + b"Host : a\r\n" + END, 400, "9112 5.1"),
    "a folded line": Case(LINE + HOST + b"X-A: 1\r\n 2\r\n" + END, 400, "9112 5.2"),
    "a bare carriage return": Case(LINE + HOST + b"X-A: 1\r2\r\n" + END, 400, "9112 2.2"),
    "a space before the first header": Case(LINE + b" X-A: 1\r\n" + HOST + END, 400, "9112 2.2"),
    "an empty line before the request": Case(b"\r\n" + LINE + HOST + END, 200, "9112 2.2"),
    "a length that is no number": Case(POST + HOST + b"Content-Length: 1x\r\n" + END, 400, "9112 6.3"),
    "two lengths": Case(POST + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n" + END + b"ab", 400, "9112 6.3"),
    "a list of lengths": Case(POST + HOST + b"Content-Length: 1, 2\r\n" + END + b"ab", 400, "9112 6.3"),
    "chunked": Case(POST + HOST + b"Transfer-Encoding: chunked\r\n" + END + b"1\r\na\r\n0\r\n\r\n", 200, "9112 7.1"),
    "another coding": Case(POST + HOST + b"Transfer-Encoding: gzip, chunked\r\n" + END + b"0\r\n\r\n", 501, "9112 6.1"),
    "chunked not last": Case(
        POST + HOST + b"Transfer-Encoding: chunked, gzip\r\n" + END + b"0\r\n\r\n", 400, "9112 6.3"
    ),
    "chunks of no size": Case(POST + HOST + b"Transfer-Encoding: chunked\r\n" + END + b"x\r\n", 0, "9112 7.1"),
    "a header for all as an option": Case(LINE + HOST + b"Connection: host, authorization\r\n\r\n", 400, "9110 7.6.1"),
    "an unknown protocol": Case(b"GET / HTTP/3.9\r\n" + HOST + END, 400, "9110 2.5"),
    "no protocol": Case(b"GET /\r\n\r\n", 400, "9112 3"),
    "a handshake by POST": Case(POST + HOST + UPGRADE + b"Content-Length: 0\r\n" + END, 200, "6455 4.1"),
    "a handshake without its option": Case(LINE + HOST + UPGRADE + END, 200, "9110 7.8"),
}


@pytest.mark.servers
def test_what_is_asked_is_taken_or_refused_as_the_standard_says(
    proxying: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    with raw(answers(HELLO)) as server:
        proxy = proxying(server.port, "--header-timeout", "5")
        found = {name: status_of(exchange(proxy.port, case.request)) for name, case in CASES.items()}
    lines = [f"{name:<40} RFC {case.source:<12} {case.status} {found[name]}" for name, case in CASES.items()]
    with capsys.disabled():
        sys.stdout.write("\n".join(["", *lines, ""]))
    # A body that breaks off has an answer, or none: its server may not have had the request.
    wrong = {name: found[name] for name, case in CASES.items() if found[name] != case.status and case.status}
    assert not wrong
    assert found["chunks of no size"] in (0, 400, 502)


@pytest.mark.servers
def test_what_only_looks_like_a_handshake_is_a_request(proxying: Start) -> None:
    body = b'{"model": "m"}'
    head = POST + HOST + UPGRADE + b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    with raw(answers(HELLO)) as server:
        proxy = proxying(server.port)
        assert status_of(exchange(proxy.port, head + END + body)) == 200
        record = proxy.record()
    assert (record["http.request.method"], record["gen_ai.request.model"]) == ("POST", "m")
    assert (record["http.request.body.size"], record["http.response.body.size"]) == (len(body), 5)
    assert proxy.records("websocket.connection") == []


@pytest.mark.servers
def test_a_request_that_is_refused_is_on_record(proxying: Start) -> None:
    with raw(answers(HELLO)) as server:
        proxy = proxying(server.port)
        assert status_of(exchange(proxy.port, LINE + HOST + HOST + END)) == 400
        record = proxy.record()
    assert record["http.response.status_code"] == 400


FORWARDED = b"X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: https\r\nForwarded: for=10.0.0.1\r\n"


@pytest.mark.servers
@pytest.mark.parametrize(
    ("how", "arrived"),
    [
        ((), {"x-forwarded-for": "127.0.0.1", "x-forwarded-proto": "http"}),
        (
            ("--forwarded", "append"),
            {
                "x-forwarded-for": "10.0.0.1, 127.0.0.1",
                "x-forwarded-proto": "https",
                "forwarded": "for=10.0.0.1, for=127.0.0.1",
            },
        ),
        (
            ("--forwarded", "keep"),
            {"x-forwarded-for": "10.0.0.1", "x-forwarded-proto": "https", "forwarded": "for=10.0.0.1"},
        ),
    ],
)
def test_a_client_says_where_it_comes_from_only_if_it_may(
    proxying: Start, how: tuple[str, ...], arrived: dict[str, str]
) -> None:
    heads: list[bytes] = []
    with raw(once(HELLO, heads)) as server:
        proxy = proxying(server.port, *how)
        assert status_of(exchange(proxy.port, LINE + HOST + FORWARDED + END)) == 200
    lines = dict(line.split(": ", 1) for line in heads[0].decode().lower().splitlines()[1:] if line)
    assert {name: value for name, value in lines.items() if "forwarded" in name} == arrived


@pytest.mark.servers
def test_no_client_takes_away_what_the_proxy_says_of_it(proxying: Start) -> None:
    heads: list[bytes] = []
    with raw(once(HELLO, heads)) as server:
        proxy = proxying(server.port)
        options = b"Connection: close, x-forwarded-for, x-forwarded-proto\r\n\r\n"
        assert status_of(exchange(proxy.port, LINE + HOST + options)) == 200
    assert b"x-forwarded-for: 127.0.0.1" in heads[0].lower()


@pytest.mark.servers
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


@pytest.mark.servers
def test_a_port_in_use_is_named(listener_binary: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [str(listener_binary), "proxy", "--listen", address, "--to", "a:1", "--directory", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert f"--listen {address}" in done.stderr


@pytest.mark.servers
def test_the_command_of_the_package_becomes_the_program(listener_binary: Path, configure: Configure) -> None:
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


@pytest.mark.servers
def test_without_the_program_the_command_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference_logging.cli.native._program", lambda: None)
    done = run("proxy", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1")
    assert (done.code, "pip install inferlog-listener" in done.err) == (1, True), done


SENT = {"X-Tenant": "acme", "x-team": "search", "x-other": "no", "Authorization": f"Bearer {SECRET}"}


@pytest.fixture
def identifying(proxying: Start, tmp_path: Path) -> Callable[..., Proxy]:
    """Start proxies that record headers, some of them as hashes."""
    (tmp_path / "key").write_bytes(KEY)
    return lambda to, **parameters: proxying(
        to, record_headers=HEADERS, capture_hash_key_file=tmp_path / "key", **parameters
    )


@pytest.fixture
def closing() -> Iterator[int]:
    """Serve WebSockets that are closed at once, and return the port."""
    with serve(lambda connection: connection.close(), "127.0.0.1", 0) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.socket.getsockname()[1]
        server.shutdown()
        thread.join()


def assert_identified(proxy: Proxy, record: dict[str, Any]) -> None:
    assert (record["tenant.id"], record["http.request.header.x-team"]) == ("acme", "search")
    assert record["api_key.hash"].startswith("blake3-keyed:")
    assert not any("other" in name for name in record)
    assert SECRET.encode() not in everything(proxy.config.directory)


@pytest.mark.servers
def test_a_request_has_the_headers_and_members_that_are_asked_for(identifying: Callable[..., Proxy]) -> None:
    with raw(answers(HELLO)) as server:
        proxy = identifying(server.port, record_body_fields=["user"])
        httpx.post(f"{proxy.url}/v1/chat/completions", json=BODY, headers=SENT, timeout=60)
        record = proxy.record()
    assert_identified(proxy, record)
    assert record["openai.request.user"] == "user-7"
    assert record["gen_ai.request.model"] == "m"


@pytest.mark.servers
def test_a_connection_has_the_headers_of_its_handshake(identifying: Callable[..., Proxy], closing: int) -> None:
    proxy = identifying(closing)
    with connect(f"ws://127.0.0.1:{proxy.port}/", additional_headers=SENT) as client:
        assert list(client) == []
    assert_identified(proxy, proxy.record("websocket.connection"))


@pytest.mark.servers
def test_without_the_parameter_nothing_of_them_is_recorded(proxying: Start) -> None:
    with raw(answers(HELLO)) as server:
        proxy = proxying(server.port)
        httpx.get(proxy.url, headers=SENT, timeout=60)
        record = proxy.record()
    assert not {"tenant.id", "api_key.hash"} & set(record)


ANOTHER_PROTOCOL = "Sends invalid connection preface"
"""Its port takes HTTP/1.1 too, so bytes that begin no HTTP/2 are answered by a 400 of HTTP/1.1 before the end."""


@pytest.mark.real
def test_the_proxy_speaks_http2_as_the_standard_says(proxying: Start) -> None:
    with raw(answers(HELLO)) as server:
        proxy = proxying(server.port)
        command = [str(tool("h2spec")), "--host", "127.0.0.1", "--port", str(proxy.port), "--timeout", "30"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False).stdout
    # A failure is listed twice, as it comes and at the end.
    failed = set(re.findall(r"× \d+: (.*)", said))
    found = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", said)
    assert found is not None, said[-2000:]
    assert failed <= {ANOTHER_PROTOCOL}, said[-2000:]
    assert (int(found[1]), int(found[3])) == (145, 0)
