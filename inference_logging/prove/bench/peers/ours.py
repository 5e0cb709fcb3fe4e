"""Ours: an event, `get_logger`, the handler and the native logger of the standard library, and the audit lane."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from inference_logging import Config, Logger, get_logger, install_logger
from inference_logging.prove.bench.configurations_round import dropped
from inference_logging.prove.bench.peers import OURS, Opened, Peer, Place
from inference_logging.prove.bench.record import (
    CALLER,
    DURATION_S,
    MESSAGE,
    METHOD,
    MODEL,
    OUTPUT_COUNT,
    PATH,
    STATUS,
    STREAM,
    Call,
    fields,
    with_extra,
    with_keywords,
)

_DRAIN_S: Final = 60.0
"""Above the benchmark's own limit."""


def configured(place: Place, **settings: Any) -> Logger:
    """Configure: the defaults. The directory of the queues is one of this measurement only."""
    return Logger(Config(directory=place.files, queue_directory=place.memory / "queues", **settings))


def audited(place: Place) -> Logger:
    """Configure: the audit lane, whose call returns once its record is on the device; one commit serves all waiting."""
    return configured(place, audit="on")


@contextmanager
def _event(place: Place, text: str) -> Iterator[Opened]:
    with configured(place) as logger:
        emit = logger.event("bench.request", ["message", *fields(0, text)])

        def call(number: int) -> bool:
            return emit(MESSAGE, METHOD, PATH, STATUS, DURATION_S, MODEL, STREAM, OUTPUT_COUNT, CALLER, number, text)

        yield _of(logger, call)


@contextmanager
def _application(place: Place, text: str) -> Iterator[Opened]:
    with configured(place) as logger:
        log = get_logger("bench")
        yield _of(logger, with_keywords(log.info, text), with_keywords(log.debug, text))


def handled() -> logging.Logger:
    """Configure: our handler on the application's logger; beside it the defaults."""
    from inference_logging import Handler

    logger = logging.getLogger("bench")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(Handler())
    return logger


@contextmanager
def _handler(place: Place, text: str) -> Iterator[Opened]:
    with configured(place) as logger:
        log = handled()
        yield _of(logger, with_extra(log.info, text), with_extra(log.debug, text), says_nothing=True)


def installed() -> logging.Logger:
    """Configure: the class of all loggers, and our handler on the root logger; beside it the defaults."""
    install_logger()
    logger = logging.getLogger("bench")
    logger.setLevel(logging.INFO)
    return logger


@contextmanager
def _native_logger(place: Place, text: str) -> Iterator[Opened]:
    log = installed()
    with configured(place) as logger:
        yield _of(logger, with_extra(log.info, text), with_extra(log.debug, text), says_nothing=True)


@contextmanager
def _audit(place: Place, text: str) -> Iterator[Opened]:
    # One event loop for all callers, as a server has it.
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    with audited(place) as logger:

        def call(number: int) -> bool:
            recorded = logger.audit("bench.request", message=MESSAGE, **fields(number, text))
            return asyncio.run_coroutine_threadsafe(recorded, loop).result()

        yield _of(logger, call)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def _of(logger: Logger, call: Call, filtered: Call | None = None, *, says_nothing: bool = False) -> Opened:
    """Return what is open; with ``says_nothing`` a call does not return whether its record was accepted."""

    def flush() -> bool:
        return logger.flush(_DRAIN_S)

    return Opened(call, flush, filtered, flush, partial(dropped, logger) if says_nothing else None)


_Peer: Final = partial(Peer, library="inference_logging", ours=True)
PEERS: Final = (
    _Peer(name=OURS, title="ours, event", opened=_event, settings=configured),
    _Peer(name="ours-get-logger", title="ours, get_logger", opened=_application, settings=configured),
    _Peer(name="ours-handler", title="ours, logging.Handler", opened=_handler, settings=handled),
    _Peer(name="ours-native-logger", title="ours, native logging.Logger", opened=_native_logger, settings=installed),
    _Peer(name="ours-audit", title="ours, audit lane", opened=_audit, settings=audited),
)
