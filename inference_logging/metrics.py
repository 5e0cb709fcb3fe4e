"""Metrics for Prometheus: a collector over the counters that all processes of a queue directory share.

Any worker answers for all of them, so no multiprocess mode is needed; where the application itself uses that mode, the
collector is registered beside its ``MultiProcessCollector`` and nothing changes. Counters never go back: what ended
queues have counted stays in the queue directory.

Needs prometheus_client (the extra ``metrics``), which is imported when a collector is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from inference_logging.errors import MissingExtraError
from inference_logging.health import Watch
from inference_logging.lifespan import Scope, Send
from inference_logging.logger import Logger, _open_loggers

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry

    from inference_logging._native import Service
    from inference_logging.config import Config

BUILD = "inference_logging_build"

_MEMINFO = Path("/proc/meminfo")


class Counted(Protocol):
    """Whose counts are shown: a logger, or a listener in a process that serves nothing."""

    config: Config

    @property
    def service(self) -> Service:
        """The native service."""

    @property
    def audit_service(self) -> Service | None:
        """That of the audit lane, if there is one."""


class InferenceLoggingCollector:
    """A collector for a prometheus_client registry: everything this library counts, of all processes.

    ``logger`` is the one whose queue directory is shown; without it, the one that is open when the metrics are asked
    for. Nothing is shown while none is open.

    Raises ``MissingExtraError`` if prometheus_client is not installed.
    """

    def __init__(self, logger: Counted | None = None) -> None:
        require()
        self._logger = logger
        self._version = version("inference-logging")
        self._watches: WeakKeyDictionary[Counted, Watch] = WeakKeyDictionary()

    def describe(self) -> list[Metric]:
        """Return one name, which a registry then has no second collector for; the logger may not be open yet."""
        from prometheus_client.core import InfoMetricFamily

        return [InfoMetricFamily(BUILD, "")]

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family."""
        from inference_logging import _families as families

        logger = self._logger if self._logger is not None else next(iter(_open_loggers), None)
        if logger is None:
            return
        service = logger.service
        before, totals = service.listener_stats(), service.totals()
        yield from families.counters(totals)
        yield from families.queues(service.queues(), time.time())
        yield from families.sinks(service.sinks())
        stats = service.listener_stats()
        yield from families.listener(stats)
        lanes = {"fast": (before, totals, stats)}
        yield from families.housekeeping(stats)
        health = self._watch(logger).look()
        yield families.state(health.state)
        if health.snapshot.dead_producers:
            yield families.producers_dead(health.snapshot.dead_producers)
        if logger.audit_service is not None:
            before, totals = logger.audit_service.listener_stats(), logger.audit_service.totals()
            stats = logger.audit_service.listener_stats()
            lanes["audit"] = (before, totals, stats)
            yield from families.audit(totals, stats)
        yield families.books(lanes)
        requests = service.requests()
        yield families.requests(requests["outcomes"])
        yield families.tokens(requests["tokens"])
        yield from families.histograms(requests["histograms"])
        yield from families.node(_MEMINFO)
        yield families.build(BUILD, self._version)

    def _watch(self, logger: Counted) -> Watch:
        if logger not in self._watches:
            self._watches[logger] = Watch(logger.config, logger.service, audit=logger.audit_service)
        return self._watches[logger]


def register_metrics(
    registry: CollectorRegistry | None = None, logger: Logger | None = None
) -> InferenceLoggingCollector:
    """Register a collector with ``registry`` (without it, prometheus_client's default) and return it.

    Raises ``MissingExtraError`` if prometheus_client is not installed, ``ValueError`` if the registry has such a
    collector already.
    """
    collector = InferenceLoggingCollector(logger)
    if registry is None:
        from prometheus_client import REGISTRY

        registry = REGISTRY
    registry.register(collector)
    return collector


async def respond(scope: Scope, send: Send, collector: InferenceLoggingCollector | None) -> None:
    """Answer a request for metrics: OpenMetrics (with exemplars) where the Accept header asks for it, else text.

    HEAD gets the headers, a method other than GET 405; without a collector (the logger is not open) it is 503.
    """
    method, status, kind = scope.get("method", "GET"), 200, "text/plain; charset=utf-8"
    headers = [(b"cache-control", b"no-store")]
    if method not in {"GET", "HEAD"}:
        status, content = 405, b"Method Not Allowed"
        headers.append((b"allow", b"GET, HEAD"))
    elif collector is None:
        status, content = 503, b"the logger is not open"
    else:
        accepted = [value for name, value in scope.get("headers", ()) if name == b"accept"]
        content, kind = render(collector, b",".join(accepted).decode("latin-1"))
    headers += [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else content})


def offer(collector: InferenceLoggingCollector) -> Callable[[], None]:
    """Register a collector with prometheus_client's default registry unless it has one; return what takes it back."""
    from prometheus_client import REGISTRY

    try:
        REGISTRY.register(collector)
    except ValueError:
        return lambda: None  # of another middleware in this process, or the application's own
    return lambda: REGISTRY.unregister(collector)


def render(collector: InferenceLoggingCollector, accept: str) -> tuple[bytes, str]:
    """Return the metrics and their content type in the best format that the ``Accept`` header names.

    That is OpenMetrics, with exemplars, or else Prometheus's text format.
    """
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry()
    registry.register(collector)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def require() -> None:
    """Raise ``MissingExtraError`` if prometheus_client is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("a metrics collector", "prometheus_client", "metrics") from error
