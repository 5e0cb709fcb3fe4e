"""What the proxy takes for a request: the MUSTs of RFC 9112 and 9110 that concern a server and a proxy, as a list."""

from __future__ import annotations

import re
import socket
import sys
from typing import NamedTuple

import pytest

from tests.proxies import HELLO, Serve, Start, answers, exchange, head_of, raw

pytestmark = pytest.mark.servers

HOST = b"Host: a\r\n"
END = b"Connection: close\r\n\r\n"
GET = b"GET / HTTP/1.1\r\n"
POST = b"POST / HTTP/1.1\r\n"
UPGRADE = b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"


class Case(NamedTuple):
    """Bytes of a client, the status of the answer, and where it is written."""

    request: bytes
    status: int
    source: str


CASES = {
    "one host": Case(GET + HOST + END, 200, "9112 3.2"),
    "no host": Case(GET + END, 400, "9112 3.2"),
    "two hosts": Case(GET + HOST + HOST + END, 400, "9112 3.2"),
    "a host that is none": Case(GET + b"Host: u@a/b\r\n" + END, 400, "9112 3.2"),
    "HTTP/1.0 without a host": Case(b"GET / HTTP/1.0\r\n\r\n", 200, "9112 3.2"),
    "an absolute target with its host": Case(b"GET http://a/ HTTP/1.1\r\n" + HOST + END, 200, "9112 3.2.2"),
    "an absolute target with another host": Case(b"GET http://b/ HTTP/1.1\r\n" + HOST + END, 400, "9112 3.2.2"),
    "a tunnel": Case(b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n" + END, 501, "9110 9.3.6"),
    "a space before the colon": Case(GET + b"Host : a\r\n" + END, 400, "9112 5.1"),
    "a folded line": Case(GET + HOST + b"X-A: 1\r\n 2\r\n" + END, 400, "9112 5.2"),
    "a bare carriage return": Case(GET + HOST + b"X-A: 1\r2\r\n" + END, 400, "9112 2.2"),
    "a space before the first header": Case(GET + b" X-A: 1\r\n" + HOST + END, 400, "9112 2.2"),
    "an empty line before the request": Case(b"\r\n" + GET + HOST + END, 200, "9112 2.2"),
    "a length that is no number": Case(POST + HOST + b"Content-Length: 1x\r\n" + END, 400, "9112 6.3"),
    "two lengths": Case(POST + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n" + END + b"ab", 400, "9112 6.3"),
    "a list of lengths": Case(POST + HOST + b"Content-Length: 1, 2\r\n" + END + b"ab", 400, "9112 6.3"),
    "chunked": Case(POST + HOST + b"Transfer-Encoding: chunked\r\n" + END + b"1\r\na\r\n0\r\n\r\n", 200, "9112 7.1"),
    "another coding": Case(POST + HOST + b"Transfer-Encoding: gzip, chunked\r\n" + END + b"0\r\n\r\n", 501, "9112 6.1"),
    "chunked not last": Case(
        POST + HOST + b"Transfer-Encoding: chunked, gzip\r\n" + END + b"0\r\n\r\n", 400, "9112 6.3"
    ),
    "chunks of no size": Case(POST + HOST + b"Transfer-Encoding: chunked\r\n" + END + b"x\r\n", 0, "9112 7.1"),
    "a header for all as an option": Case(GET + HOST + b"Connection: host, authorization\r\n\r\n", 400, "9110 7.6.1"),
    "an unknown protocol": Case(b"GET / HTTP/3.9\r\n" + HOST + END, 400, "9110 2.5"),
    "no protocol": Case(b"GET /\r\n\r\n", 400, "9112 3"),
    "a handshake by POST": Case(POST + HOST + UPGRADE + b"Content-Length: 0\r\n" + END, 200, "6455 4.1"),
    "a handshake without its option": Case(GET + HOST + UPGRADE + END, 200, "9110 7.8"),
}


def status_of(answer: bytes) -> int:
    """Return the status of an answer; 0: there is none, or its connection ended."""
    found = re.match(rb"HTTP/1\.[01] (\d{3}) ", answer)
    return int(found[1]) if found else 0


def test_what_is_asked_is_taken_or_refused_as_the_standard_says(
    proxying: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    with raw(answers(HELLO)) as server:
        proxy = proxying(server.port)
        found = {name: status_of(exchange(proxy.port, case.request)) for name, case in CASES.items()}
    lines = [f"{name:<40} RFC {case.source:<12} {case.status} {found[name]}" for name, case in CASES.items()]
    with capsys.disabled():
        sys.stdout.write("\n".join(["", *lines, ""]))
    # A body that breaks off has an answer, or none: its server may not have had the request.
    wrong = {name: found[name] for name, case in CASES.items() if found[name] != case.status and case.status}
    assert not wrong
    assert found["chunks of no size"] in (0, 400, 502)


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


def test_a_request_that_is_refused_is_on_record(proxying: Start) -> None:
    with raw(answers(HELLO)) as server:
        proxy = proxying(server.port)
        assert status_of(exchange(proxy.port, GET + HOST + HOST + END)) == 400
        record = proxy.record()
    assert record["http.response.status_code"] == 400


FORWARDED = b"X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: https\r\nForwarded: for=10.0.0.1\r\n"


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
    with raw(noting(heads)) as server:
        proxy = proxying(server.port, *how)
        assert status_of(exchange(proxy.port, GET + HOST + FORWARDED + END)) == 200
    lines = dict(line.split(": ", 1) for line in heads[0].decode().lower().splitlines()[1:] if line)
    assert {name: value for name, value in lines.items() if "forwarded" in name} == arrived


def test_no_client_takes_away_what_the_proxy_says_of_it(proxying: Start) -> None:
    heads: list[bytes] = []
    with raw(noting(heads)) as server:
        proxy = proxying(server.port)
        options = b"Connection: close, x-forwarded-for, x-forwarded-proto\r\n\r\n"
        assert status_of(exchange(proxy.port, GET + HOST + options)) == 200
    assert b"x-forwarded-for: 127.0.0.1" in heads[0].lower()


def noting(heads: list[bytes]) -> Serve:
    """Return a server that answers one request, and notes its head."""

    def serve(connection: socket.socket) -> None:
        heads.append(head_of(connection))
        connection.sendall(HELLO)

    return serve
