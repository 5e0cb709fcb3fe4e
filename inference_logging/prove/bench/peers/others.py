"""Other libraries, each as its own documentation recommends it for production; one is imported when it is opened."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from inference_logging.prove.bench.peers import Opened, Peer, Place, nothing
from inference_logging.prove.bench.record import MESSAGE, METHOD, PATH, STATUS, Call, fields, with_extra, with_keywords

_ACCESS_FORMAT: Final = '%s - "%s %s HTTP/%s" %d'


def structlog(place: Place) -> Any:
    """Configure: bytes from orjson straight into the file, filtering by level, loggers cached."""
    import orjson
    import structlog

    structlog.configure(
        cache_logger_on_first_use=True,
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(serializer=orjson.dumps),
        ],
        logger_factory=structlog.BytesLoggerFactory((place.files / "structlog.jsonl").open("wb")),
    )
    return structlog.get_logger().bind()


@contextmanager
def _structlog(place: Place, text: str) -> Iterator[Opened]:
    logger = structlog(place)
    yield Opened(with_keywords(logger.info, text), nothing, with_keywords(logger.debug, text), nothing)


def loguru(place: Place, *, enqueue: bool) -> Any:
    """Configure: JSON lines, written by the caller or (`enqueue`) a thread; no values of variables in tracebacks."""
    from loguru import logger

    logger.remove()
    logger.add(
        place.files / "loguru.jsonl", level="INFO", serialize=True, backtrace=False, diagnose=False, enqueue=enqueue
    )
    return logger


@contextmanager
def _loguru(place: Place, text: str, *, enqueue: bool) -> Iterator[Opened]:
    logger = loguru(place, enqueue=enqueue)
    filtered = with_keywords(logger.debug, text)
    yield Opened(with_keywords(logger.info, text), logger.complete, filtered, logger.complete)


def picologging(place: Place) -> Any:
    """Configure: the caller formats and writes. Records have no `extra`, so the fields are the message's argument."""
    import orjson
    import picologging

    class JsonLine(picologging.Formatter):  # type: ignore[misc,unused-ignore]
        def format(self, record: Any) -> str:
            line = {"timestamp": record.created, "level": record.levelname, "message": record.msg, **record.args}
            return orjson.dumps(line).decode()

    handler = picologging.FileHandler(str(place.files / "picologging.jsonl"))
    handler.setFormatter(JsonLine())
    logger = picologging.getLogger("bench")
    logger.setLevel(picologging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    return logger


@contextmanager
def _picologging(place: Place, text: str) -> Iterator[Opened]:
    def with_argument(method: Callable[..., Any]) -> Call:
        return lambda number: method(MESSAGE, fields(number, text))

    logger = picologging(place)
    yield Opened(with_argument(logger.info), nothing, with_argument(logger.debug), nothing)


def fapilog(place: Place) -> Any:
    """Configure: its rotating file, as its documentation begins with a file."""
    from fapilog import get_logger
    from fapilog.sinks import rotating_file

    return get_logger(sinks=[rotating_file(place.files / "fapilog.log")])


def fapilog_production(_place: Place) -> Any:
    """Configure: lines on standard output, which here is a file; two workers, redaction, adaptive queue."""
    from fapilog import get_logger

    return get_logger(preset="production")


@contextmanager
def _fapilog(place: Place, text: str, *, configure: Callable[[Place], Any]) -> Iterator[Opened]:
    logger = configure(place)
    dropped = 0

    def drain() -> None:
        nonlocal dropped
        dropped = asyncio.run(logger.stop_and_drain()).dropped

    filtered = with_keywords(logger.debug, text)
    yield Opened(with_keywords(logger.info, text), drain, filtered, dropped=lambda: dropped)


def opentelemetry(place: Place, logger: logging.Logger) -> Any:
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
def _opentelemetry(place: Place, text: str) -> Iterator[Opened]:
    logger = logging.getLogger("bench")
    provider = opentelemetry(place, logger)
    filtered = with_extra(logger.debug, text)
    yield Opened(with_extra(logger.info, text), provider.shutdown, filtered, provider.force_flush)


def uvicorn(_place: Place) -> logging.Logger:
    """Configure: as `uvicorn app:app` does; its lines go to standard output, which here is a file."""
    from uvicorn import Config

    Config(app="app:app").configure_logging()
    return logging.getLogger("uvicorn.access")


@contextmanager
def _uvicorn(place: Place, text: str) -> Iterator[Opened]:
    """Call with what its protocols call it with: number and text stand in the query, so that a line is as long."""

    def access(method: Callable[..., Any]) -> Call:
        def call(number: int) -> Any:
            query = f"{PATH}?number={number}&text={text}"
            return method(_ACCESS_FORMAT, "127.0.0.1:50000", METHOD, query, "1.1", STATUS)

        return call

    logger = uvicorn(place)
    yield Opened(access(logger.info), nothing, access(logger.debug), nothing)


_OPENTELEMETRY: Final = (
    ("opentelemetry.sdk", "opentelemetry-sdk"),
    ("opentelemetry.instrumentation.logging", "opentelemetry-instrumentation-logging"),
)


def _peer(name: str, title: str, library: str, opened: Any, settings: Any, **more: Any) -> Peer:
    return Peer(name, title, library, opened, settings, **{"modules": ((library, library),), **more})


PEERS: Final = (
    _peer("structlog", "structlog + orjson", "structlog", _structlog, structlog),
    _peer("loguru", "loguru", "loguru", partial(_loguru, enqueue=False), loguru),
    _peer("loguru-enqueue", "loguru, enqueue=True", "loguru", partial(_loguru, enqueue=True), loguru),
    _peer("picologging", "picologging, FileHandler", "picologging", _picologging, picologging),
    _peer("fapilog", "fapilog, default with a file", "fapilog", partial(_fapilog, configure=fapilog), fapilog),
    _peer(
        "fapilog-production", "fapilog, preset production", "fapilog",
        partial(_fapilog, configure=fapilog_production), fapilog_production,
    ),
    _peer(
        "opentelemetry", "OpenTelemetry, BatchLogRecordProcessor", "opentelemetry-sdk",
        _opentelemetry, opentelemetry, modules=_OPENTELEMETRY,
    ),
    _peer("uvicorn-access", "uvicorn, access log", "uvicorn", _uvicorn, uvicorn, is_json=False),
)  # fmt: skip
