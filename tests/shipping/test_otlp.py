"""`inference-logging ship` by OTLP: to a real OpenTelemetry Collector and to a real Loki, killed on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.shipping.loki import Loki
from tests.shipping.otelcol import Receiver, as_record, attributes, stamp, with_body
from tests.shipping.shippers import Ship
from tests.shipping.stage import Stage

pytestmark = pytest.mark.shipping
Start = Callable[[Any], Any]

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
