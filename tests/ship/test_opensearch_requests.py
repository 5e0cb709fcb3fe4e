"""What is asked of OpenSearch, and what its answers mean; a real one is in test_opensearch.py."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from inference_logging.read.segments.columns import COLUMNS
from inference_logging.record.config.parameters.shipping import DESTINATIONS
from inference_logging.ship.line import Destination, Line
from inference_logging.ship.opensearch import FIELDS, MESSAGES, RENAMED, Place, action, identity, template
from tests.kit.command_line import run
from tests.kit.segment_files import BOOT_ID, log, request
from tests.kit.servers import free_port
from tests.ship.opensearch import BUSY, THERE, Request, Server, error
from tests.ship.programs import certificate

Open = Callable[..., Destination]
NAME: Final = "svc-20261121T050000.000Z-00000000deadbeef-000001.jsonl"
MAPPING: Final = (400, "mapper_parsing_exception", "failed to parse field [duration_s] of type [double]")
IMMENSE: Final = (400, "illegal_argument_exception", 'Document contains at least one immense term in field="x"')
NO_ROOM: Final = (400, "validation_exception", "this action would add [2] total shards, but this cluster has 1000")
NO_ALIAS: Final = (400, "illegal_argument_exception", "no write index is defined for alias [logs]")
AWAY: Final = (503, "unavailable_shards_exception", "primary shard is not active")
FULL: Final = (403, "cluster_block_exception", "index [x] blocked by: disk usage exceeded flood-stage watermark")


@pytest.fixture
def server() -> Iterator[Server]:
    served = Server()
    yield served
    served.close()


def line(record: dict[str, Any], offset: int = 0) -> Line:
    return Line("svc", NAME, offset, orjson.dumps(record), record, {"service.name": "svc", "k8s.pod.name": "pod-1"})


def lines(*numbers: int) -> list[Line]:
    return [line(log(at, f"m{at}"), at) for at in numbers]


def document(record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    head, content = (orjson.loads(part) for part in action(line(record, 7), "logs").splitlines())
    return head["create"], content


@pytest.mark.parametrize(
    ("to", "place"),
    [
        ("opensearch+http://127.0.0.1:9200/logs", Place("http://127.0.0.1:9200", "logs")),
        ("elasticsearch+https://a.example/of/it/logs-a", Place("https://a.example/of/it", "logs-a")),
        ("opensearch+https://[::1]:9/logs?template=none", Place("https://[::1]:9", "logs", has_template=False)),
    ],
)
def test_a_place_has_a_server_and_an_index(configure: Callable[..., Any], to: str, place: Place) -> None:
    assert Place.parse(configure(ship_to=to).ship_to) == place


def test_a_document_has_the_index_of_its_day_and_the_id_of_its_record() -> None:
    head, content = document(request(1) | {"timestamp": "2026-11-21T23:59:59.999999999Z"})
    assert head == {"_index": "logs-2026.11.21", "_id": f"{BOOT_ID}-1-1000"}
    assert (content["segment"], content["offset"], content["k8s.pod.name"]) == (NAME, 7, "pod-1")
    assert content["timestamp"] == "2026-11-21T23:59:59.999999999Z"


@pytest.mark.parametrize("missing", ["boot_id", "pid", "seq"])
def test_a_record_without_a_number_is_known_by_its_place(missing: str) -> None:
    record = log(1)
    del record[missing]
    assert identity(line(record, 7)) == f"{NAME}:7"


def test_nothing_of_a_record_is_left_out_and_each_name_has_one_meaning() -> None:
    texts = {name: [{"role": "user"}] for name in MESSAGES}
    record = request(1, duration_s="no number", unheard={"a": 1}, segment="its own", other=5) | texts
    record |= {"http.request.body": "all", "http.request.body.size": 3, "timestamp": "2026-02-30T00:00:00.0Z"}
    head, content = document(record)
    assert head["_index"] == "logs-2026.11.21", "its segment's"
    assert content["timestamp"] == "2026-11-21T05:00:00.000000Z"
    kept = ("duration_s", "unheard", "segment", "other", "timestamp")
    assert content["other"] == {name: record[name] for name in kept}
    assert {name: content[name] for name in texts} == texts
    assert (content["http.request.body.text"], content["http.request.body.size"]) == ("all", 3)
    assert content.keys() <= FIELDS.keys()
    # What an index has below a name cannot have a value at that name, but what it does not look into.
    assert not [name for name in FIELDS for other in FIELDS if other.startswith(f"{name}.")]


def test_the_template_has_each_column_and_can_be_printed(tmp_path: Path) -> None:
    assert {RENAMED.get(name, name) for name in COLUMNS} <= FIELDS.keys()
    to = "elasticsearch+https://a:9200/logs"
    done = run("ship", "--directory", str(tmp_path), "--to", to, "--print-schema")
    assert (done.code, done.err) == (0, "")
    printed = orjson.loads(done.out)
    assert printed == template("logs")
    assert printed["index_patterns"] == ["logs", "logs-*"]
    # Of two templates with overlapping patterns, the one of the longer name is the more exact one.
    assert template("logs-a")["priority"] > printed["priority"]


def test_the_schema_of_another_destination_is_none(tmp_path: Path) -> None:
    done = run("ship", "--directory", str(tmp_path), "--to", "otlp+http://127.0.0.1:1", "--print-schema")
    assert done.code == 2
    assert "elasticsearch+" in done.err
    assert "opensearch+https://host:9200/index" in DESTINATIONS


def test_a_batch_is_one_request_with_the_headers_of_the_file(server: Server, opened: Open, tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("Authorization: ApiKey s3cret\n")
    destination = opened(ship_to=server.url, ship_headers_file=tmp_path / "headers")
    assert not destination.send(lines(1, 2)).failed
    assert not destination.send(lines(3)).failed
    assert [(one.method, one.path) for one in server.requests] == [
        ("GET", "/_index_template/logs"),
        ("PUT", "/_index_template/logs"),
        ("POST", "/_bulk"),
        ("POST", "/_bulk"),
    ]
    assert {one.headers["Authorization"] for one in server.requests} == {"ApiKey s3cret"}
    assert server.templates == {"logs": template("logs")}
    assert server.requests[1].parameters == {"create": "true"}
    first = server.bulks()[0]
    assert (first.headers["Content-Type"], first.offsets()) == ("application/x-ndjson", [1, 2])
    assert first.content[0] == {"create": {"_index": "logs-2026.11.21", "_id": f"{BOOT_ID}-1-1000"}}


def test_a_template_that_is_there_stays_and_none_is_asked_for_where_that_is_said(server: Server, opened: Open) -> None:
    server.templates = {"logs": "an administrator's"}
    assert not opened(ship_to=server.url).send(lines(1)).failed
    assert server.templates == {"logs": "an administrator's"}
    server.requests.clear()
    assert not opened(ship_to=f"{server.url}?template=none").send(lines(1)).failed
    assert [one.path for one in server.requests] == ["/_bulk"]


@pytest.mark.parametrize("result", [BUSY, AWAY, FULL, NO_ROOM, NO_ALIAS, (404, "index_not_found_exception", "x")])
def test_of_a_request_that_failed_in_part_only_the_failed_are_sent_again(
    server: Server, opened: Open, result: tuple[int, str, str]
) -> None:
    server.items = {2: result, 4: THERE}
    sent = opened(ship_to=server.url).send(lines(*range(5)))
    assert ([one.offset for one in sent.failed], sent.refused) == ([2], {})
    assert (sent.error_type, sent.error) == (result[1], f"status {result[0]}: {result[1]}: {result[2]}")


@pytest.mark.parametrize("result", [MAPPING, IMMENSE, (400, "document_parsing_exception", "x")])
def test_a_document_that_the_mapping_cannot_take_is_refused_and_the_others_arrive(
    server: Server, opened: Open, result: tuple[int, str, str]
) -> None:
    server.items = {1: result, 2: BUSY, 3: result}
    sent = opened(ship_to=server.url).send(lines(*range(5)))
    assert ([one.offset for one in sent.failed], sent.refused) == ([2], {result[1]: 2})


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (401, error("security_exception"), "security_exception"),
        (429, error("circuit_breaking_exception"), "circuit_breaking_exception"),
        (503, b"upstream", "503"),
        (400, error("parse_exception"), "parse_exception"),
        (502, b'{"error": "words"}', "502"),
        (200, b"<html>a portal", "JSONDecodeError"),
        (200, b'{"items": []}', "ValueError"),
        (200, b"{}", "KeyError"),
    ],
)
def test_an_answer_that_is_no_result_is_a_failure_of_all(
    server: Server, opened: Open, status: int, content: bytes, kind: str
) -> None:
    server.answers = [(status, content, {"Retry-After": "7"})]
    sent = opened(ship_to=server.url).send(lines(1, 2))
    assert ([one.offset for one in sent.failed], sent.refused, sent.error_type) == ([1, 2], {}, kind)
    assert sent.retry_after_s == (7.0 if status != 200 else 0.0)


def test_a_template_that_cannot_be_made_is_a_failure_and_tried_again(opened: Open) -> None:
    class Forbidding(Server):
        def answer(self, asked: Request, content_bytes: int) -> tuple[int, bytes, dict[str, str]]:
            if asked.method == "PUT":
                return 403, error("security_exception"), {}
            return super().answer(asked, content_bytes)

    with contextlib.closing(Forbidding()) as server:
        destination = opened(ship_to=server.url)
        sent = destination.send(lines(1))
        assert ([one.offset for one in sent.failed], sent.error_type) == ([1], "security_exception")
        assert not server.bulks(), "without a template the server would guess each type"
        server.templates = {"logs": "an administrator's"}
        assert not destination.send(lines(1)).failed


def test_a_request_that_is_too_large_is_halved(server: Server, opened: Open) -> None:
    server.most_bytes = 1000
    many = [*lines(1, 2), line(log(3, "x" * 2000), 3), *lines(4)]
    sent = opened(ship_to=server.url).send(many)
    assert (list(sent.failed), sent.refused) == ([], {"413": 1})
    taken = [one.offsets() for one in server.bulks() if 3 not in one.offsets()]
    assert [offset for offsets in taken for offset in offsets] == [1, 2, 4]


def test_a_server_that_is_away_or_dies_has_failed(server: Server, opened: Open) -> None:
    sent = opened(ship_to=f"opensearch+http://127.0.0.1:{free_port()}/logs").send(lines(1))
    assert ([one.offset for one in sent.failed], sent.error_type) == ([1], "ConnectError")
    server.answers = [(0, b"", {})]
    sent = opened(ship_to=server.url).send(lines(1))
    assert ([one.offset for one in sent.failed], sent.error_type) == ([1], "RemoteProtocolError")


def test_a_certificate_is_checked_against_the_given_ones(opened: Open, tmp_path: Path) -> None:
    key, made = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    with contextlib.closing(Server(context)) as server:
        sent = opened(ship_to=server.url).send(lines(1))
        assert "CERTIFICATE_VERIFY_FAILED" in sent.error
        assert not opened(ship_to=server.url, ship_ca_file=made).send(lines(1)).failed
        assert [one.offsets() for one in server.bulks()] == [[1]]
