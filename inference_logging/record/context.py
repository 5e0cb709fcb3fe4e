"""The request under way, for every record that is made while it is handled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from types import CodeType, FrameType
from typing import Final

from inference_logging._native import RequestIds

REQUEST: ContextVar[RequestIds | None] = ContextVar("inference_logging.request", default=None)
"""Set by the middleware around the application's call; read at emit, never at flush."""

HAS_READERS: Final[list[bool]] = []
"""Not empty, once something in the process can ask for the request under way."""
MIDDLEWARES: Final[set[CodeType]] = set()
"""What serves a request, whose ids are those of its ``observer``."""


def reader() -> Callable[[], RequestIds | None]:
    """Return the function that reads the request under way, and let middlewares set it from now on.

    If this is the first reader, and is asked for within a request, that request is set here.
    """
    if not HAS_READERS:
        HAS_READERS.append(True)
        _set_request_under_way()
    return REQUEST.get


def _set_request_under_way() -> None:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code in MIDDLEWARES:
            observer = frame.f_locals.get("observer")
            REQUEST.set(observer.ids if observer is not None else None)
            return
        frame = frame.f_back
