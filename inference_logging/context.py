"""The request under way, for every record that is made while it is handled."""

from __future__ import annotations

from contextvars import ContextVar

from inference_logging._native import RequestObserver

REQUEST: ContextVar[RequestObserver | None] = ContextVar("inference_logging.request", default=None)
"""Set by the middleware around the application's call; read at emit, never at flush."""


def current_request() -> RequestObserver | None:
    """Return the request under way (``trace_id``, ``span_id``), or None outside of one."""
    return REQUEST.get()
