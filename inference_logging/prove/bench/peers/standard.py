"""The standard library's loggers, and the control: a call that does nothing, twice, whose difference is the noise.

Lines are made by orjson, which is quicker than the `json` of the standard library's cookbook.
"""

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

from inference_logging.prove.bench.peers import Opened, Peer, Place, nothing
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


def empty_call(_number: int) -> None:
    """Do nothing."""


@contextmanager
def _control(_place: Place, _text: str) -> Iterator[Opened]:
    yield Opened(empty_call, drain=nothing, filtered=empty_call)


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
    yield Opened(with_extra(logger.info, text), nothing, with_extra(logger.debug, text), nothing)


@contextmanager
def _opened_queue(place: Place, text: str, *, make: Any) -> Iterator[Opened]:
    logger = logging.getLogger(_NAME)
    listener = queued(place, logger, make())
    # Only a Queue can be waited for; both are empty once the listener has been stopped.
    settle = getattr(listener.queue, "join", None)
    yield Opened(with_extra(logger.info, text), listener.stop, with_extra(logger.debug, text), settle)


def _peer(name: str, title: str, configure: Any, **more: Any) -> Peer:
    opened = more.pop("opened", None) or partial(_opened, configure=configure)
    return Peer(name, f"standard library, {title}", "logging", opened, configure, **more)


PEERS: Final = (
    Peer("empty", "empty call (control)", "Python", _control, empty_call, writes=False),
    Peer("empty-again", "empty call, once more (noise)", "Python", _control, empty_call, writes=False),
    _peer("stdlib-null", "NullHandler", null, writes=False),
    _peer("stdlib-sync", "FileHandler", sync),
    _peer("stdlib-fsync", "FileHandler + fsync", fsync),
    _peer("stdlib-queue", "QueueHandler", queued, opened=partial(_opened_queue, make=queue.Queue)),
    _peer(
        "stdlib-simple-queue", "QueueHandler on SimpleQueue", queued,
        opened=partial(_opened_queue, make=queue.SimpleQueue),
    ),
)  # fmt: skip
