"""The yardstick of what a middleware costs: the thinnest one that can note anything."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from inference_logging.record.asgi.lifespan import ASGIApp, Message, Receive, Send

_NOTED: Final = 10_000


class Thinnest:
    """The least that a middleware in Python can do to know of a request what an access log says."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._noted: deque[tuple[str, str, int, float]] = deque(maxlen=_NOTED)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one scope, and note method, path, status and duration."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note)
        finally:
            self._noted.append((scope["method"], scope["path"], status, time.perf_counter() - started))
