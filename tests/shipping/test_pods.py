"""Many pods ship to one Kafka, and SQL over what arrived names the pod and the tenant of the slowest requests."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import pytest

from inference_logging.ship import Shipper, Source
from inference_logging.ship.kafka import KafkaDestination
from tests.shipping.kafka import TOPIC, Kafka
from tests.support import read_records

pytestmark = pytest.mark.shipping

PODS: Final = 50
REQUESTS: Final = 40
PROGRAM: Final = Path(__file__).with_name("pods.py")
SLOWEST: Final = """
SELECT resource ->> '$."k8s.pod.name"' AS pod, record ->> '$."tenant.id"' AS tenant,
       (record ->> '$.duration_s')::DOUBLE AS duration_s, record ->> '$.client_request_id' AS request
FROM arrived WHERE record ->> '$.event_name' = 'request' ORDER BY duration_s DESC, request LIMIT 10
"""
Served = tuple[str, str, float, str]


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
    shipper = Shipper(Source(directory, "kafka", once=True), destination, Limits())
    try:
        assert shipper.run(threading.Event(), once=True)
    finally:
        shipper.close()
