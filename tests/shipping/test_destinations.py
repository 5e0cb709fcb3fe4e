"""Each kind of destination without its server: what is sent, what an answer means, and what a wrong setting reports.

The real servers are in the files beside this one.
"""

from __future__ import annotations

import gzip
import json
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import orjson
import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from inference_logging.errors import ConfigError, OpenError
from inference_logging.shipping.line import Destination, Line, unix_nano
from tests.segment_files import log, request
from tests.servers import free_port
from tests.shipping.endpoint import Collector

Open = Callable[..., Destination]
RESOURCE = {"service.name": "svc", "k8s.pod.name": "pod-1"}


def line(record: dict[str, Any], offset: int = 0) -> Line:
    return Line("svc", "svc-1.jsonl", offset, orjson.dumps(record), record, RESOURCE)


LINES = [line(log(at, f"m{at}"), at) for at in range(4)]


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        ("2026-11-21T05:00:00.000000001Z", 1_795_237_200_000_000_001),
        ("2026-11-21T05:00:00.5Z", 1_795_237_200_500_000_000),
        ("2026-11-21T05:00:00Z", 0),
        ("", 0),
        ("yesterday", 0),
        ("2026-11-21T05:00:00.xZ", 0),
    ],
)
def test_times_keep_their_nanoseconds(timestamp: str, expected: int) -> None:
    assert unix_nano(timestamp) == expected


# --- OTLP ------------------------------------------------------------------------------------------------------------


def test_a_record_becomes_a_log_record_of_the_data_model(collector: Collector, opened: Open) -> None:
    record = request(1.5, nested={"a": [1, 2.5, None, True]}, big=2**63, gen_ai__usage__input_tokens=7)
    record |= {"span_id": "00f067aa0ba902b7", "trace_flags": "03"}
    assert not opened(ship_to=collector.url).send([line(record)]).failed
    path, headers, export = collector.logs()[0]
    assert (path, headers["Content-Type"]) == ("/v1/logs", "application/x-protobuf")
    (resource,) = export.resource_logs
    attributes = {one["key"]: one["value"]["stringValue"] for one in MessageToDict(resource.resource)["attributes"]}
    assert attributes == RESOURCE
    (made,) = resource.scope_logs[0].log_records
    assert made.time_unix_nano == unix_nano(record["timestamp"])
    assert (made.severity_text, made.severity_number, made.event_name) == ("INFO", 9, "request")
    assert (made.trace_id.hex(), made.span_id.hex(), made.flags) == (record["trace_id"], record["span_id"], 3)
    assert made.body.string_value == "request"
    attributes = {one["key"]: one["value"] for one in MessageToDict(made)["attributes"]}
    assert attributes["gen_ai.usage.input_tokens"] == {"intValue": "7"}
    assert attributes["big"] == {"doubleValue": float(2**63)}
    values = attributes["nested"]["kvlistValue"]["values"][0]["value"]["arrayValue"]["values"]
    assert values == [{"intValue": "1"}, {"doubleValue": 2.5}, {}, {"boolValue": True}]
    apart = {"timestamp", "severity_text", "event_name", "trace_id", "span_id", "trace_flags"}
    assert attributes.keys() == record.keys() - apart


def test_the_path_and_headers_are_the_operators(collector: Collector, opened: Open, tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("# for the gateway\nAuthorization: Bearer a:b\n\nX-Scope-OrgID: one\n")
    assert not opened(ship_to=f"{collector.url}/otlp/v1/logs", ship_headers_file=file).send(LINES).failed
    path, headers, _ = collector.logs()[0]
    assert (path, headers["Authorization"], headers["X-Scope-OrgID"]) == ("/otlp/v1/logs", "Bearer a:b", "one")


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 502, 503, 504])
def test_an_answer_that_can_change_is_a_failure_of_all_of_them(collector: Collector, opened: Open, status: int) -> None:
    collector.answers = [(status, b"later", {"Retry-After": "7"})]
    sent = opened(ship_to=collector.url).send(LINES)
    assert list(sent.failed) == LINES
    assert (sent.error, sent.error_type, sent.retry_after_s) == (f"status {status}: later", str(status), 7.0)


def test_of_a_batch_that_is_refused_only_the_cause_is_left_out(collector: Collector, opened: Open) -> None:
    collector.refuses = lambda content: b"m2" in content
    sent = opened(ship_to=collector.url).send(LINES)
    assert (list(sent.failed), sent.refused) == ([], {"413": 1})
    arrived = [export for _, _, export in collector.logs() if b"m2" not in export.SerializeToString()]
    assert [len(export.resource_logs[0].scope_logs[0].log_records) for export in arrived] == [2, 1]


def test_what_a_collector_rejects_of_a_batch_is_counted(collector: Collector, opened: Open) -> None:
    answer = ExportLogsServiceResponse()
    answer.partial_success.rejected_log_records = 3
    collector.answers = [(200, answer.SerializeToString(), {}), (200, b"\xff\xff", {})]
    destination = opened(ship_to=collector.url)
    assert destination.send(LINES).refused == {"partial_success": 3}
    assert destination.send(LINES).refused == {}, "an answer that is none is a success all the same"


def test_records_of_several_services_are_resources_of_their_own(collector: Collector, opened: Open) -> None:
    other = Line("other", "other-1.jsonl", 0, b"{}", log(9, "m9"), {"service.name": "other"})
    opened(ship_to=collector.url).send([*LINES[:2], other])
    assert len(collector.logs()[0][2].resource_logs) == 2
    assert collector.messages() == ["m0", "m1", "m9"]


# --- nobody there ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["kafka://127.0.0.1:{}/t", "otlp+http://127.0.0.1:{}", "forward://127.0.0.1:{}/t"])
def test_where_nobody_is_there_everything_failed_and_nothing_raises(opened: Open, kind: str) -> None:
    sent = opened(ship_to=kind.format(free_port()), ship_timeout_s=0.5).send(LINES)
    assert (list(sent.failed), sent.refused) == (LINES, {})
    assert sent.error
    assert sent.error_type


# --- Fluent forward --------------------------------------------------------------------------------------------------


def serve_once(answer: Callable[[Any], bytes]) -> tuple[int, threading.Thread, list[Any]]:
    """Serve one connection: for each message `answer` says what goes back; empty ends it."""
    listening, got = socket.create_server(("127.0.0.1", 0)), list[Any]()

    def serve() -> None:
        connection, _ = listening.accept()
        unpacker = msgpack.Unpacker(raw=False)
        with listening, connection:
            while block := connection.recv(65536):
                unpacker.feed(block)
                for message in unpacker:
                    got.append(message)
                    back = answer(message)
                    if not back:
                        return
                    connection.sendall(back)

    thread = threading.Thread(target=serve)
    thread.start()
    return listening.getsockname()[1], thread, got


def test_entries_are_packed_with_their_time_and_one_acknowledgement(opened: Open) -> None:
    port, thread, got = serve_once(lambda message: msgpack.packb({"ack": message[2]["chunk"]}))
    destination = opened(ship_to=f"forward://127.0.0.1:{port}/app.logs")
    assert not destination.send(LINES).failed
    assert not destination.send(LINES[:1]).failed
    destination.close()
    thread.join()
    tag, packed, option = got[0]
    assert (tag, option["size"], option["compressed"]) == ("app.logs", 4, "gzip")
    unpacker = msgpack.Unpacker(raw=False)
    unpacker.feed(gzip.decompress(packed))
    entries = list(unpacker)
    assert [entry["message"] for _, entry in entries] == ["m0", "m1", "m2", "m3"]
    assert [entry["resource"] for _, entry in entries] == [RESOURCE] * 4
    time, _ = entries[1]
    assert (time.code, int.from_bytes(time.data[:4], "big")) == (0, LINES[1].unix_nano() // 1_000_000_000)


@pytest.mark.parametrize("answer", [b"", msgpack.packb({"ack": "another"}), msgpack.packb(["ack"]), b"\xc1"])
def test_what_is_not_acknowledged_has_failed(opened: Open, answer: bytes) -> None:
    port, thread, _ = serve_once(lambda message: answer)
    sent = opened(ship_to=f"forward://127.0.0.1:{port}/t").send(LINES)
    assert list(sent.failed) == LINES
    thread.join()


def test_a_server_that_does_not_prove_the_shared_key_gets_nothing(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    listening, got = socket.create_server(("127.0.0.1", 0)), bytearray()

    def serve() -> None:
        connection, _ = listening.accept()
        with listening, connection:
            connection.sendall(msgpack.packb(["HELO", {"nonce": b"n" * 16, "auth": b"", "keepalive": True}]))
            got.extend(connection.recv(65536))
            connection.sendall(msgpack.packb(["PONG", True, "", "server", "0" * 128]))
            while block := connection.recv(65536):
                got.extend(block)

    thread = threading.Thread(target=serve)
    thread.start()
    port = listening.getsockname()[1]
    sent = opened(ship_to=f"forward://127.0.0.1:{port}/t", ship_shared_key_file=tmp_path / "key").send(LINES)
    thread.join()
    assert "does not know the shared key" in sent.error
    assert b"m0" not in got
    assert b"secret" not in got


# --- Kafka and SQLite ------------------------------------------------------------------------------------------------


def test_kafka_is_always_asked_for_all_acknowledgements(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "kafka").write_text("acks=1\n")
    with pytest.raises(ConfigError, match="ship_kafka_file: acks='1': is always all"):
        opened(ship_to="kafka://a:1/t", ship_kafka_file=tmp_path / "kafka")


def test_a_property_that_kafka_does_not_know_is_reported(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "kafka").write_text("no.such.thing=1\n")
    with pytest.raises(ConfigError, match=r'ship_kafka_file: .*no\.such\.thing"'):
        opened(ship_to="kafka://a:1/t", ship_kafka_file=tmp_path / "kafka")


def test_a_record_that_is_too_large_for_kafka_is_refused_and_the_others_wait(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "kafka").write_text("message.max.bytes=1000\n")
    destination = opened(
        ship_to=f"kafka://127.0.0.1:{free_port()}/t", ship_kafka_file=tmp_path / "kafka", ship_timeout_s=0.5
    )
    sent = destination.send([LINES[0], line(log(5, "x" * 2000), 5)])
    assert (sent.failed, sent.refused) == ([LINES[0]], {"MSG_SIZE_TOO_LARGE": 1})


def test_a_database_has_each_record_once_however_often_it_is_sent(opened: Open, tmp_path: Path) -> None:
    destination = opened(ship_to=f"sqlite://{tmp_path}/of%20ours.db")
    for _ in range(2):
        assert not destination.send(LINES).failed
    with sqlite3.connect(tmp_path / "of ours.db") as database:
        rows = database.execute("SELECT service_name, event_name, timestamp, record FROM records").fetchall()
    database.close()
    assert [json.loads(row[3])["message"] for row in rows] == ["m0", "m1", "m2", "m3"]
    assert rows[0][:3] == ("svc", "log", LINES[0].record["timestamp"])


def test_a_row_has_the_resource_also_in_a_table_that_was_made_without(opened: Open, tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "a.db")
    old.executescript(
        """CREATE TABLE records (segment TEXT NOT NULL, offset INTEGER NOT NULL, service_name TEXT NOT NULL,
        timestamp TEXT, event_name TEXT, severity_text TEXT, trace_id TEXT, record TEXT NOT NULL,
        PRIMARY KEY (segment, offset)) WITHOUT ROWID;
        INSERT INTO records VALUES ('svc-1.jsonl', 0, 'svc', NULL, 'log', NULL, NULL, '{}');"""
    )
    for path in (tmp_path / "a.db", tmp_path / "b.db"):
        for _ in range(2):
            destination = opened(ship_to=f"sqlite://{path}")
            assert not destination.send(LINES[1:]).failed
        with sqlite3.connect(path) as database:
            rows = database.execute("SELECT resource, json_extract(record, '$.message') FROM records").fetchall()
        database.close()
        assert [(json.loads(row[0]), row[1]) for row in rows[-3:]] == [(RESOURCE, f"m{at}") for at in (1, 2, 3)]
    old.close()


def test_a_database_that_is_locked_has_failed_and_takes_it_later(opened: Open, tmp_path: Path) -> None:
    destination = opened(ship_to=f"sqlite://{tmp_path}/a.db", ship_timeout_s=0.1)
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    sent = destination.send(LINES)
    assert (list(sent.failed), "locked" in sent.error) == (LINES, True)
    other.execute("ROLLBACK")
    other.close()
    assert not destination.send(LINES).failed


def test_a_database_that_cannot_be_had_is_reported_by_its_path(opened: Open, tmp_path: Path) -> None:
    with pytest.raises(OpenError, match="ship_to='sqlite:///"):
        opened(ship_to=f"sqlite://{tmp_path}/missing/a.db")


@pytest.mark.skipif(sys.platform != "linux", reason="which files are open is asked of /proc")
def test_a_file_that_is_no_database_is_named_and_closed_again(opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_text("not a database" * 100)
    with pytest.raises(OpenError, match="file is not a database") as refused:
        opened(ship_to=f"sqlite://{path}")
    # The error still holds what it came from.
    assert refused.tb is not None
    assert str(path) not in [str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"ship_to": "kafka://a:1,b:2/t"}, "kafka"),
        ({"ship_to": "otlp+https://a"}, "otlp"),
        ({"ship_to": "forward+tls://a/t"}, "forward"),
        ({"ship_to": "clickhouse+https://me@a/logs?ttl_days=30"}, "clickhouse"),
        ({"ship_to": "opensearch+https://a:9200/logs"}, "opensearch"),
        ({"ship_to": "elasticsearch+http://a/logs"}, "elasticsearch"),
        ({"ship_to": "relp+tls://a"}, "relp"),
        ({"ship_to": "syslog+tls://a"}, "syslog"),
        ({"ship_to": "journal+https://a"}, "journal"),
        ({"ship_to": "journald:///run/socket"}, "journald"),
        ({"ship_to": "sqlite:///a.db", "ship_name": "archive"}, "archive"),
    ],
)
def test_a_shipper_is_called_as_configured_or_by_its_kind(
    configure: Callable[..., Any], parameters: dict[str, str], name: str
) -> None:
    assert configure(**parameters).resolved_ship_name == name


@pytest.mark.parametrize(
    "ship_to",
    [
        "kafka://a:1",
        "kafka://a:1/",
        "http://a",
        "otlp://a",
        "forward://a",
        "sqlite://a.db",
        "a",
        "kafka:///t",
        "clickhouse://a/d",
        "clickhouse+http://a",
        "clickhouse+http://u:secret@a/d",
        "clickhouse+http://a/d?ttl_days=0",
        "clickhouse+http://a/d?ttl_days=10000",
        "opensearch://a/logs",
        "opensearch+http://a",
        "opensearch+http://u:secret@a/logs",
        "elasticsearch+https://a/Logs",
        "elasticsearch+https://a/logs?template=all",
        "syslog://a",
        "journald://",
    ],
)
def test_a_destination_of_another_form_is_refused_by_name_and_value(
    configure: Callable[..., Any], ship_to: str
) -> None:
    with pytest.raises(ConfigError, match="ship_to=") as refused:
        configure(ship_to=ship_to)
    assert repr(ship_to) in str(refused.value)


@pytest.mark.parametrize("parameter", ["ship_headers_file", "ship_kafka_file", "ship_shared_key_file", "ship_ca_file"])
def test_a_file_that_cannot_be_read_is_reported_by_its_parameter(opened: Open, tmp_path: Path, parameter: str) -> None:
    kind = {"ship_kafka_file": "kafka://a:1/t", "ship_shared_key_file": "forward://a/t"}.get(
        parameter, "otlp+https://a"
    )
    with pytest.raises(ConfigError, match=f"{parameter}=.*missing"):
        opened(ship_to=kind, **{parameter: tmp_path / "missing"})


def test_a_line_of_a_file_of_secrets_is_reported_by_its_number_alone(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("# first\nhunter2\n")
    with pytest.raises(ConfigError, match=r"line 2 is not name:value") as refused:
        opened(ship_to="otlp+http://a", ship_headers_file=tmp_path / "headers")
    assert "hunter2" not in str(refused.value)


def test_a_certificate_of_nobody_known_is_not_trusted(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match="ship_ca_file="):
        opened(ship_to="forward+tls://a/t", ship_ca_file=tmp_path / "ca.pem")
