"""The answers of this package's routes (readiness, liveness, metrics), and the header on the server's own health route.

Methods are treated as starlette treats a GET route: HEAD gets the headers, anything else 405.

A log may not open though nothing is configured wrongly: nobody said where it is to be, ``open_failure`` says so, or its
queue has no room, since dead processes' queues wait for a listener. Then the server serves, says so, and tries again.
"""

from __future__ import annotations

import errno
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from inference_logging._native import Metrics
from inference_logging.record.application import get_logger
from inference_logging.record.asgi.lifespan import Message, Scope, Send
from inference_logging.record.health import Answer, Health

if TYPE_CHECKING:
    from inference_logging.errors import OpenError
    from inference_logging.record.config import Config

STATE_HEADER = b"inference-logging-state"
CLOSED = "closed"
"""The state where there is no logger: before the start, after the end, or where it could not be opened."""

OFF: Answer = (200, b'{"status": "off", "reasons": ["enabled is off: nothing is recorded"]}', 1)
"""The answer of both routes where nothing is to be recorded, which is no reason to take the server away."""

Header = tuple[bytes, bytes]

_NO_STORE = (b"cache-control", b"no-store")
_TEXT = b"text/plain; charset=utf-8"
_NOT_OPEN = b'{"status": "closed", "reasons": ["the logger is not open"]}'


def readiness(health: Health | Unopened | None) -> Answer:
    """Return the answer of the readiness route; None: the logger is not open."""
    return health.readiness() if health is not None else (503, _NOT_OPEN, 1)


def liveness(health: Health | Unopened | None) -> Answer:
    """Return the answer of the liveness route. A restart would not surely repair a logger that is not open."""
    return health.liveness() if health is not None else (200, _NOT_OPEN, 1)


async def respond(scope: Scope, send: Send, answer: Answer) -> None:
    """Send a JSON answer that no cache keeps, or 405 for a method that is neither GET nor HEAD."""
    status, content, retry_after_s = answer
    later = [(b"retry-after", b"%d" % retry_after_s)] if status == 503 else []
    await _send_allowed(scope, send, status, b"application/json", content, later)


async def respond_with_metrics(scope: Scope, send: Send, metrics: Metrics | Unopened | None) -> None:
    """Answer a request for metrics: OpenMetrics (with exemplars) if the Accept header requests it, else text.

    HEAD gets the headers, a method other than GET 405; without metrics (the logger is not open) it is 503.
    """
    if metrics is None:
        await _send_allowed(scope, send, 503, _TEXT, b"the logger is not open")
        return
    accepted = [value for name, value in scope.get("headers", ()) if name == b"accept"]
    content, kind = metrics.render(b",".join(accepted).decode("latin-1"))
    await _send_allowed(scope, send, 200, kind.encode(), content)


async def refuse(scope: Scope, send: Send, why: str) -> None:
    """Send 503, to be tried again, in place of an application's answer to any method."""
    content = json.dumps({"detail": why}).encode()
    await _send(scope, send, 503, b"application/json", content, [_NO_STORE, (b"retry-after", b"1")])


async def _send_allowed(
    scope: Scope, send: Send, status: int, kind: bytes, content: bytes, headers: Sequence[Header] = ()
) -> None:
    if scope.get("method", "GET") in {"GET", "HEAD"}:
        await _send(scope, send, status, kind, content, [_NO_STORE, *headers])
    else:
        await _send(scope, send, 405, _TEXT, b"Method Not Allowed", [(b"allow", b"GET, HEAD")])


async def _send(scope: Scope, send: Send, status: int, kind: bytes, content: bytes, headers: Sequence[Header]) -> None:
    described = [(b"content-type", kind), *headers, (b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": status, "headers": described})
    await send({"type": "http.response.body", "body": b"" if scope.get("method") == "HEAD" else content})


def wrap(send: Send, look: Callable[[], Health | Unopened | None], *, changes_status: bool) -> Send:
    """Return a ``send`` that adds the logging's state to the answer of the server's own health route.

    With ``changes_status``, a 2xx becomes 503 with Retry-After while readiness says 503. Body and other headers are the
    server's.
    """

    def send_with_state(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            message = _with_state(message, look(), changes_status=changes_status)
        return send(message)

    return send_with_state


def _with_state(message: Message, health: Health | Unopened | None, *, changes_status: bool) -> Message:
    state = CLOSED if health is None else health.state
    status, headers = message["status"], [*_without(message.get("headers", ()), STATE_HEADER)]
    headers.append((STATE_HEADER, state.encode()))
    ready, _, retry_after_s = readiness(health)
    if changes_status and 200 <= status <= 299 and ready == 503:
        status = 503
        headers = [*_without(headers, b"retry-after"), (b"retry-after", b"%d" % retry_after_s)]
    return {**message, "status": status, "headers": headers}


def _without(headers: Sequence[Header], name: bytes) -> list[Header]:
    return [pair for pair in headers if pair[0].lower() != name]


_PLACES: Final = frozenset({"directory", "queue_directory"})
_NO_ROOM: Final = f"(os error {errno.ENOSPC})"
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 32.0


def may_serve(config: Config, error: OpenError) -> bool:
    """Return whether a server may start without its log: by default places, a full queue or ``open_failure``."""
    is_place = str(error).partition("=")[0] in _PLACES
    may_fail = config.open_failure == "serve" or not _PLACES & config.model_fields_set
    return config.audit == "off" and ((is_place and may_fail) or _NO_ROOM in str(error))


class Unopened:
    """What is said, counted and answered until the log can be opened."""

    state: Final = "degraded"

    def __init__(self, error: OpenError) -> None:
        """Say on stderr why requests are not recorded."""
        self.requests = 0
        self._why = str(error)
        self._pause_s, self._due = _FIRST_PAUSE_S, time.monotonic() + _FIRST_PAUSE_S
        sys.stderr.write(f"inference_logging: requests are NOT recorded until this is repaired: {error}\n")

    def is_due(self) -> bool:
        """Return whether to try again."""
        return time.monotonic() >= self._due

    def failed(self, error: OpenError) -> None:
        """Wait longer for the next try."""
        self._why = str(error)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._due = time.monotonic() + self._pause_s

    def opened(self) -> None:
        """Say and record how many requests are missing."""
        sys.stderr.write(f"inference_logging: requests are recorded again; {self.requests} were not\n")
        get_logger("inference_logging").warning("requests were not recorded", requests=self.requests, reason=self._why)

    def readiness(self) -> Answer:
        """Return the answer of the readiness route."""
        return 503, json.dumps({"status": self.state, "reasons": [f"no log: {self._why}"]}).encode(), 1

    def liveness(self) -> Answer:
        """Return the answer of the liveness route: a restart would not surely repair it."""
        return 200, *self.readiness()[1:]

    def render(self, _accept: str) -> tuple[bytes, str]:
        """Return the metrics page and its type, as the native one does."""
        text = (
            "# TYPE inference_logging_state gauge\n"
            f'inference_logging_state{{state="{self.state}"}} 1\n'
            "# TYPE inference_logging_requests_unrecorded_total counter\n"
            f"inference_logging_requests_unrecorded_total {self.requests}\n"
        )
        return text.encode(), "text/plain; version=0.0.4; charset=utf-8"
