"""The request under way, for every record that is made while it is handled."""

from __future__ import annotations

from contextvars import ContextVar

from inference_logging._native import RequestIds

REQUEST: ContextVar[RequestIds | None] = ContextVar("inference_logging.request", default=None)
"""Set by the middleware around the application's call; read at emit, never at flush."""


def current_request() -> RequestIds | None:
    """Return the ids of the request under way (``trace_id``, ``span_id``, ``request_id``), or None outside of one."""
    return REQUEST.get()
