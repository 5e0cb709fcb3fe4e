"""Health of the logging: 503 when the backlog passes a threshold, 200 again when it has cleared."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

RETRY_AFTER_S = 1


class BacklogHealth:
    """A threshold with hysteresis over the records that wait in the queues.

    ``limit`` records or more: not ready; ready again at ``limit * clear_ratio`` or fewer.
    """

    def __init__(self, limit: int, clear_ratio: float) -> None:
        self._limit = limit
        self._clear = limit * clear_ratio
        self._ready = True

    def is_ready(self, backlog_records: int) -> bool:
        """Take the backlog of now into account and return whether the logging keeps up."""
        self._ready = backlog_records <= self._clear if not self._ready else backlog_records < self._limit
        return self._ready

    def answer(self, backlog_records: int) -> tuple[int, dict[str, Any]]:
        """Return HTTP status and body for the backlog of now."""
        ready = self.is_ready(backlog_records)
        body: dict[str, Any] = {"status": "ok" if ready else "backlog", "backlog_records": backlog_records}
        if not ready:
            body["reason"] = (
                f"{backlog_records} records wait for the listener; the threshold is {self._limit}, "
                f"ready again at {int(self._clear)}"
            )
        return (200 if ready else 503), body


async def respond(
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]], status: int, body: dict[str, Any]
) -> None:
    """Send a JSON answer that no cache keeps."""
    content = json.dumps(body).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if status == 503:
        headers.append((b"retry-after", str(RETRY_AFTER_S).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
