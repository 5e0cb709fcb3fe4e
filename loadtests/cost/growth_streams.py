"""What a streamed response costs beside more and more others: the ASGI middleware in process, tasks of asyncio."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from typing import Final

from inference_logging import InferenceLoggingMiddleware, Logger
from inference_logging.prove.bench.configurations_round import STREAM
from inference_logging.record.asgi.lifespan import ASGIApp, Message, Receive, Scope, Send
from loadtests.cost.growth_quantity import Place, Quantity, Sample, accepted, settle, take_turns
from loadtests.instructions.instruction_requests import CHUNK

CHUNKS: Final = 64
_SLICES: Final = 6
_LEAST_STREAMS: Final = 256
"""A slice has at least as many, some after others where fewer are concurrent."""


async def stream(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer with chunks, and let the other streams go on after each."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for _ in range(CHUNKS):
        await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send(_message: Message) -> None:
    pass


async def _receive() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def _streams(loop: asyncio.AbstractEventLoop, app: ASGIApp, concurrent: int, times: int) -> None:
    async def together() -> None:
        for _ in range(times):
            await asyncio.gather(*(app(STREAM.scope(), _receive, _send) for _ in range(concurrent)))

    loop.run_until_complete(together())


def _of_streams(place: Place, concurrent: int, quick: bool) -> Sample:
    times, slices = max(1, _LEAST_STREAMS // concurrent), 1 if quick else _SLICES
    each, config, loop = concurrent * times, place.config(), asyncio.new_event_loop()
    try:
        with Logger(config) as logger:
            logged = partial(_streams, loop, InferenceLoggingMiddleware(stream, config), concurrent, times)
            control = partial(_streams, loop, stream, concurrent, times)
            gc.collect()
            logged_ns, control_ns = take_turns(logged, control, partial(settle, logger), slices)
            count = accepted(logger, each * (slices + 1))
    finally:
        loop.close()
    return Sample(logged_ns / each, control_ns / each, count, place.arrived("request"))


STREAMS: Final = Quantity(
    "streams", "Concurrent streams", "concurrent streams", f"a stream of {CHUNKS} chunks", "the number of streams",
    "stream", (1, 10, 100, 1000, 5000), (1, 50), _of_streams,
)  # fmt: skip
"""The requests are open at once in one event loop; each streams one chunk at a time, by turns with all others."""
