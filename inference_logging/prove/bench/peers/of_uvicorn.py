"""uvicorn's access log: its own configuration and formatter, called with what its protocols call it with.

A line is text and has the fields of an access log; number and text stand in the query, so that it is as long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from inference_logging.prove.bench.peers import Opened, Peer, Place, nothing
from inference_logging.prove.bench.record import METHOD, PATH, STATUS, Call

_FORMAT: Final = '%s - "%s %s HTTP/%s" %d'


def configured(_place: Place) -> logging.Logger:
    """Configure: as `uvicorn app:app` does; its lines go to standard output, which here is a file."""
    from uvicorn import Config

    Config(app="app:app").configure_logging()
    return logging.getLogger("uvicorn.access")


@contextmanager
def _opened(place: Place, text: str) -> Iterator[Opened]:
    logger = configured(place)
    yield Opened(_access(logger.info, text), nothing, _access(logger.debug, text), nothing)


def _access(method: Callable[..., Any], text: str) -> Call:
    def call(number: int) -> Any:
        return method(_FORMAT, "127.0.0.1:50000", METHOD, f"{PATH}?number={number}&text={text}", "1.1", STATUS)

    return call


_MODULES: Final = (("uvicorn", "uvicorn"),)
PEERS: Final = (
    Peer("uvicorn-access", "uvicorn, access log", "uvicorn", _opened, configured, _MODULES, is_json=False),
)  # fmt: skip
