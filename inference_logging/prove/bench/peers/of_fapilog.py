"""fapilog: as its documentation begins with a file, and with the preset that it recommends for production."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from inference_logging.prove.bench.peers import Opened, Peer, Place
from inference_logging.prove.bench.record import with_keywords


def default(place: Place) -> Any:
    """Configure: its rotating file."""
    from fapilog import get_logger
    from fapilog.sinks import rotating_file

    return get_logger(sinks=[rotating_file(place.files / "fapilog.log")])


def production(_place: Place) -> Any:
    """Configure: lines on standard output, which here is a file; two workers, redaction, adaptive queue."""
    from fapilog import get_logger

    return get_logger(preset="production")


@contextmanager
def _opened(place: Place, text: str, *, configure: Callable[[Place], Any]) -> Iterator[Opened]:
    logger = configure(place)
    dropped = 0

    def drain() -> None:
        nonlocal dropped
        dropped = asyncio.run(logger.stop_and_drain()).dropped

    filtered = with_keywords(logger.debug, text)
    yield Opened(with_keywords(logger.info, text), drain, filtered, dropped=lambda: dropped)


_Peer: Final = partial(Peer, library="fapilog", modules=(("fapilog", "fapilog"),))
PEERS: Final = (
    _Peer("fapilog", "fapilog, default with a file", opened=partial(_opened, configure=default), settings=default),
    _Peer(
        "fapilog-production", "fapilog, preset production",
        opened=partial(_opened, configure=production), settings=production,
    ),
)  # fmt: skip
