"""A middleware for vLLM that is ours or nothing, request by request: what compares both within one process.

Two servers of one program can differ by some percent for their whole life, which hides half a percent. Here a request
with the query ``off`` goes to the application directly, every other one through our middleware.
"""

from __future__ import annotations

from typing import Any, Final

from inference_logging import InferenceLoggingMiddleware
from inference_logging.record.asgi.lifespan import ASGIApp, Receive, Scope, Send

OFF: Final = b"off"


class Switch:
    """Ours in front of ``app``, except for requests that ask for none of it."""

    def __init__(self, app: ASGIApp) -> None:
        self._off = app
        self._on = InferenceLoggingMiddleware(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> Any:
        """Serve one scope."""
        app = self._off if scope.get("query_string") == OFF else self._on
        return await app(scope, receive, send)
