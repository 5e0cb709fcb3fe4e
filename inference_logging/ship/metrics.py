"""A shipper's metrics for Prometheus, on a port of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from inference_logging.errors import OpenError
from inference_logging.record.asgi import bounded_server
from inference_logging.ship.pauses import Rounds

PREFIX = "inference_logging_ship"


class ShipperCollector(Collector):
    """The counts of a shipper, under its name."""

    def __init__(self, name: str, shipper: Rounds) -> None:
        self._name, self._shipper = name, shipper

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        shipper = self._shipper
        yield self._counter("records", "Records that the destination has acknowledged", shipper.records)
        yield self._counter("bytes", "Bytes of those records, as they stand in segments", shipper.bytes)
        yield self._counter("cpu_seconds", "Processor time of the shipper, of user and kernel", time.process_time())
        yield self._by("errors", "Sendings that failed, to be tried again", "error_type", shipper.errors)
        yield self._by("refused", "Records that the destination will never take", "reason", shipper.refused)
        yield self._by("dead_letters", "The same by what became of them", "state", shipper.letters)
        yield self._counter("left_out", "Records that ship_to does not ask for (signal=traces)", shipper.left_out)
        yield self._gauge("lag_bytes", "Bytes of segments that are not acknowledged", shipper.lag_bytes())
        yield self._gauge("lag_seconds", "Age of the oldest record that is being sent; 0: none is", shipper.lag_s())

    def _counter(self, name: str, meaning: str, value: float) -> Metric:
        family = CounterMetricFamily(f"{PREFIX}_{name}", meaning, labels=["ship_name"])
        family.add_metric([self._name], value)
        return family

    def _gauge(self, name: str, meaning: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"{PREFIX}_{name}", meaning, labels=["ship_name"])
        family.add_metric([self._name], value)
        return family

    def _by(self, name: str, meaning: str, label: str, counts: Mapping[str, int]) -> Metric:
        family = CounterMetricFamily(f"{PREFIX}_{name}", meaning, labels=["ship_name", label])
        for value, count in counts.items():
            family.add_metric([self._name, value], count)
        return family


def serve(name: str, shipper: Rounds, address: str, port: int) -> int:
    """Serve /metrics until the process ends; return the port, which the system has chosen for 0.

    Raises ``OpenError`` if the port is not available.
    """
    registry = CollectorRegistry()
    registry.register(ShipperCollector(name, shipper))
    try:
        server = bounded_server.serve(address, port, make_wsgi_app(registry))
    except OSError as error:
        raise OpenError(f"metrics_port={port}: {error.strerror or error}") from error
    return int(server.server_port)
