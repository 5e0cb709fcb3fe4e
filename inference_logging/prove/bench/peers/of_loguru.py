"""loguru: each record serialized into a file, by the caller or (`enqueue`) by a thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from inference_logging.prove.bench.peers import Opened, Peer, Place
from inference_logging.prove.bench.record import with_keywords


def configured(place: Place, *, enqueue: bool) -> Any:
    """Configure: JSON lines; no values of variables in tracebacks, as its documentation asks for production."""
    from loguru import logger

    logger.remove()
    logger.add(
        place.files / "loguru.jsonl", level="INFO", serialize=True, backtrace=False, diagnose=False, enqueue=enqueue
    )
    return logger


@contextmanager
def _opened(place: Place, text: str, *, enqueue: bool) -> Iterator[Opened]:
    logger = configured(place, enqueue=enqueue)
    filtered = with_keywords(logger.debug, text)
    yield Opened(with_keywords(logger.info, text), logger.complete, filtered, logger.complete)


_Peer: Final = partial(Peer, library="loguru", settings=configured, modules=(("loguru", "loguru"),))
PEERS: Final = (
    _Peer("loguru", "loguru", opened=partial(_opened, enqueue=False)),
    _Peer("loguru-enqueue", "loguru, enqueue=True", opened=partial(_opened, enqueue=True)),
)
