"""WebSocket connections: one record each, with messages and bytes both ways, close code and outcome.

Messages pass unchanged. A connection is always recorded, whatever the sampler says of requests. Its record comes with
its end; a process that is killed leaves none.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from inference_logging._native import RequestFactory
from inference_logging.record.asgi.lifespan import ASGIApp, Message, Receive, Scope, Send, kind_of
from inference_logging.record.context import REQUEST

_INFO: Final = 9
_WARN: Final = 13
_ERROR: Final = 17
_SEVERITIES: Final = {
    "ok": _INFO,
    "client_disconnect": _WARN,
    "server_shutdown": _WARN,
    "error": _ERROR,
    "timeout": _ERROR,
}
_OUTCOMES: Final = {
    "raised": "error",
    "timed_out": "timeout",
    "cancelled": "server_shutdown",
    "disconnected": "client_disconnect",
}
_DISCONNECT: Final = "WebSocketDisconnect"
"""Raised by Starlette where an application reads on after the client has left."""

_ON_RECORD: Final = "inference_logging"
"""The key of a scope under which it says which service has it on record."""

# RFC 6455, section 7.4.1.
_NORMAL: Final = frozenset({1000, 1001, 1005})
_INTERNAL_ERROR: Final = 1011
_SERVICE_RESTART: Final = 1012
_MAX_TEXT_CHARACTERS: Final = 512


class Connection:
    """The messages that have passed on one connection."""

    __slots__ = (
        "_receive",
        "_send",
        "accepted",
        "closed_by",
        "code",
        "received",
        "received_bytes",
        "sent",
        "sent_bytes",
        "started",
        "status",
        "subprotocol",
    )

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self.started = time.monotonic()
        self.received = self.received_bytes = self.sent = self.sent_bytes = 0
        self.accepted = False
        self.status: int | None = None
        self.subprotocol: str | None = None
        self.code: int | None = None
        self.closed_by: str | None = None

    async def receive(self) -> Message:
        """Return what the application receives, after a note of it."""
        message = await self._receive()
        self._see_received(message)
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Pass on what the application sends, after a note of it."""
        self._see_sent(message)
        return self._send(message)

    def _see_received(self, message: Message) -> None:
        kind = kind_of(message)
        if kind == "websocket.receive":
            self.received += 1
            self.received_bytes += _bytes_of(message)
        elif kind == "websocket.disconnect" and self.closed_by is None:
            self.closed_by, self.code = "client", _code(message, 1005)

    def _see_sent(self, message: Message) -> None:
        kind = kind_of(message)
        if kind == "websocket.send":
            self.sent += 1
            self.sent_bytes += _bytes_of(message)
        elif kind == "websocket.accept":
            self.accepted, self.status = True, 101
            self.subprotocol = _text(message.get("subprotocol"))
        elif kind == "websocket.close" and self.closed_by is None:
            self.closed_by = "server"
            if self.accepted:
                self.code = _code(message, 1000)
            else:
                self.status = 403
        elif kind == "websocket.http.response.start":
            status = message.get("status")
            self.closed_by, self.status = "server", status if isinstance(status, int) else None

    def outcome(self) -> tuple[str, str | None]:
        """Return the outcome and ``error.type`` of a connection whose application returned."""
        if self.closed_by is None:
            return ("ok", None) if self.accepted else ("error", "response_incomplete")
        if self.closed_by == "server":
            failed = self.code == _INTERNAL_ERROR or (self.status or 0) >= 500
            return ("error" if failed else "ok"), None
        if self.code == _SERVICE_RESTART:
            return "server_shutdown", None
        return ("ok" if self.code in _NORMAL else "client_disconnect"), None


async def serve(
    app: ASGIApp,
    scope: Scope,
    receive: Receive,
    send: Send,
    factory: RequestFactory,
    service: object,
    ending: Callable[[BaseException], str],
    texts: Callable[[BaseException], Callable[[], tuple[str, str, str]] | None],
) -> Any:
    """Serve one connection with its ids in the context; return what the application returns.

    One that another middleware of the same ``service`` serves around this one is on record there: its scope says so, as
    that of a request does.
    """
    if _on_record(scope) is service:
        return await app(scope, receive, send)
    connection, ids = Connection(receive, send), factory.websocket_ids(scope)
    # A scope may be read-only, or have keys that raise: then another middleware within makes a record of its own.
    with contextlib.suppress(Exception):
        scope[_ON_RECORD] = service

    def emit(outcome: str, error_type: str | None, exception: Callable[[], tuple[str, str, str]] | None) -> None:
        values = (
            outcome,
            error_type,
            _text(scope.get("path")),
            _text(scope.get("http_version")),
            _host(scope.get("client")),
            connection.status,
            connection.subprotocol,
            connection.received,
            connection.received_bytes,
            connection.sent,
            connection.sent_bytes,
            connection.code,
            connection.closed_by,
            round(time.monotonic() - connection.started, 6),
        )
        try:
            factory.emit_websocket(scope, ids, _SEVERITIES[outcome], values, exception)
        except Exception as error:  # noqa: BLE001 - whatever it is: connections are served
            sys.stderr.write(f"inference_logging: a WebSocket connection has no record: {error}\n")

    token = REQUEST.set(ids)
    try:
        returned = await app(scope, connection.receive, connection.send)
    except BaseException as error:
        name = type(error).__qualname__
        if name == _DISCONNECT and connection.closed_by == "client":
            emit(*connection.outcome(), None)
        else:
            emit(_OUTCOMES[ending(error)], name, texts(error))
        raise
    else:
        emit(*connection.outcome(), None)
        return returned
    finally:
        with contextlib.suppress(Exception):
            del scope[_ON_RECORD]
        # What the garbage collector throws away ends in no connection's context.
        with contextlib.suppress(ValueError):
            REQUEST.reset(token)


def _on_record(scope: Scope) -> object:
    with contextlib.suppress(Exception):
        return scope.get(_ON_RECORD)
    return None


def _host(client: object) -> str | None:
    return _text(client[0]) if isinstance(client, tuple | list) and client else None


def _bytes_of(message: Message) -> int:
    data = message.get("bytes")
    if data is None:
        text = message.get("text")
        return len(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else 0
    return len(data) if isinstance(data, bytes | bytearray | memoryview) else 0


def _code(message: Message, default: int) -> int:
    code = message.get("code")
    return code if isinstance(code, int) else default


def _text(value: object) -> str | None:
    return value[:_MAX_TEXT_CHARACTERS] if isinstance(value, str) else None
