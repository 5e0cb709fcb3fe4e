"""The control: a call that does nothing. It is there twice, so that the difference between both shows the noise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from inference_logging.prove.bench.peers import Opened, Peer, Place


def empty_call(_number: int) -> None:
    """Do nothing."""


@contextmanager
def _opened(_place: Place, _text: str) -> Iterator[Opened]:
    yield Opened(empty_call, drain=lambda: None, filtered=empty_call)


PEERS: Final = tuple(
    Peer(name, title, "Python", _opened, empty_call, writes=False)
    for name, title in (("empty", "empty call (control)"), ("empty-again", "empty call, once more (noise)"))
)
