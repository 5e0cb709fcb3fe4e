"""structlog with orjson, as the chapter on performance of its documentation configures it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from inference_logging.prove.bench.peers import Opened, Peer, Place, nothing
from inference_logging.prove.bench.record import with_keywords


def configured(place: Place) -> Any:
    """Configure: bytes from orjson straight into the file, filtering by level, loggers cached."""
    import logging

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
def _opened(place: Place, text: str) -> Iterator[Opened]:
    logger = configured(place)
    yield Opened(with_keywords(logger.info, text), nothing, with_keywords(logger.debug, text), nothing)


_MODULES: Final = (("structlog", "structlog"),)
PEERS: Final = (Peer("structlog", "structlog + orjson", "structlog", _opened, configured, _MODULES),)
