"""The request under way, for every record that is made while it is handled.

Internal: users import its names from ``inference_logging``.
"""

from __future__ import annotations

from contextvars import ContextVar

from inference_logging._native import RequestIds

REQUEST: ContextVar[RequestIds | None] = ContextVar("inference_logging.request", default=None)
"""Set by the middleware around the application's call; read at emit, never at flush."""


def current_request() -> RequestIds | None:
    """Return the ids of the request under way, or None outside of one.

    ``trace_id`` and ``span_id``; ``request_id``, made by this package; ``client_request_id``, the client's or None;
    ``outgoing_headers()``, the headers that make a call to another service a child of this request; ``keep()`` has the
    request recorded whatever the sampler decided.
    """
    return REQUEST.get()
