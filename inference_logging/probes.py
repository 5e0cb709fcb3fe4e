"""The answers to health probes: readiness and liveness routes of our own, and the header on the server's own route.

Methods are treated as starlette treats a GET route: HEAD gets the headers, anything else 405.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any

from inference_logging.health import Health
from inference_logging.lifespan import Message, Scope, Send

STATE_HEADER = b"inference-logging-state"
CLOSED = "closed"
"""The state where there is no logger: before the start, after the end, or where it could not be opened."""

Answer = tuple[int, dict[str, Any], int]
"""Status, body, and the seconds after which to ask again."""


def readiness(health: Health | None) -> Answer:
    """Return the answer of the readiness route; None: the logger is not open."""
    if health is None:
        return 503, {"status": CLOSED, "reasons": ["the logger is not open"]}, 1
    return (200 if health.ready else 503), _body(health), health.retry_after_s


def liveness(health: Health | None) -> Answer:
    """Return the answer of the liveness route. A logger that is not open is nothing that a restart is sure to mend."""
    if health is None:
        return 200, {"status": CLOSED, "reasons": ["the logger is not open"]}, 1
    return (200 if health.alive else 503), _body(health), health.retry_after_s


def producers(health: Health) -> Answer:
    """Return the answer of the route for whoever can start a process that has died again."""
    dead = list(health.snapshot.dead_producers)
    return (503 if dead else 200), {"status": "producer_died" if dead else "ok", "dead_producers": dead}, 1


def _body(health: Health) -> dict[str, Any]:
    seen = health.snapshot
    return {
        "status": health.state,
        "reasons": [reason.text for reason in health.reasons],
        "backlog_records": seen.records,
        "fill_ratio": round(seen.fill, 4),
        "oldest_age_s": _rounded(seen.oldest_age_s),
        "listener": {
            "configured": "thread" if seen.listens else "external",
            "leader": seen.leader,
            "since_last_round_s": _rounded(seen.stalled_s),
        },
        "failing_sinks": [asdict(sink) for sink in seen.failing],
        "fallback_active": seen.fallback,
        "dead_producers": list(seen.dead_producers),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


async def respond(scope: Scope, send: Send, answer: Answer) -> None:
    """Send a JSON answer that no cache keeps, or 405 for a method that is neither GET nor HEAD."""
    method, (status, body, retry_after_s) = scope.get("method", "GET"), answer
    content = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    if method not in {"GET", "HEAD"}:
        status, content, headers = 405, b"Method Not Allowed", [(b"content-type", b"text/plain; charset=utf-8")]
        headers.append((b"allow", b"GET, HEAD"))
    elif status == 503:
        headers.append((b"retry-after", b"%d" % retry_after_s))
    headers.append((b"content-length", b"%d" % len(content)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else content})


async def refuse(scope: Scope, send: Send, why: str) -> None:
    """Send 503, to be tried again, in place of an application's answer to any method."""
    content = json.dumps({"detail": why}).encode()
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), (b"retry-after", b"1")]
    headers.append((b"content-length", b"%d" % len(content)))
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope.get("method") == "HEAD" else content})


def wrap(send: Send, look: Callable[[], Health | None], *, changes_status: bool) -> Send:
    """Return a ``send`` that adds our state to the answer of the server's own health route.

    With ``changes_status``, a 2xx becomes 503 with Retry-After while readiness says 503. Body and other headers are the
    server's.
    """

    def send_with_state(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            message = _with_state(message, look(), changes_status=changes_status)
        return send(message)

    return send_with_state


def _with_state(message: Message, health: Health | None, *, changes_status: bool) -> Message:
    state = CLOSED if health is None else health.state
    status, headers = message["status"], [*_without(message.get("headers", ()), STATE_HEADER)]
    headers.append((STATE_HEADER, state.encode()))
    ready, _, retry_after_s = readiness(health)
    if changes_status and 200 <= status <= 299 and ready == 503:
        status = 503
        headers = [*_without(headers, b"retry-after"), (b"retry-after", b"%d" % retry_after_s)]
    return {**message, "status": status, "headers": headers}


def _without(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[tuple[bytes, bytes]]:
    return [pair for pair in headers if pair[0].lower() != name]
