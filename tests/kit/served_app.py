"""The application that the server tests start in processes of their own; it answers what its path asks for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from starlette.responses import StreamingResponse

from inference_logging import InferenceLoggingMiddleware, get_logger
from inference_logging.metrics import metrics_of
from inference_logging.record.logger import _open_loggers

app = FastAPI()
app.add_middleware(InferenceLoggingMiddleware)
log = get_logger("served")

if os.environ.get("SERVED_APP_LOGS_AT_IMPORT"):
    log.warning("imported")


@app.get("/")
async def index() -> dict[str, int]:
    """Answer at once."""
    return {"pid": os.getpid()}


@app.get("/logged/{number}")
async def logged(number: int) -> dict[str, int]:
    """Make one record of the application's own."""
    log.warning("logged", number=number)
    return {"pid": os.getpid()}


@app.get("/debug")
async def debug() -> dict[str, int | bool]:
    """Make a record that is usually left out, and say whether it was accepted."""
    return {"pid": os.getpid(), "accepted": log.debug("debug")}


@app.get("/failing")
async def failing() -> None:
    """Fail."""
    raise RuntimeError("as asked for")


@app.get("/stream/{chunks}")
async def stream(chunks: int, pause_s: float = 0.0) -> StreamingResponse:
    """Stream ``chunks`` chunks."""

    async def parts() -> AsyncIterator[bytes]:
        for number in range(chunks):
            yield b"data: %d\n\n" % number
            await asyncio.sleep(pause_s)

    return StreamingResponse(parts(), media_type="text/event-stream")


@app.get("/stats")
async def stats() -> dict[str, Any]:
    """Return this worker's counts, those of every worker by pid, and who listens."""
    (logger,) = _open_loggers
    workers = {queue["pid"]: queue for queue in logger.service.queues()}
    return {**logger.stats(), "workers": workers}


@app.get("/scraped")
async def scraped() -> dict[str, Any]:
    """Return the metrics as this worker shows them, and which one it is."""
    (logger,) = _open_loggers
    return {"pid": os.getpid(), "metrics": metrics_of(logger).render("")[0].decode()}


async def without_lifespan(scope: Any, receive: Any, send: Any) -> None:
    """Be an ASGI application that knows requests only."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


raw_app = InferenceLoggingMiddleware(without_lifespan)
