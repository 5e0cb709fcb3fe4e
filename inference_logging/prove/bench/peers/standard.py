"""The standard library's loggers. Lines are made by orjson, which is quicker than the `json` of its cookbook."""

from __future__ import annotations

import logging
import os
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from logging.handlers import QueueHandler, QueueListener
from typing import Any, Final

import orjson

from inference_logging.prove.bench.peers import Opened, Peer, Place
from inference_logging.prove.bench.record import fields, with_extra

_FIELDS: Final = tuple(fields(0, ""))
_NAME: Final = "bench"


class JsonLine(logging.Formatter):
    """Makes one line of JSON with the fields that `extra` has put on the record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "timestamp": record.created,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in _FIELDS:
            line[name] = record.__dict__[name]
        return orjson.dumps(line).decode()


class SyncedFileHandler(logging.FileHandler):
    """Writes each record to the device before the call returns."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write, and wait for the device."""
        super().emit(record)
        if self.stream is not None:
            os.fsync(self.stream.fileno())


def null(_place: Place, logger: logging.Logger) -> None:
    """Configure: a record is made and thrown away."""
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(logging.NullHandler())


def sync(place: Place, logger: logging.Logger) -> None:
    """Configure: the caller formats and writes."""
    handler = logging.FileHandler(place.files / "stdlib.jsonl")
    handler.setFormatter(JsonLine())
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)


def fsync(place: Place, logger: logging.Logger) -> None:
    """Configure: the caller formats, writes, and waits for the device."""
    handler = SyncedFileHandler(place.files / "stdlib.jsonl")
    handler.setFormatter(JsonLine())
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)


def queued(place: Place, logger: logging.Logger, records: queue.Queue[Any] | queue.SimpleQueue[Any]) -> QueueListener:
    """Configure: the caller puts the record into an unbounded queue, a thread formats and writes."""
    file = logging.FileHandler(place.files / "stdlib.jsonl")
    file.setFormatter(JsonLine())
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(QueueHandler(records))
    listener = QueueListener(records, file)
    listener.start()
    return listener


@contextmanager
def _opened(place: Place, text: str, *, configure: Any) -> Iterator[Opened]:
    logger = logging.getLogger(_NAME)
    configure(place, logger)
    yield Opened(
        with_extra(logger.info, text), drain=_nothing, settle=_nothing, filtered=with_extra(logger.debug, text)
    )


@contextmanager
def _opened_queue(place: Place, text: str, *, make: Any) -> Iterator[Opened]:
    logger = logging.getLogger(_NAME)
    listener = queued(place, logger, make())
    # Only a Queue can be waited for; both are empty once the listener has been stopped.
    settle = getattr(listener.queue, "join", None)
    yield Opened(
        with_extra(logger.info, text), drain=listener.stop, settle=settle, filtered=with_extra(logger.debug, text)
    )


def _nothing() -> None:
    """Wait for nothing: it is written when the call returns."""


PEERS: Final = (
    Peer(
        "stdlib-null",
        "standard library, NullHandler",
        "logging",
        partial(_opened, configure=null),
        null,
        lossless=False,
        writes=False,
    ),
    Peer("stdlib-sync", "standard library, FileHandler", "logging", partial(_opened, configure=sync), sync),
    Peer("stdlib-fsync", "standard library, FileHandler + fsync", "logging", partial(_opened, configure=fsync), fsync),
    Peer("stdlib-queue", "standard library, QueueHandler", "logging", partial(_opened_queue, make=queue.Queue), queued),
    Peer(
        "stdlib-simple-queue",
        "standard library, QueueHandler on SimpleQueue",
        "logging",
        partial(_opened_queue, make=queue.SimpleQueue),
        queued,
    ),
)
