"""OpenTelemetry's SDK: its handler for the standard library, its batch processor, its exporter of JSON into a file."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from inference_logging.prove.bench.peers import Opened, Peer, Place
from inference_logging.prove.bench.record import with_extra


def configured(place: Place, logger: logging.Logger) -> Any:
    """Configure: batches of 512 from a queue of 2,048, as are the defaults of the batch processor."""
    from opentelemetry.instrumentation.logging.handler import LoggingHandler
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, ConsoleLogRecordExporter
    from opentelemetry.sdk.resources import Resource

    provider = LoggerProvider(resource=Resource.create({"service.name": "bench"}))
    file = (place.files / "opentelemetry.jsonl").open("w")
    exporter = ConsoleLogRecordExporter(out=file, formatter=lambda record: record.to_json(indent=None) + "\n")
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(LoggingHandler(logger_provider=provider))
    return provider


@contextmanager
def _opened(place: Place, text: str) -> Iterator[Opened]:
    logger = logging.getLogger("bench")
    provider = configured(place, logger)
    filtered = with_extra(logger.debug, text)
    yield Opened(with_extra(logger.info, text), provider.shutdown, filtered, provider.force_flush)


_MODULES: Final = (
    ("opentelemetry.sdk", "opentelemetry-sdk"),
    ("opentelemetry.instrumentation.logging", "opentelemetry-instrumentation-logging"),
)
PEERS: Final = (
    Peer(
        "opentelemetry", "OpenTelemetry, BatchLogRecordProcessor", "opentelemetry-sdk",
        _opened, configured, _MODULES,
    ),
)  # fmt: skip
