"""Sends marked secrets through every way into the log; run as its own process, configured by the environment.

Each secret has a number of its own, `canary07@example.com`, so that a leak shows its way. `CANARY_PAGES` names the
directory for what the middleware answers itself; with `CANARY_END=kill` the process kills itself, a request under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from inference_logging import Config, Handler, InferenceLoggingMiddleware, Logger, get_logger
from inference_logging._native import Json

CARD = 4111111111111111
Message = MutableMapping[str, Any]


def mail(number: int) -> str:
    """Return the secret of a number."""
    return f"canary{number:02}@example.com"


class Canary11Error(Exception):
    """Its name is a secret by the configuration's expression."""


REQUEST = {
    "model": mail(6),
    "user": mail(32),
    "messages": [{"role": "user", "content": f"I am {mail(7)}, and my card is 4111 1111 1111 1111"}],
}
ANSWER = {
    "id": mail(8),
    "model": mail(6),
    "choices": [{"index": 0, "finish_reason": mail(34), "message": {"role": "assistant", "content": mail(9)}}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}
PIECES = ["Write to can", "ary35@exam", "ple.com", " today"]
EVENTS = [{"model": mail(6), "choices": [{"index": 0, "delta": {"content": piece}}]} for piece in PIECES]


async def app(scope: Message, receive: Any, send: Any) -> None:
    """Answer as an inference server does, by path."""
    await receive()
    if scope["path"] == "/v1/completions":
        raise Canary11Error(f"cannot serve {mail(10)}") from ValueError(f"wrong {mail(41)}")
    if scope["path"].startswith("/hang"):
        os.kill(os.getpid(), signal.SIGKILL)
    stream = scope["path"] == "/v1/chat/completions/stream"
    kind = b"text/event-stream" if stream else b"application/json"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    if stream:
        for event in EVENTS:
            body = f"data: {json.dumps(event)}\n\n".encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
    else:
        await send({"type": "http.response.body", "body": json.dumps(ANSWER).encode()})


async def request(served: Any, path: str, *, method: str = "POST", body: object = REQUEST) -> bytes:
    """Send one request with secrets in its head, return what comes back."""
    headers = [
        (b"content-type", b"application/json"),
        (b"x-request-id", mail(4).encode()),
        (b"authorization", b"Bearer canary05secret"),
        (b"traceparent", b"00-canary31-00f067aa0ba902b7-01"),
        (b"cookie", b"session=canary36"),
    ]
    query = b"email=canary03%40example.com"
    scope: Message = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "headers": headers,
    }
    scope.update(query_string=query, root_path="", raw_path=path.encode(), client=("127.0.0.1", 1))
    received: list[bytes] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def send(message: Message) -> None:
        received.append(message.get("body", b""))

    await served(scope, receive, send)
    return b"".join(received)


def log_by_all_means() -> None:
    """Make application records."""
    log = get_logger(f"tenant {mail(26)}")
    attributes: dict[str, Any] = {"password": "canary33", mail(14): 1, "card": CARD, "session": "canary18"}
    nested = {"list": [{"to": mail(15)}], "text": json.dumps({"to": "canary37\\u0040example.com", "n": CARD})}
    message = f"hello {mail(12)}"
    log.info(message, value=mail(13), nested=nested, raw=b"\xff" + mail(16).encode(), **attributes)
    log.info("encoded", value=Json('{"to":"canary17\\u0040example.com"}'), path="/a?to=canary02%40example.com")
    try:
        raise ValueError(f"wrong {mail(19)}")
    except ValueError:
        log.exception("failed")
        logging.getLogger("old").exception("failed for %s", mail(20), extra={"who": mail(21)})
    logging.getLogger("old").warning("%d", mail(23))
    logger = Logger.newest()
    logger.event("billed", ["who", "card"])(mail(24), CARD)
    logger.event(f"billed to {mail(39)}", ["amount"])(1)


async def drive(served: Any) -> None:
    """Send everything."""
    log_by_all_means()
    if Config().audit == "on":
        await Logger.newest().audit("order", who=mail(25), card=CARD)
        await Logger.newest().audit(f"order of {mail(40)}", amount=1)
    await request(served, f"/users/{mail(1)}")
    await request(served, "/users/canary02%40example.com", method=f"GET {mail(30)}")
    await request(served, "/v1/chat/completions")
    await request(served, "/v1/chat/completions/stream", body={**REQUEST, "stream": True})
    with contextlib.suppress(Canary11Error):
        await request(served, "/v1/completions")
    if os.environ.get("CANARY_END") == "kill":
        await request(served, f"/hang/{mail(38)}")


async def main() -> None:
    """Open, drive, keep the pages, close."""
    logging.basicConfig(level=logging.INFO, handlers=[Handler()])
    served = InferenceLoggingMiddleware(app)
    with Logger(Config()) as logger:
        await drive(served)
        logger.flush(60.0 if os.environ.get("CANARY_WRITES") == "all" else 2.0)
        pages = Path(os.environ["CANARY_PAGES"])
        for name in ("metrics", "health/logging"):
            (pages / name.replace("/", "-")).write_bytes(await request(served, f"/{name}", method="GET"))


if __name__ == "__main__":
    asyncio.run(main())
    sys.exit(0)
