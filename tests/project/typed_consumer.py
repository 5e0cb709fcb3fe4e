"""A user's program as the type checker sees it: every public name once. It is checked (test_public.py), never run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

from typing_extensions import assert_type

from inference_logging import (
    ApplicationLogger,
    AuditError,
    Config,
    ConfigError,
    Handler,
    InferenceLoggingError,
    InferenceLoggingMiddleware,
    Json,
    Logger,
    OpenError,
    __version__,
    current_request,
    get_logger,
    install_logger,
)
from inference_logging.metrics import InferenceLoggingCollector, metrics_of, register_metrics
from inference_logging.parsl import ParslLogging
from inference_logging.pytest_plugin import inference_logging_records
from inference_logging.segments import (
    Change,
    CorruptLineError,
    OnCorrupt,
    Prefix,
    Record,
    Segment,
    Stop,
    follow_records,
    read_records,
    read_segment,
    segments,
)
from inference_logging.testing import Records, capture_records

Message = MutableMapping[str, Any]


async def application(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Serve, and call another service for it."""
    ids = current_request()
    if ids is not None:
        assert_type(ids.trace_id, str)
        assert_type(ids.request_id, str)
        assert_type(ids.client_request_id, str | None)
        assert_type(ids.outgoing_headers(), dict[str, str])


def configure() -> InferenceLoggingMiddleware:
    """Configure, and report what is wrong."""
    assert_type(__version__, str)
    try:
        config = Config(directory="logs", queue_bytes="32MiB")
    except ConfigError as error:
        assert_type(error.problems, tuple[str, ...])
        raise
    assert_type(config.directory, Path)
    assert_type(config.retention_s, float)
    assert_type(config.quota_bytes, int)
    return InferenceLoggingMiddleware(application, config=config)


def log(config: Config) -> None:
    """Record events, application records and those of the standard library."""
    try:
        logger = Logger(config)
    except OpenError as error:
        assert_type(error.errno, int | None)
        return
    with logger:
        step = logger.event("engine.step", ["running", "shape"], severity="WARN")
        assert_type(step(3, Json("[1, 2]")), bool)
        assert_type(logger.flush(1.0), bool)
        assert_type(logger.stats(), dict[str, Any])
        assert_type(logger.backlog_records(), int)
        assert_type(register_metrics(logger=logger), InferenceLoggingCollector)
        assert_type(metrics_of(logger).render("text/plain"), tuple[bytes, str])
    application_logger = get_logger(__name__)
    assert_type(application_logger, ApplicationLogger)
    assert_type(application_logger.info("loaded", parameters=7), bool)
    assert_type(application_logger.name, str)
    logging.basicConfig(handlers=[Handler()])
    install_logger()()


def parallel(config: Config) -> ParslLogging:
    """Give the lines of Parsl's processes to the queue."""
    assert_type(ParslLogging(config, worker_level="INFO").config, Config)
    return ParslLogging()


async def decide(logger: Logger) -> bool:
    """Make records of the audit lane."""
    tokens = logger.event("billing.tokens", ["user", "count"], lane="audit")
    assert_type(tokens("alice", 12), bool)
    try:
        assert_type(await logger.committed(), bool)
        return assert_type(await get_logger(__name__).audit("policy.decision", allowed=True), bool)
    except AuditError as error:
        assert_type(error.reason, str)
        return False


def read(directory: Path) -> None:
    """Read what was recorded, then follow it."""
    errors: list[CorruptLineError] = []
    on_corrupt: OnCorrupt = errors.append
    prefix: Prefix = ["chat", "embeddings"]
    for segment in segments(directory, prefix):
        assert_type(segment, Segment)
        assert_type(segment.compressed, bool)
        for record in read_segment(segment, on_corrupt=on_corrupt):
            assert_type(record, Record)
    try:
        assert_type(read_records(directory, progress=print), Iterator[Record])
    except InferenceLoggingError:
        raise
    stop: Stop = threading.Event()

    def report(change: Change) -> None:
        assert_type(change.segment, Segment)

    for record in follow_records(str(directory), begin="start", stop=stop, on_change=report):
        assert_type(record, dict[str, Any])
    assert_type([(error.path, error.line_number) for error in errors], list[tuple[str, int]])


def test_own(inference_logging_records: Records) -> None:
    """Test an application."""
    assert_type(inference_logging_records.requests, list[Record])
    with capture_records(level="INFO") as records:
        assert_type(records, Records)
        assert_type(records[0], Record)
        assert_type(records[:2], list[Record])
        assert_type(records.named("engine.step"), list[Record])
        assert_type(records.logger, Logger)
        records.flush()


PLUGIN = inference_logging_records
