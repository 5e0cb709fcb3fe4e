"""Metrics for Prometheus: a collector over the counters that all processes of a queue directory share.

Any worker answers for all of them, so no multiprocess mode is needed; if the application itself uses that mode, the
collector is registered beside its ``MultiProcessCollector`` and nothing changes. Counters never go back: the counts of
ended queues stay in the queue directory.

The families and their texts are native (``native/listen/src/status/metrics.rs``). Only a collector needs
prometheus_client (the extra ``metrics``), which is imported when one is made.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

from inference_logging._native import Metrics
from inference_logging.errors import MissingExtraError
from inference_logging.record.health import Watch
from inference_logging.record.logger import Logger, _open_loggers

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry

__all__ = ["InferenceLoggingCollector", "metrics_of", "register_metrics"]

BUILD = "inference_logging_build"

Family: TypeAlias = tuple[
    str, str, str, str, list[tuple[str, list[tuple[str, str]], float, tuple[str, str, float, float] | None]]
]
"""Name, kind, unit, help and samples; of a sample what follows the name, labels, value, and exemplar."""


class InferenceLoggingCollector:
    """A collector for a prometheus_client registry: all metrics of this package, over all processes.

    ``logger`` chooses the queue directory; without it, the logger that is open when the metrics are requested does.
    While none is open, nothing is shown. ``watch`` already watches that queue directory, if given.

    Raises ``MissingExtraError`` if prometheus_client is not installed.
    """

    def __init__(self, logger: Logger | None = None, watch: Watch | None = None) -> None:
        require()
        self._logger = logger
        self._metrics: WeakKeyDictionary[Logger, Metrics] = WeakKeyDictionary()
        if logger is not None and watch is not None:
            self._metrics[logger] = metrics_of(logger, watch)

    def describe(self) -> list[Metric]:
        """Return one name, which a registry then has no second collector for; the logger may not be open yet."""
        from prometheus_client.core import InfoMetricFamily

        return [InfoMetricFamily(BUILD, "")]

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family."""
        logger = self._logger if self._logger is not None else next(iter(_open_loggers), None)
        if logger is None:
            return
        if logger not in self._metrics:
            self._metrics[logger] = metrics_of(logger)
        yield from as_metrics(self._metrics[logger].families())


def metrics_of(logger: Logger, watch: Watch | None = None) -> Metrics:
    """Return the native metrics of a logger's queue directory, which ``watch`` watches already, if any."""
    watch = watch if watch is not None else Watch(logger.config, logger.service, audit=logger.audit_service)
    return Metrics(watch.native, platform.python_version())


def register_metrics(
    registry: CollectorRegistry | None = None, logger: Logger | None = None
) -> InferenceLoggingCollector:
    """Register a collector with ``registry`` (by default prometheus_client's) and return it.

    Raises ``MissingExtraError`` if prometheus_client is not installed, ``ValueError`` if the registry already has such
    a collector.
    """
    collector = InferenceLoggingCollector(logger)
    if registry is None:
        from prometheus_client import REGISTRY

        registry = REGISTRY
    registry.register(collector)
    return collector


def offer(collector: InferenceLoggingCollector) -> Callable[[], None]:
    """Register a collector with prometheus_client's default registry unless it has one; return its removal."""
    from prometheus_client import REGISTRY

    try:
        REGISTRY.register(collector)
    except ValueError:
        return lambda: None  # of another middleware in this process, or the application's own
    return lambda: REGISTRY.unregister(collector)


def require() -> None:
    """Raise ``MissingExtraError`` if prometheus_client is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("a metrics collector", "prometheus_client", "metrics") from error


def as_metrics(families: Iterable[Family]) -> Iterator[Metric]:
    """Yield the metric families of the native core as prometheus_client's, their samples in their order."""
    from prometheus_client.core import Exemplar, Metric

    for name, kind, unit, meaning, samples in families:
        metric = Metric(name, meaning, kind, unit)
        for suffix, labels, value, given in samples:
            exemplar = None
            if given is not None:
                trace_id, span_id, exemplar_value, unix_s = given
                exemplar = Exemplar({"trace_id": trace_id, "span_id": span_id}, exemplar_value, unix_s)
            metric.add_sample(name + suffix, dict(labels), value, exemplar=exemplar)
        yield metric
