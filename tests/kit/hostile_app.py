"""A raw application that misbehaves as its path asks for, served by uvicorn with our middleware and without it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Callable, MutableMapping
from typing import Any

from inference_logging import InferenceLoggingMiddleware

# The long mode takes minutes for a million.
CHUNKS = int(os.environ.get("HOSTILE_CHUNKS", "30000"))
_START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
_END = {"type": "http.response.body", "body": b"end"}


def start(**values: object) -> dict[str, Any]:
    """Return a start of the answer with other values."""
    return {**_START, **values}


def body(content: object, **more: object) -> dict[str, Any]:
    """Return a part of the answer."""
    return {"type": "http.response.body", "body": content, **more}


MISBEHAVIOURS: dict[str, Callable[[], list[Any]]] = {
    "second-start": lambda: [_START, start(status=503), _END],
    "start-after-end": lambda: [_START, _END, start(status=503)],
    "body-first": lambda: [_END, _START],
    "body-after-end": lambda: [_START, _END, _END],
    "unknown-type": lambda: [_START, {"type": "http.response.no_such"}, _END],
    "no-type": lambda: [{"status": 200}],
    "no-dictionary": lambda: [None],
    "text": lambda: ["http.response.start"],
    "status-text": lambda: [start(status="200"), _END],
    "status-none": lambda: [start(status=None), _END],
    "status-huge": lambda: [start(status=10**30), _END],
    "no-status": lambda: [{"type": "http.response.start"}, _END],
    "body-text": lambda: [_START, body("text")],
    "body-none": lambda: [_START, body(None)],
    "body-number": lambda: [_START, body(7)],
    "body-memoryview": lambda: [_START, body(memoryview(b"view"))],
    "body-bytearray": lambda: [_START, body(bytearray(b"array"))],
    "headers-none": lambda: [start(headers=None), _END],
    "headers-tuple": lambda: [start(headers=((b"x-a", b"b"),)), _END],
    "headers-generator": lambda: [start(headers=(pair for pair in [(b"x-a", b"b")])), _END],
    "headers-text": lambda: [start(headers=[("x-a", "b")]), _END],
    "headers-split": lambda: [start(headers=[(b"x-a", b"b\r\nset-cookie: forged=1")]), _END],
    "nothing": list,
    "start-only": lambda: [_START],
    "half": lambda: [_START, body(b"half", more_body=True)],
    "trailers-unasked": lambda: [start(trailers=True), _END, {"type": "http.response.trailers", "headers": []}],
}

_served = itertools.count()
_opened = asyncio.Event()


async def _received(receive: Any) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        yield message.get("body", b"")
        if not message.get("more_body"):
            return


async def _describe(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
    reported = {
        "path": scope["path"].encode("utf-8", "backslashreplace").decode(),
        "query": scope["query_string"].hex(),
        "method": scope["method"],
        "headers": len(scope["headers"]),
        "longest": max((len(value) for _, value in scope["headers"]), default=0),
        "body": sum([len(part) async for part in _received(receive)]),
    }
    await send(start())
    await send(body(json.dumps(reported).encode()))


async def _lifespan(receive: Any, send: Any) -> Any:
    while True:
        kind = (await receive())["type"]
        how = os.environ.get("HOSTILE_LIFESPAN", "")
        if how == f"{kind.removeprefix('lifespan.')} raises":
            raise LookupError("no such model")
        if how == f"{kind.removeprefix('lifespan.')} fails":
            return await send({"type": f"{kind}.failed", "message": "no such model"})
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return None


async def _gate(scope: Any, receive: Any, send: Any) -> None:
    await send(start())
    await send(body(b"first", more_body=True))
    await _opened.wait()
    await send(body(b"second", more_body=True))
    await send(body(b"third"))


async def _open_gate(scope: Any, receive: Any, send: Any) -> None:
    _opened.set()
    await _describe(scope, receive, send)


async def _raise(scope: Any, receive: Any, send: Any) -> None:
    raise LookupError("no such model")


async def _return(scope: Any, receive: Any, send: Any) -> str:
    return "a value"


async def _chunks(scope: Any, receive: Any, send: Any) -> None:
    await send(start())
    for _ in range(CHUNKS):
        await send(body(b"x", more_body=True))
    await send(body(b""))


_PATHS: dict[str, Callable[..., Any]] = {
    "/gate": _gate,
    "/open-gate": _open_gate,
    "/raise": _raise,
    "/return": _return,
    "/chunks": _chunks,
}


async def plain(scope: MutableMapping[str, Any], receive: Any, send: Any) -> Any:
    """Serve without the middleware."""
    if scope["type"] == "lifespan":
        return await _lifespan(receive, send)
    path: str = scope["path"]
    if path == "/served":
        await send(start())
        return await send(body(str(next(_served)).encode()))
    next(_served)
    if path.startswith("/misbehave/"):
        for message in MISBEHAVIOURS[path.removeprefix("/misbehave/")]():
            await send(message)
        return None
    serve: Callable[..., Any] = _PATHS.get(path, _describe)
    return await serve(scope, receive, send)


logged = InferenceLoggingMiddleware(plain)
