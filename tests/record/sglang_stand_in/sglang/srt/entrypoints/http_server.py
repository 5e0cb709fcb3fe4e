"""An application at module level, which is served in this process, or loaded by a path in worker processes."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from sglang.srt.utils import set_uvicorn_logging_configs
from starlette.responses import PlainTextResponse, StreamingResponse

App = Callable[[Any, Any, Any], Awaitable[None]]


@asynccontextmanager
async def lifespan(application: FastAPI) -> AsyncIterator[None]:
    """Serve."""
    yield


app = FastAPI(lifespan=lifespan)
app.add_middleware(CORSMiddleware, allow_origins=["*"])


@app.get("/health")
async def health() -> dict[str, int]:
    """Answer at once."""
    return {"pid": os.getpid()}


@app.post("/generate")
async def generate() -> StreamingResponse:
    """Stream three chunks."""

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"data: %d\n\n" % number

    return StreamingResponse(chunks(), media_type="text/event-stream")


class ApiKey:
    """Let requests with the key through."""

    def __init__(self, app: App, key: str) -> None:
        self.app, self.key = app, f"Bearer {key}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one scope."""
        given = dict(scope.get("headers", ())).get(b"authorization")
        refused = scope["type"] == "http" and scope["path"] != "/health" and given != self.key
        await (PlainTextResponse("Unauthorized", 401) if refused else self.app)(scope, receive, send)


def launch_server(server_args: argparse.Namespace) -> None:
    """Serve by uvicorn or granian, in this process or in several."""
    alone = server_args.tokenizer_worker_num == 1
    if alone and server_args.api_key:
        app.add_middleware(ApiKey, key=server_args.api_key)
    set_uvicorn_logging_configs(server_args)
    path = os.environ.get("SGLANG_HTTP_SERVER_APP_PATH", "sglang.srt.entrypoints.http_server:app")
    if server_args.enable_http2:
        _granian(app if alone else path, server_args)
    elif alone:
        uvicorn.Server(uvicorn.Config(app, port=server_args.port)).run()
    else:
        uvicorn.run(path, port=server_args.port, workers=server_args.tokenizer_worker_num)


def _granian(target: Any, server_args: argparse.Namespace) -> None:
    from granian import Granian
    from granian.constants import Interfaces
    from granian.server.embed import Server

    if server_args.tokenizer_worker_num > 1:
        Granian(
            target, port=server_args.port, interface=Interfaces.ASGI, workers=server_args.tokenizer_worker_num
        ).serve()
        return
    server = Server(target, port=server_args.port, interface=Interfaces.ASGI)

    async def serve() -> None:
        import signal

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
        await server.serve()

    asyncio.run(serve())
