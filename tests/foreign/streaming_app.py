"""The application that hypercorn and granian serve: what a server can do to a request, each at a path of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

import anyio
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from inference_logging import InferenceLoggingMiddleware, get_logger

log = get_logger("served")


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Leave a record at both ends."""
    log.warning("startup")
    yield
    log.warning("shutdown")


async def index(request: Request) -> Response:
    """Answer at once."""
    return JSONResponse({"pid": os.getpid(), "http_version": request.scope["http_version"]})


async def echo(request: Request) -> Response:
    """Answer with the body, which is read in the parts in which it comes."""
    return Response(b"".join([part async for part in request.stream()]))


async def stream(request: Request) -> Response:
    """Send so many chunks; without number: until the client goes or the server ends."""
    limit = request.path_params.get("chunks")

    async def chunks() -> AsyncIterator[bytes]:
        number = 0
        while limit is None or number < limit:
            yield b"data: %d\n\n" % number
            number += 1
            await anyio.sleep(0.001 if limit else 0.02)

    return StreamingResponse(chunks(), media_type="text/event-stream")


async def fail(request: Request) -> Response:
    """Raise before the answer."""
    raise LookupError("no such model")


async def fail_late(request: Request) -> Response:
    """Raise amid the answer."""

    async def chunks() -> AsyncIterator[bytes]:
        yield b"data: 0\n\n"
        raise LookupError("lost the model")

    return StreamingResponse(chunks(), media_type="text/event-stream")


async def background(request: Request) -> Response:
    """Answer, and leave a record afterwards."""
    return JSONResponse({}, background=BackgroundTask(log.warning, "background"))


async def file(request: Request) -> Response:
    """Answer with a file, which granian sends by itself (extension pathsend)."""
    return FileResponse(__file__)


async def talk(websocket: WebSocket) -> None:
    """Answer one message."""
    await websocket.accept()
    await websocket.send_text(await websocket.receive_text())
    await websocket.close()


served = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/", index),
        Route("/echo", echo, methods=["POST"]),
        Route("/stream/{chunks:int}", stream),
        Route("/endless", stream),
        Route("/fail", fail),
        Route("/fail-late", fail_late),
        Route("/background", background),
        Route("/file", file),
        WebSocketRoute("/talk", talk),
    ],
)
app = InferenceLoggingMiddleware(served)
