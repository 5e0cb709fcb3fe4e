"""asgi-correlation-id in the same application: the id that it found or made for the client becomes the client's id."""

from __future__ import annotations

import sys
from collections.abc import Callable


def correlation_reader() -> Callable[[], str | None] | None:
    """Return the function that reads the correlation id, or None if the application has not imported the library."""
    if "asgi_correlation_id.context" not in sys.modules:
        return None
    from asgi_correlation_id.context import correlation_id

    return correlation_id.get
