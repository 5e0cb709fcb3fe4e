"""`inference-logging ship` to a real Kafka: whatever is killed on the way, each record is in the topic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.shipping.arrived import written_lines
from tests.shipping.kafka import PASSWORD, TOPIC, Kafka, client_properties
from tests.shipping.shippers import Ship
from tests.shipping.stage import Stage
from tests.support import parse

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
