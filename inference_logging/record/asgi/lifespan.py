"""The server's lifespan: open with its startup, drain at its end, also for an application that knows no lifespan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
# An application should return None; any other value is passed on.
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[Any]]

# No request comes after these, and the application has made its last record.
_ENDS = frozenset({"lifespan.startup.failed", "lifespan.shutdown.complete", "lifespan.shutdown.failed"})


async def serve_lifespan(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, open_: Callable[[], object], close: Callable[[], object]
) -> Any:
    """Serve a lifespan scope: ``open_`` before the application's startup, ``close`` after its shutdown.

    An error of ``open_`` is a failed startup, which ends the server: if it were raised alone, servers would take the
    application for one without lifespan and go on without its startup. An application that raises or returns before it
    has received anything has no lifespan; then it is served here.
    """
    try:
        open_()
    except Exception as error:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": f"inference_logging: {error}"})
        raise
    received = False

    async def observed_receive() -> Message:
        nonlocal received
        received = True
        return await receive()

    async def send_after_close(message: Message) -> None:
        if kind_of(message) in _ENDS:
            close()
        await send(message)

    try:
        returned = await app(scope, observed_receive, send_after_close)
    except Exception:
        if received:
            raise
        returned = None
    if not received:
        await _serve_alone(receive, send_after_close)
    return returned


def kind_of(message: object) -> str:
    """Return the type of an ASGI message; empty for anything else."""
    # The server decides whether it accepts a message.
    kind = message.get("type") if isinstance(message, Mapping) else None
    return kind if isinstance(kind, str) else ""


async def _serve_alone(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
