"""`inference-logging ship` to a real Kafka and by OTLP, and from the pods of a node: nothing is lost on the way."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest

from inference_logging.ship import Shipper, Source
from inference_logging.ship.kafka import KafkaDestination
from tests.kit.support import parse, read_records
from tests.ship.arrived import written_lines
from tests.ship.kafka import PASSWORD, TOPIC, Kafka, client_properties
from tests.ship.loki import Loki
from tests.ship.otelcol import Receiver, as_record, attributes, stamp, with_body
from tests.ship.shipper_parts import Limits
from tests.ship.shippers import Ship
from tests.ship.stage import Stage

pytestmark = pytest.mark.shipping

Start = Callable[[Any], Any]


@pytest.mark.parametrize("compress", ["off", "zstd"])
def test_each_record_arrives_though_broker_and_shipper_are_killed(
    stage: Callable[..., Stage], start: Start, tmp_path: Path, compress: str
) -> None:
    kafka: Kafka = start(Kafka(tmp_path / "kafka"))
    staged = stage(compress=compress)
    ship: Ship = start(Ship(staged.config, f"kafka://{kafka.address}/{TOPIC}"))
    with staged.load() as load:
        ship.wait_until_shipped(200)
        ship.outlive(kafka, load)
        for _ in range(3):
            ship.wait_until_shipped(200)
            ship.restart()
        kafka.kill()
        kafka.start()
        ship.wait_until_shipped(200)
    written = staged.end()
    assert ship.stop() == 0, ship.lines
    values = kafka.values()
    staged.show(f"Kafka, compress={compress}", written, map(parse, values), kafka, ship)
    assert set(values) == set(written_lines(staged.config.directory)), "a value is the line as it was written"
    segments, marked = staged.marks("kafka")
    assert len(segments) > 1
    assert segments == marked


def test_a_wrong_password_is_reported_and_loses_nothing(
    stage: Callable[..., Stage], start: Start, tmp_path: Path
) -> None:
    kafka: Kafka = start(Kafka(tmp_path / "kafka", secured=True))
    staged = stage()
    file = tmp_path / "kafka.properties"
    _write(file, "wrong")
    ship = Ship(
        staged.config,
        f"kafka://{kafka.address}/{TOPIC}",
        ship_kafka_file=file,
        ship_ca_file=kafka.certificate,
        drain_deadline_s=1,
    )
    start(ship)
    with staged.load() as load:
        load.wait_for(100)
        ship.wait_until_failing()
        ship.wait_for("(?i)authentication")
        assert ship.metric("errors_total", error_type="_AUTHENTICATION") >= 1
        assert ship.metric("records_total") == 0
        assert ship.metric("lag_bytes") > 0
        assert ship.metric("lag_seconds") > 0
        assert "wrong" not in "".join(ship.lines)
    written = staged.end()
    assert ship.stop() == 1
    assert kafka.values() == []
    assert staged.marks("kafka")[1] == set()
    _write(file, PASSWORD)
    # Now there is something to wait for.
    ship.parameters["drain_deadline_s"] = "60"
    ship.start()
    assert ship.stop() == 0, ship.lines
    staged.show("Kafka by SASL_SSL, the password wrong at first", written, map(parse, kafka.values()), kafka, ship)


def _write(file: Path, password: str) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in client_properties(password).items()), "utf-8")


SEVERITIES: Final = {"DEBUG": 5, "INFO": 9, "WARN": 13, "ERROR": 17}
"""As OpenTelemetry's data model numbers them."""


def test_each_record_arrives_at_a_collector_as_the_data_model_has_it(
    stage: Callable[..., Stage], start: Start, tmp_path: Path
) -> None:
    collector: Receiver = start(Receiver(tmp_path / "collector"))
    staged = stage()
    ship: Ship = start(Ship(staged.config, collector.url))
    with staged.load() as load:
        for _ in range(4):
            ship.wait_until_shipped(200)
            ship.outlive(collector, load)
            ship.wait_until_shipped(200)
            ship.restart()
    written = staged.end()
    assert ship.stop() == 0, ship.lines
    received = list(collector.received())
    arrived = [as_record(record) for record, _ in received]
    staged.show("OpenTelemetry Collector", map(with_body, written), arrived, collector, ship)
    assert {one["event_name"] for one in arrived} >= {"log", "request"}
    assert {one.get("trace_id") for one in arrived if one["event_name"] == "request"} & {
        one.get("trace_id") for one in arrived if one["event_name"] == "log"
    }
    for record, resource in received:
        assert resource.items() >= {"service.name": staged.config.service_name, "scope": "inference_logging"}.items()
        assert record.get("severityNumber") == SEVERITIES.get(record.get("severityText", ""))
        assert int(record["observedTimeUnixNano"]) >= int(record["timeUnixNano"])
    segments, marked = staged.marks("otlp")
    assert segments == marked


def test_a_request_is_one_span_at_a_collector_however_often_it_is_sent(
    stage: Callable[..., Stage], start: Start, tmp_path: Path
) -> None:
    collector: Receiver = start(Receiver(tmp_path / "collector"))
    staged = stage()
    ship: Ship = start(Ship(staged.config, f"{collector.url}?signal=both"))
    offsets = staged.config.directory / ".otlp.offsets"
    with staged.load() as load:
        for _ in range(3):
            ship.wait_until_shipped(100)
            saved = offsets.read_bytes()
            ship.wait_until_shipped(100)
            ship.kill()
            # As if it had been killed after it sent and before it saved.
            offsets.write_bytes(saved)
            ship.start()
        ship.outlive(collector, load)
    written = staged.end()
    assert ship.stop() == 0, ship.lines
    arrived = [as_record(record) for record, _ in collector.received()]
    staged.show("OpenTelemetry Collector, both signals", map(with_body, written), arrived, collector, ship)
    requests = {(one["trace_id"], one["span_id"]): one for one in written if one["event_name"] == "request"}
    spans: dict[tuple[str, str], dict[str, Any]] = {}
    copies = 0
    for span, resource in collector.spans():
        copies += 1
        assert spans.setdefault((span["traceId"], span["spanId"]), span) == span, "a copy is the same span"
        assert resource.items() >= {"service.name": staged.config.service_name, "scope": "inference_logging"}.items()
    assert spans.keys() == requests.keys()
    assert copies > len(spans), "some were sent twice"
    for ids, span in spans.items():
        record = requests[ids]
        assert (span["name"], span["kind"]) == ("POST /v1/chat/completions", 2)
        assert span["parentSpanId"] == record["parent_span_id"]
        took = int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])
        assert took == round(record["duration_s"] * 1e9)
        assert attributes(span)["seq"] == record["seq"]
        assert [event["name"] for event in span.get("events", ())] == ["first_chunk"] * ("chunks" in record)
        assert "status" not in span or not span["status"], "422 is the client's failure"


def test_each_record_is_found_in_loki(stage: Callable[..., Stage], start: Start, tmp_path: Path) -> None:
    loki: Loki = start(Loki(tmp_path / "loki"))
    staged = stage()
    ship: Ship = start(Ship(staged.config, f"otlp+{loki.url}/v1/logs"))
    with staged.load() as load:
        ship.wait_until_shipped(200)
        ship.outlive(loki, load)
        for _ in range(3):
            ship.wait_until_shipped(200)
            ship.restart()
    written = staged.end()
    assert ship.stop() == 0, ship.lines
    found = [
        {
            "boot_id": entry.labels["boot_id"],
            "pid": int(entry.labels["pid"]),
            "seq": int(entry.labels["seq"]) if "seq" in entry.labels else None,
            "timestamp": stamp(entry.unix_nano),
            "severity_text": entry.labels.get("severity_text"),
            "trace_id": entry.labels.get("trace_id"),
            "body": entry.line,
        }
        for entry in loki.entries()
    ]
    names = found[0].keys()
    expected = [{name: with_body(one).get(name) for name in names} for one in written]
    staged.show("Loki by OTLP", expected, found, loki, ship)


PODS: Final = 50
REQUESTS: Final = 40
PROGRAM: Final = Path(__file__).with_name("pods.py")
SLOWEST: Final = """
SELECT resource ->> '$."k8s.pod.name"' AS pod, record ->> '$."tenant.id"' AS tenant,
       (record ->> '$.duration_s')::DOUBLE AS duration_s, record ->> '$.client_request_id' AS request
FROM arrived WHERE record ->> '$.event_name' = 'request' ORDER BY duration_s DESC, request LIMIT 10
"""
Served = tuple[str, str, float, str]


def test_pod_and_tenant_of_the_slowest_requests_are_one_question(
    start: Callable[[Kafka], Kafka], tmp_path: Path
) -> None:
    kafka = start(Kafka(tmp_path / "kafka"))
    served = serve(tmp_path)
    assert len(served) == PODS * REQUESTS
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda pod: ship(tmp_path / f"pod-{pod}", kafka), range(PODS)))
    arrived = [(json.loads(resource), json.loads(record)) for resource, record in kafka.values_by_resource()]
    requests = [one for one in arrived if one[1]["event_name"] == "request"]
    assert len(requests) == PODS * REQUESTS
    assert len({resource["service.instance.id"] for resource, _ in requests}) == PODS
    assert {resource["service.name"] for resource, _ in requests} == {"svc"}
    columns = [[json.dumps(one) for one in column] for column in zip(*arrived, strict=True)]
    with duckdb.connect() as database:
        database.execute(
            "CREATE TABLE arrived AS SELECT unnest(?)::JSON AS resource, unnest(?)::JSON AS record", columns
        )
        found = database.execute(SLOWEST).fetchall()
    assert found == sorted(served, key=lambda one: (-one[2], one[3]))[:10]


def serve(directory: Path) -> list[Served]:
    """Let all pods serve; return pod and tenant of each request as the client knows them, and how long it took."""
    command = [sys.executable, str(PROGRAM), str(directory), str(PODS), str(REQUESTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    sent = [line.split(" ") for line in done.stdout.splitlines()]
    took = {
        record["client_request_id"]: record["duration_s"]
        for pod in range(PODS)
        for record in read_records(directory / f"pod-{pod}", "request")
    }
    return [(pod, tenant, took[name], name) for pod, name, tenant in sent]


def ship(directory: Path, kafka: Kafka) -> None:
    """Ship what a pod has."""
    destination = KafkaDestination(kafka.address, TOPIC, timeout_s=30.0, properties={})
    shipper = Shipper(
        Source(directory, "kafka", once=True),
        destination,
        Limits(ship_batch_records=1000, ship_interval_s=0.1, ship_retry_s=1.0),
    )
    try:
        assert shipper.run(threading.Event(), once=True)
    finally:
        shipper.close()
