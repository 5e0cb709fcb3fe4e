"""The pages as something to attack: hosts, origins, keys, headers, and texts of strangers."""

from __future__ import annotations

import mimetypes
import re
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_logging.read.view.links import parse_link
from inference_logging.read.view.security import HEADERS, new_token
from inference_logging.read.view.server import HostError, bind, loopback
from tests.kit.segment_files import log, request, write_segment
from tests.kit.view_server import Answer, Client, serving

HOSTILE = ["<script>alert(1)</script>", "\u202egnp.exe", "\x1b]0;title\x07", "' OR 1=1 --", "\x00", "=1+1"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory = tmp_path_factory.mktemp("logs")
    records = [request(1), *(log(2 + at / 10, text, attributes={text: text}) for at, text in enumerate(HOSTILE))]
    write_segment(directory, [*records, request(3, **{"tenant.id": HOSTILE[0], "url.path": "/" + HOSTILE[0]})])
    static = tmp_path_factory.mktemp("static")
    (static / "index.html").write_text("<!doctype html><title>view</title>")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inference_logging.read.view.app.STATIC", static)
        with serving([directory]) as made:
            yield made


def is_served(client: Client) -> bool:
    return client.get("api/rows").status == 200


def test_the_page_s_own_requests_are_answered(client: Client) -> None:
    assert is_served(client)
    assert client.send(client.target("api/progress")).status == 200  # a program without headers of a browser
    assert client.send(client.target("api/progress"), method="HEAD").status == 200


@pytest.mark.parametrize("token", ["", "/", "x", "x" * 43, "%00", "..", "é" * 10, "static", "api"])
def test_a_wrong_token_gets_an_empty_page(client: Client, token: str) -> None:
    for target in (f"/{token}", f"/{token}/", f"/{token}/api/rows", "/", "/api/rows", "*"):
        answer = client.send(target)
        assert (answer.status, answer.body) in ((403, b""), (400, b"")), target
    assert is_served(client)


def test_a_part_of_the_token_and_more_than_it_are_wrong(client: Client) -> None:
    token = client.prefix.rstrip("/")
    for wrong in (token[:-1], token + "x", token.swapcase(), f" {token}", f"{token}%00", f"/{token}"):
        assert client.send(f"/{wrong}/api/rows").status in (400, 403), wrong


def test_the_token_is_compared_in_constant_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    of = secrets.compare_digest

    def compare(given: bytes, token: bytes) -> bool:
        compared.append((given, token))
        return of(given, token)

    monkeypatch.setattr("secrets.compare_digest", compare)
    assert client.send("/wrong/api/rows").status == 403
    assert compared == [(b"wrong", client.prefix.rstrip("/").encode())]


def test_tokens_are_long_and_never_the_same() -> None:
    made = {new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch(r"[\w-]{43}", token) for token in made)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com", "evil.example.com:{port}", "127.0.0.1", "localhost", "127.0.0.1:1", "localhost:80",
        "127.0.0.1.example.com:{port}", "localhost.example.com:{port}", "example.com@127.0.0.1:{port}", "[::2]:{port}",
        "[::1]", "::1:{port}", "127.0.0.2:{port}", "0.0.0.0:{port}", "127.1:{port}", "2130706433:{port}",
        "localhost.:{port}", "127.0.0.1:{port} evil", "127.0.0.1:{port}, evil", "127.0.0.1:{port}0", "",
    ],
)  # fmt: skip
def test_a_foreign_host_is_refused(client: Client, host: str) -> None:
    answer = client.send(client.target("api/rows"), {"Host": host.format(port=client.port)})
    assert (answer.status, answer.body) in ((421, b""), (400, b""))
    assert is_served(client)


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LocalHost:{port}", "[::1]:{port}"])
def test_the_names_of_this_machine_are_taken(client: Client, host: str) -> None:
    assert client.send(client.target("api/rows"), {"Host": host.format(port=client.port)}).status == 200


def test_two_hosts_and_a_foreign_absolute_address_are_refused(client: Client) -> None:
    target = client.target("api/rows")
    assert client.send(target, {"Host": f"{client.own}\r\nHost: evil.example.com"}).status == 400
    for address in (
        f"http://evil.example.com{target}",
        f"HTTP://evil.example.com{target}",
        f"http://{client.own}{target}",
    ):
        assert client.send(address).status == 403, address
    assert is_served(client)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example.com"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost.example.com:{port}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_requests_of_another_site_s_page_are_refused(client: Client, headers: dict[str, str]) -> None:
    given = {name: value.format(port=client.port) for name, value in headers.items()}
    for path in ("", "api/rows", "api/live", "static/pages/vendor/vendor.json"):
        answer = client.send(client.target(path), given)
        assert (answer.status, answer.body) == (403, b"")


def test_a_link_opens_the_page_and_nothing_else(client: Client) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    page = client.send(client.target(""), link)
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert client.send(client.target("api/rows"), link).status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_nothing_but_reading_is_possible(client: Client, method: str) -> None:
    answer = client.send(client.target("api/rows"), {"Content-Length": "0"}, method)
    assert (answer.status, answer.headers.get("allow")) == (405, "GET, HEAD")


def _answers(client: Client) -> Iterator[Answer]:
    yield client.get("api/rows")
    yield client.get("api/rows", q="{")
    yield client.get("api/nothing")
    yield client.get("api/record", key="none:1")
    yield client.get("static/pages/vendor/vendor.json")
    yield client.get("static/none.js")
    yield client.send("/wrong/")
    yield client.send(client.target("api/rows"), {"Host": "evil.example.com"})
    yield client.send(client.target("api/rows"), {}, "POST")
    yield client.send(f"/{client.prefix}".rstrip("/"))
    yield client.send("no target", {"Host": ""})


def test_every_answer_has_the_headers_also_an_error(client: Client) -> None:
    statuses = set()
    for answer in _answers(client):
        statuses.add(answer.status)
        for name, value in HEADERS:
            assert answer.headers.get(name.decode()) == value.decode(), answer
        assert "server" not in answer.headers
    assert {200, 308, 400, 403, 404, 405, 421} <= statuses


def test_nothing_may_be_loaded_from_elsewhere_and_no_script_stands_in_a_page() -> None:
    policy = dict(HEADERS)[b"content-security-policy"].decode()
    rules = dict(rule.split(None, 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"


@pytest.mark.parametrize(
    "path",
    [
        "../app.py", "../../errors.py", "%2e%2e/app.py", "..%2fapp.py", "....//app.py", "/etc/passwd", "//etc/passwd",
        "pages/../../view/app.py", "pages/%2e%2e/%2e%2e/errors.py", "pages/..%5c..%5cerrors.py", "%00", "pages/vendor/",
        "pages", "C:/x", "~/x", "pages/vendor/vendor.json%00.js",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_static_folders(client: Client, path: str) -> None:
    answer = client.send(f"/{client.prefix}static/{path}")
    assert answer.status in (400, 403, 404)
    assert b"import" not in answer.body
    assert b"root:" not in answer.body
    assert is_served(client)


def test_a_static_file_of_the_package_is_sent_as_what_it_is_whatever_this_machine_calls_it(tmp_path: Path) -> None:
    mimetypes.add_type("text/plain", ".js")
    with serving([tmp_path]) as client:
        answer = client.get("static/pages/vendor/htm/standalone.module.js")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/javascript; charset=utf-8")


def test_a_symbolic_link_in_the_static_folder_leads_nowhere(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "static").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "static" / "link.txt").symlink_to(tmp_path / "secret.txt")
    monkeypatch.setattr("inference_logging.read.view.app.STATIC", tmp_path / "static")
    with serving([tmp_path]) as other:
        assert other.get("static/link.txt").status == 404


def test_hostile_texts_come_back_unchanged_and_as_json_only(client: Client) -> None:
    answer = client.get("api/rows", q={"order": "oldest", "events": ["log"]})
    assert answer.headers["content-type"] == "application/json"
    records = [client.get("api/record", key=row["key"]) for row in answer.json()["rows"]]
    assert [one.json()["record"]["message"] for one in records] == HOSTILE
    assert {one.headers["content-type"] for one in records} == {"application/json"}
    assert client.rows(where=[f"tenant.id={HOSTILE[0]}"])[0]["url.path"] == "/" + HOSTILE[0]


def test_a_hostile_text_in_a_question_comes_back_in_json_only(client: Client) -> None:
    for answer in (
        client.get("api/rows", q='{"<script>alert(1)</script>": 1}'),
        client.get("api/record", key="<script>alert(1)</script>"),
        client.get("api/<script>alert(1)</script>"),
        client.get("api/export", format="<script>alert(1)</script>"),
    ):
        assert answer.status in (400, 404)
        assert answer.headers["content-type"] == "application/json"
        assert isinstance(answer.json()["error"], str)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.0.0.9"])
def test_loopback_addresses_are_taken(host: str) -> None:
    assert loopback(host) in ("127.0.0.1", "::1", "127.0.0.9")


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.168.0.1", "example.com", "127.0.0.1.example.com", "*"])
def test_another_host_is_refused_with_the_way_out(host: str) -> None:
    with pytest.raises(HostError, match=re.escape(f"host={host!r}")) as refused:
        loopback(host)
    assert "ssh -L" in str(refused.value)


def test_a_busy_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=f"port={port}: another program uses it"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize(
    "text",
    [
        "", "Jaeger", "=https://example.com/{trace_id}", "J=", "J=https://example.com/",
        "J=javascript:alert({trace_id})",
        "J=https://{trace_id}.example.com/", "J=//example.com/{trace_id}", "J=https:///{trace_id}",
        "J=https://example.com/{trace_id}{span_id}", "J=https://example.com/ {trace_id}", "J=data:text/html,{trace_id}",
        "J=https://example.com/\x1b{trace_id}", "J=https://example.com/\"{trace_id}", "J=file:///etc/{trace_id}",
        "J=https://[::1/{trace_id}", "J=https://example.com/{trace_id}" + "x" * 3000,
    ],
)  # fmt: skip
def test_a_wrong_link_to_traces_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="must") as refused:
        parse_link(text)
    assert repr(text)[:40] in str(refused.value)


def test_a_link_to_traces_reaches_the_page(tmp_path: Path) -> None:
    link = parse_link("Grafana dev=http://localhost:3000/explore?trace={trace_id}&org=1")
    with serving([tmp_path], links=[link]) as client:
        meta: dict[str, Any] = client.get("api/meta").json()
        assert meta["links"] == [{"name": "Grafana dev", "template": link.template}]
