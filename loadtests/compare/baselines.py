"""What people use today, for comparison: the standard library's logging, writing a JSON line per request.

The middleware is the cheapest honest one we know: pure ASGI, no body parsing, one record after the response, with
the fields of our request record that need no parsing. `stdlib-file` writes on the request path through a FileHandler;
`stdlib-queue` puts records on an unbounded queue, which a QueueListener thread formats and writes.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import queue
import time
import uuid
from collections.abc import Awaitable, Callable
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG_NAME = "requests.jsonl"


class JsonLines(logging.Formatter):
    """Format a record's `fields` as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return json.dumps({"timestamp": record.created, "severity_text": record.levelname, **record.__dict__["fields"]})


class StdlibLogging:
    """The logging of one baseline mode; it also takes the example's application records, in `get_logger`'s form."""

    def __init__(self, mode: str, directory: Path) -> None:
        """Open the log in `directory` for a ``stdlib-…`` mode; log nothing in any other."""
        self._log = logging.getLogger("loadtests.requests")
        self._log.propagate = False
        self._log.setLevel(logging.INFO if mode.startswith("stdlib") else logging.CRITICAL)
        if mode.startswith("stdlib"):
            self._log.addHandler(_handler(mode, directory / LOG_NAME))

    def info(self, message: str, **fields: Any) -> None:
        """Log an application record."""
        self._log.info(message, extra={"fields": {"event_name": "log", "body": message, **fields}})

    def request(self, fields: dict[str, Any]) -> None:
        """Log a request."""
        self._log.info("request", extra={"fields": fields})

    def middleware(self, app: ASGIApp) -> RequestLog:
        """Return `app` with its requests logged here, as ``add_middleware`` wants it."""
        return RequestLog(app, self.request)


class RequestLog:
    """Log each request of an app once its response has ended."""

    def __init__(self, app: ASGIApp, emit: Callable[[dict[str, Any]], None]) -> None:
        """Wrap `app`, handing the fields of each request to `emit`."""
        self.app = app
        self.emit = emit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything through; watch the response."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        first: float | None = None
        status = chunks = size = 0
        outcome = "error"
        ended = False

        def watch(message: Message) -> Awaitable[None]:
            nonlocal first, status, chunks, size, ended
            if message["type"] == "http.response.start":
                status = message["status"]
            elif body := message.get("body"):
                first = first or time.perf_counter()
                chunks += 1
                size += len(body)
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            return send(message)

        try:
            await self.app(scope, receive, watch)
            outcome = "ok" if ended else "client_disconnect"
        finally:
            self.emit({
                "event_name": "request",
                "http.request.method": scope["method"],
                "url.path": scope["path"],
                "http.route": getattr(scope.get("route"), "path", None),
                "http.response.status_code": status,
                "http.response.body.size": size,
                "duration_s": time.perf_counter() - start,
                "time_to_first_chunk_s": None if first is None else first - start,
                "chunks": chunks,
                "outcome": outcome,
                "request_id": uuid.uuid4().hex,
            })  # fmt: skip


class File(RequestLog):
    """As a server's own option takes a middleware, which gives it the app only: a line on the request path."""

    mode = "stdlib-file"

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`; the log is in the directory that our own settings name."""
        directory = Path(os.environ["INFERENCE_LOGGING_DIRECTORY"])
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(app, StdlibLogging(self.mode, directory).request)


class Queue(File):
    """The same through a queue, from which a thread writes."""

    mode = "stdlib-queue"


def _handler(mode: str, path: Path) -> logging.Handler:
    file = logging.FileHandler(path)
    file.setFormatter(JsonLines())
    if mode == "stdlib-file":
        return file
    records: queue.Queue[Any] = queue.Queue(-1)
    listener = QueueListener(records, file)
    listener.start()
    atexit.register(listener.stop)  # before logging's own exit hook closes the file: nothing is lost
    return QueueHandler(records)
