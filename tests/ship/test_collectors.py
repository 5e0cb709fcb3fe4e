"""Segments by the chart's own collector, without our shipper: whatever is killed on the way, each record arrives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.chart.chart import parted, render
from tests.kit.servers import free_port
from tests.kit.support import FRAMING, parse, wait_until
from tests.ship.arrived import Record, compare
from tests.ship.kafka import TOPIC, Kafka
from tests.ship.loki import Loki
from tests.ship.otelcol import Collector, Receiver, attributes
from tests.ship.programs import scraped
from tests.ship.stage import Stage

pytestmark = pytest.mark.shipping
Start = Callable[[Any], Any]

VOLUME: Final = "/var/log/inference-logging"
"""The pod's, which has the segments in a directory of the same name as those of the tests."""
QUICK: Final = {"enabled": True, "initial_interval": "100ms", "max_interval": "1s", "max_elapsed_time": "0s"}
"""As the chart has it, but for a destination that is away for seconds only."""
_FAILED: Final = "Exporting failed"


class PodCollector(Collector):
    """The collector of the chart with its own file, of which only paths, addresses and pauses are changed."""

    def __init__(self, directory: Path, destination: str, endpoint: str) -> None:
        release = render(destination={"type": destination, "endpoints": [endpoint], "topic": TOPIC})
        config = parse(json.dumps(release.yaml("otel-collector.yaml")).replace(VOLUME, str(directory)).encode())
        for exporter in config["exporters"].values():
            exporter["retry_on_failure"] = QUICK
        reader = config["service"]["telemetry"]["metrics"]["readers"][0]["pull"]["exporter"]["prometheus"]
        self.port = free_port()
        reader.update(host="127.0.0.1", port=self.port)
        _, (_program, *given) = parted(release.containers["shipper"])
        arguments = [one for one in given if not one.startswith("--config")]
        super().__init__(
            directory / "pod", config, port=self.port, arguments=arguments, environment={"POD_NAME": "pod"}
        )

    def delivered(self) -> float:
        """Return how many log records the destination has taken in this life of the collector."""
        return scraped(self.port, "otelcol_exporter_sent_log_records_total")

    def wait_until_delivered(self, more: int) -> None:
        """Wait until at least so many more are delivered."""
        wanted = self.delivered() + more
        wait_until(lambda: self.delivered() >= wanted, f"{wanted} log records to be delivered")

    def wait_until_failing(self) -> None:
        """Wait until it says once more that it could not deliver."""
        said = self.said().count(_FAILED)
        wait_until(lambda: self.said().count(_FAILED) > said, "a delivery to fail")


class Gateway(Collector):
    """What those send to: it answers when a batch is in its queue on disk, and hands it on to Kafka."""

    def __init__(self, directory: Path, kafka: Kafka) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        config = {
            "extensions": {"file_storage": {"directory": str(directory / "queue"), "create_directory": True}},
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
            "exporters": {
                "kafka": {
                    "brokers": [kafka.address],
                    "logs": {"topic": TOPIC, "encoding": "otlp_json"},
                    "producer": {"required_acks": -1},
                    "timeout": "5s",
                    "retry_on_failure": QUICK,
                    "sending_queue": {"storage": "file_storage", "block_on_overflow": True},
                }
            },
            "service": {
                "extensions": ["file_storage"],
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"logs": {"receivers": ["otlp"], "exporters": ["kafka"]}},
            },
        }
        super().__init__(directory / "gateway", config, port=port, program="otelgateway")


def records(lines: list[bytes]) -> list[Record]:
    """Return the records of lines, without those that are the segments' own."""
    return [record for record in map(parse, lines) if record["event_name"] not in FRAMING]


def of_otlp(values: list[bytes]) -> Iterator[Record]:
    """Yield the records of messages of OTLP as JSON, whose attributes are a record's fields."""
    for value in values:
        for of_resource in parse(value)["resourceLogs"]:
            for of_scope in of_resource["scopeLogs"]:
                for found in map(attributes, of_scope["logRecords"]):
                    if found["event_name"] not in FRAMING:
                        yield found


def wait_for_all(written: list[Record], arrived: Callable[[], list[Record]]) -> list[Record]:
    """Wait until nothing is missing, and return what has arrived."""

    def look() -> list[Record] | None:
        found = arrived()
        return None if compare(written, found).missing else found

    found: list[Record] = wait_until(look, "every record")
    return found


def test_each_record_arrives_though_the_collector_ends_while_its_destination_is_away(
    stage: Callable[..., Stage], start: Start, tmp_path: Path
) -> None:
    receiver: Receiver = start(Receiver(tmp_path / "receiver"))
    staged = stage()
    shipper: PodCollector = start(PodCollector(tmp_path, "otlp", receiver.url.removeprefix("otlp+")))
    with staged.load() as load:
        for end in (shipper.stop, shipper.kill, shipper.stop, shipper.kill):
            shipper.wait_until_delivered(200)
            receiver.kill()
            load.wait_for(50)
            shipper.wait_until_failing()
            load.wait_for(50)
            end()
            receiver.start()
            shipper.start()
    written = staged.end()

    def arrived() -> list[Record]:
        found = (attributes(record) for record, _ in receiver.received())
        return [record for record in found if record["event_name"] not in FRAMING]

    name = "the chart's collector, ended while its destination is away"
    staged.show(name, written, wait_for_all(written, arrived), shipper, receiver)


def test_each_record_is_in_loki_though_collector_loki_and_listener_are_killed(
    stage: Callable[..., Stage], start: Start, tmp_path: Path
) -> None:
    loki: Loki = start(Loki(tmp_path / "loki"))
    staged = stage()
    shipper: PodCollector = start(PodCollector(tmp_path, "loki", loki.url.removesuffix("/otlp")))
    with staged.load() as load:
        for _ in range(3):
            shipper.wait_until_delivered(200)
            shipper.restart()
        loki.kill()
        load.wait_for(100)
        shipper.restart()
        loki.start()
        shipper.wait_until_delivered(200)
        staged.kill_listener()
        shipper.restart()
        shipper.wait_until_delivered(200)
    written = staged.end()
    arrived = wait_for_all(written, lambda: records([entry.line.encode() for entry in loki.entries()]))
    staged.show("the chart's collector, to Loki", written, arrived, shipper, loki)


def test_each_record_is_in_kafka_though_collector_and_broker_are_killed(
    stage: Callable[..., Stage], start: Start, tmp_path: Path
) -> None:
    kafka: Kafka = start(Kafka(tmp_path / "kafka"))
    staged = stage()
    shipper: PodCollector = start(PodCollector(tmp_path, "kafka", kafka.address))
    with staged.load() as load:
        for _ in range(3):
            shipper.wait_until_delivered(200)
            shipper.restart()
        kafka.kill()
        load.wait_for(100)
        shipper.restart()
        kafka.start()
        shipper.wait_until_delivered(200)
    written = staged.end()
    arrived = wait_for_all(written, lambda: records(kafka.values()))
    staged.show("the chart's collector, to Kafka", written, arrived, shipper, kafka)


def test_each_record_is_in_kafka_behind_a_gateway_though_all_of_them_are_killed(
    stage: Callable[..., Stage], start: Start, tmp_path: Path
) -> None:
    kafka: Kafka = start(Kafka(tmp_path / "kafka"))
    gateway: Gateway = start(Gateway(tmp_path, kafka))
    staged = stage()
    shipper: PodCollector = start(PodCollector(tmp_path, "otlp", gateway.url))
    with staged.load() as load:
        for _ in range(3):
            shipper.wait_until_delivered(200)
            gateway.kill()
            shipper.restart()
            gateway.start()
        kafka.kill()
        shipper.wait_until_delivered(200)
        gateway.kill()
        gateway.start()
        load.wait_for(100)
        kafka.start()
        shipper.wait_until_delivered(200)
    written = staged.end()
    arrived = wait_for_all(written, lambda: list(of_otlp(kafka.values())))
    staged.show("the chart's collector, gateway, Kafka", written, arrived, shipper, gateway, kafka)
