"""The application that the server tests start in processes of their own; it answers what its path asks for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from inference_logging import InferenceLoggingMiddleware, get_logger
from inference_logging.metrics import metrics_of
from inference_logging.record.logger import _open_loggers

log = get_logger("served")

if os.environ.get("SERVED_APP_LOGS_AT_IMPORT"):
    log.warning("imported")


async def index(_: Request) -> Response:
    """Answer at once."""
    return JSONResponse({"pid": os.getpid()})


async def logged(request: Request) -> Response:
    """Make one record of the application's own."""
    log.warning("logged", number=int(request.path_params["number"]))
    return JSONResponse({"pid": os.getpid()})


async def debug(_: Request) -> Response:
    """Make a record that is usually left out, and say whether it was accepted."""
    return JSONResponse({"pid": os.getpid(), "accepted": log.debug("debug")})


async def failing(_: Request) -> Response:
    """Fail."""
    raise RuntimeError("as asked for")


async def stream(request: Request) -> Response:
    """Stream as many chunks as the path says, with pauses as long as the query says."""
    pause_s = float(request.query_params.get("pause_s", 0))

    async def parts() -> AsyncIterator[bytes]:
        for number in range(int(request.path_params["chunks"])):
            yield b"data: %d\n\n" % number
            await asyncio.sleep(pause_s)

    return StreamingResponse(parts(), media_type="text/event-stream")


async def stats(_: Request) -> Response:
    """Return this worker's counts, those of every worker by pid, and who listens."""
    (logger,) = _open_loggers
    workers = {queue["pid"]: queue for queue in logger.service.queues()}
    return JSONResponse({**logger.stats(), "workers": workers})


async def scraped(_: Request) -> Response:
    """Return the metrics as this worker shows them, and which one it is."""
    (logger,) = _open_loggers
    return JSONResponse({"pid": os.getpid(), "metrics": metrics_of(logger).render("")[0].decode()})


# Tests start hundreds of these, and FastAPI takes three times as long to import.
ROUTES = {
    "/": index, "/logged/{number}": logged, "/debug": debug, "/failing": failing, "/stream/{chunks}": stream,
    "/stats": stats, "/scraped": scraped,
}  # fmt: skip
app = Starlette(
    routes=[Route(path, serve) for path, serve in ROUTES.items()], middleware=[Middleware(InferenceLoggingMiddleware)]
)


async def without_lifespan(scope: Any, receive: Any, send: Any) -> None:
    """Be an ASGI application that knows requests only."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


raw_app = InferenceLoggingMiddleware(without_lifespan)
