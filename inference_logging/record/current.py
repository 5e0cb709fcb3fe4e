"""``current_request``. An import of it asks for the request under way."""

from __future__ import annotations

from inference_logging._native import RequestIds
from inference_logging.record.context import reader

_request = reader()


def current_request() -> RequestIds | None:
    """Return the ids of the current request, or None outside a request.

    ``trace_id`` and ``span_id``; ``request_id``, made by this package; ``client_request_id``, the client's or None.
    ``outgoing_headers()`` returns the headers that make a call to another service a child of this request; ``keep()``
    has the request recorded whatever the sampler decided; ``set(**fields)`` adds a few small fields (str, int, float,
    bool) to its record.
    """
    return _request()
