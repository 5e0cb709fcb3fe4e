"""Each kind of destination without its server: what is sent, what an answer means, and what a wrong setting reports.

The real servers are in the files beside this one.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from inference_logging.errors import ConfigError
from inference_logging.read.times import unix_nano
from inference_logging.record.config import Config
from inference_logging.ship.line import Destination, Line
from inference_logging.ship.opening import open_destination
from tests.kit.segment_files import log, request
from tests.kit.servers import free_port
from tests.ship.endpoint import Collector

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
    assert attributes["big"] == {"stringValue": str(2**63)}
    values = attributes["nested"]["kvlistValue"]["values"][0]["value"]["arrayValue"]["values"]
    assert values == [{"intValue": "1"}, {"doubleValue": 2.5}, {}, {"boolValue": True}]
    apart = {"timestamp", "severity_text", "event_name", "trace_id", "span_id", "trace_flags"}
    assert attributes.keys() == record.keys() - apart


@pytest.mark.parametrize(("text", "number"), [("INFO2", 10), ("FATAL4", 24), ("DEBUG", 5), ("LOUD", 0), (7, 0)])
def test_the_number_of_a_severity_is_opentelemetrys(
    collector: Collector, opened: Open, text: object, number: int
) -> None:
    assert not opened(ship_to=collector.url).send([line(request(1) | {"severity_text": text})]).failed
    ((_, _, export),) = collector.logs()
    assert export.resource_logs[0].scope_logs[0].log_records[0].severity_number == number


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
    json_type = {"Content-Type": "application/json; charset=utf-8"}
    collector.answers = [
        (200, answer.SerializeToString(), {}),
        (200, answer.SerializeToString(), {"Content-Type": "application/x-protobuf"}),
        (200, b'{"partialSuccess":{"rejectedLogRecords":"3"}}', json_type),
        (200, b"{}", json_type),
        (200, b"", {"Content-Type": "text/plain"}),
        (204, b"", {}),
    ]
    destination = opened(ship_to=collector.url)
    for _ in range(3):
        assert destination.send(LINES).refused == {"partial_success": 3}
    for _ in range(3):
        sent = destination.send(LINES)
        assert (sent.refused, list(sent.failed)) == ({}, [])


PAGE = b"<!doctype html><title>Sign in</title>"
HTML = {"Content-Type": "text/html"}


@pytest.mark.parametrize(
    "answer",
    [
        (200, PAGE, HTML),
        (200, PAGE, {}),
        (200, b"[]", {"Content-Type": "application/json"}),
        (200, b"\xff\xff", {"Content-Type": "application/x-protobuf"}),
        (200, b"ok", {"Content-Type": "text/plain"}),
    ],
)
def test_an_answer_that_is_none_to_otlp_delivers_nothing(
    collector: Collector, opened: Open, answer: tuple[int, bytes, dict[str, str]]
) -> None:
    collector.answers = [answer]
    sent = opened(ship_to=collector.url).send(LINES)
    assert (list(sent.failed), sent.error_type, sent.refused) == (LINES, "not_otlp", {})
    assert sent.error.startswith("status 200: the answer is not OTLP")


@pytest.mark.parametrize("kind", ["otlp", "clickhouse", "opensearch"])
def test_the_page_of_somebody_else_delivers_nothing_to_any_destination(
    collector: Collector, opened: Open, kind: str
) -> None:
    to = collector.url.replace("otlp", kind, 1) + ("" if kind == "otlp" else "/d")
    destination = opened(ship_to=to)
    collector.answers = [(200, PAGE + b"\n<p>a\tb", HTML) for _ in range(8)]
    assert list(destination.send(LINES).failed) == LINES


@pytest.mark.parametrize("kind", ["otlp", "clickhouse", "opensearch"])
def test_an_answer_is_read_as_it_is_and_up_to_a_size(collector: Collector, opened: Open, kind: str) -> None:
    to = collector.url.replace("otlp", kind, 1) + ("/d?template=none" if kind == "opensearch" else "/d")
    destination = opened(ship_to=to)
    packed = gzip.compress(bytes(1 << 20))
    collector.answers = [(200, packed, {"Content-Encoding": "gzip"}), (200, bytes(5 << 20), {})]
    assert [destination.send(LINES).error_type for _ in range(2)] == ["packed_answer", "long_answer"]
    assert {headers["Accept-Encoding"] for _, headers, _ in collector.requests} == {"identity"}


def test_records_of_several_services_are_resources_of_their_own(collector: Collector, opened: Open) -> None:
    other = Line("other", "other-1.jsonl", 0, b"{}", log(9, "m9"), {"service.name": "other"})
    opened(ship_to=collector.url).send([*LINES[:2], other])
    assert len(collector.logs()[0][2].resource_logs) == 2
    assert collector.messages() == ["m0", "m1", "m9"]


# --- nobody there ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["kafka://127.0.0.1:{}/t", "otlp+http://127.0.0.1:{}"])
def test_where_nobody_is_there_everything_failed_and_nothing_raises(opened: Open, kind: str) -> None:
    sent = opened(ship_to=kind.format(free_port()), ship_timeout_s=0.5).send(LINES)
    assert (list(sent.failed), sent.refused) == (LINES, {})
    assert sent.error
    assert sent.error_type


# --- Kafka -----------------------------------------------------------------------------------------------------------


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


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"ship_to": "kafka://a:1,b:2/t"}, "kafka"),
        ({"ship_to": "otlp+https://a"}, "otlp"),
        ({"ship_to": "clickhouse+https://me@a/logs?ttl_days=30"}, "clickhouse"),
        ({"ship_to": "opensearch+https://a:9200/logs"}, "opensearch"),
        ({"ship_to": "elasticsearch+http://a/logs"}, "elasticsearch"),
        ({"ship_to": "syslog+tls://a"}, "syslog"),
        ({"ship_to": "journald:///run/socket"}, "journald"),
        ({"ship_to": "kafka://a/t", "ship_name": "archive"}, "archive"),
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
        "forward://a/t",
        "relp://a",
        "journal+https://a",
        "sqlite:///a.db",
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
    assert repr(ship_to.replace("u:secret@", "u:***@")) in str(refused.value)


@pytest.mark.parametrize("parameter", ["ship_headers_file", "ship_kafka_file", "ship_ca_file"])
def test_a_file_that_cannot_be_read_is_reported_by_its_parameter(opened: Open, tmp_path: Path, parameter: str) -> None:
    kind = "kafka://a:1/t" if parameter == "ship_kafka_file" else "otlp+https://a"
    with pytest.raises(ConfigError, match=f"{parameter}=.*missing"):
        opened(ship_to=kind, **{parameter: tmp_path / "missing"})


def test_a_line_of_a_file_of_secrets_is_reported_by_its_number_alone(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("# first\nhunter2\n")
    with pytest.raises(ConfigError, match=r"line 2 is not name:value") as refused:
        opened(ship_to="otlp+http://a", ship_headers_file=tmp_path / "headers")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "line", ["Authorization: Bearer h\N{LATIN SMALL LETTER U WITH DIAERESIS}nter2", "A: hunter2\x07"]
)
def test_a_header_that_no_request_can_carry_is_named_by_its_line_and_not_shown(
    opened: Open, tmp_path: Path, line: str
) -> None:
    (tmp_path / "headers").write_text(f"X-A: b\n{line}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 2 must be printable ASCII") as refused:
        opened(ship_to="otlp+http://127.0.0.1:1", ship_headers_file=tmp_path / "headers")
    assert "nter2" not in str(refused.value)


@pytest.mark.parametrize("to", ["clickhouse+http://user:hunter2@h/d", "amqp://:hun/t@er2@h", "kafka://u:hunter2@h:1/t"])
def test_a_destination_that_is_refused_does_not_show_its_password(opened: Open, to: str) -> None:
    with pytest.raises(ConfigError, match=r":\*\*\*@h") as refused:
        opened(ship_to=to)
    assert "er2" not in str(refused.value)


@pytest.mark.parametrize("ship_to", [None, "s3://bucket/logs"])
def test_what_is_no_destination_of_records_is_refused_by_name_and_value(opened: Open, ship_to: str | None) -> None:
    with pytest.raises(ConfigError, match=rf"ship_to={ship_to!r}: must name a destination of records: kafka, "):
        opened(ship_to=ship_to)


def test_a_destination_that_the_table_does_not_know_is_refused_without_its_password() -> None:
    config = Config.model_construct(ship_to="amqp://user:hunter2@a/t")
    with pytest.raises(ConfigError, match=r"ship_to='amqp://user:\*\*\*@a/t': must name") as refused:
        open_destination(config)
    assert "hunter2" not in str(refused.value)


def test_a_certificate_of_nobody_known_is_not_trusted(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match="ship_ca_file="):
        opened(ship_to="syslog+tls://a", ship_ca_file=tmp_path / "ca.pem")
