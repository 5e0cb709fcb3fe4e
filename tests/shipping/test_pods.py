"""Many pods ship to one Kafka, and SQL over what arrived names the pod and the tenant of the slowest requests."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import pytest

from inference_logging.shipping import Shipper, Source
from inference_logging.shipping.kafka import KafkaDestination
from tests.segment_files import request, write_segment
from tests.shipping.kafka import TOPIC, Kafka

pytestmark = pytest.mark.shipping

PODS: Final = 50
REQUESTS: Final = 40
ARRIVED: Final = "CREATE TABLE arrived AS SELECT unnest(?)::JSON AS resource, unnest(?)::JSON AS record"
SLOWEST: Final = """
SELECT resource ->> '$."k8s.pod.name"' AS pod, record ->> '$."tenant.id"' AS tenant,
       (record ->> '$.duration_s')::DOUBLE AS duration_s
FROM arrived WHERE record ->> '$.event_name' = 'request' ORDER BY duration_s DESC LIMIT 10
"""


@dataclass
class Limits:
    """The parameters of a shipper."""

    ship_batch_records: int = 1000
    ship_batch_bytes: int = 1 << 20
    ship_interval_s: float = 0.1
    ship_retry_s: float = 1.0


def test_pod_and_tenant_of_the_slowest_requests_are_one_question(
    start: Callable[[Kafka], Kafka], tmp_path: Path
) -> None:
    kafka = start(Kafka(tmp_path / "kafka"))
    chance = random.Random(50)
    expected: list[tuple[str, str, float]] = []
    for pod in range(PODS):
        served = [(f"tenant-{chance.randrange(7)}", chance.uniform(0.0, 100.0)) for _ in range(REQUESTS)]
        expected += [(f"pod-{pod}", tenant, duration_s) for tenant, duration_s in served]
        records = [request(at, tenant__id=tenant, duration_s=took) for at, (tenant, took) in enumerate(served)]
        write_segment(tmp_path / f"pod-{pod}", records, resource={"service.name": "svc", "k8s.pod.name": f"pod-{pod}"})
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda pod: ship(tmp_path / f"pod-{pod}", kafka), range(PODS)))
    arrived = kafka.values_by_resource()
    assert len(arrived) == PODS * REQUESTS
    columns = [[text.decode() for text in column] for column in zip(*arrived, strict=True)]
    with duckdb.connect() as database:
        database.execute(
            "CREATE TABLE arrived AS SELECT unnest(?)::JSON AS resource, unnest(?)::JSON AS record", columns
        )
        found = database.execute(SLOWEST).fetchall()
    assert found == sorted(expected, key=lambda one: -one[2])[:10]


def ship(directory: Path, kafka: Kafka) -> None:
    """Ship what a pod has."""
    destination = KafkaDestination(kafka.address, TOPIC, timeout_s=30.0, properties={})
    shipper = Shipper(Source(directory, "kafka", once=True), destination, Limits())
    try:
        assert shipper.run(threading.Event(), once=True)
    finally:
        shipper.close()
