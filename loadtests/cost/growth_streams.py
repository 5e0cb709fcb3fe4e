"""What a streamed response costs beside more and more others: the ASGI middleware in process, tasks of asyncio."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any, Final

from inference_logging import InferenceLoggingMiddleware, Logger
from loadtests.cost.growth_quantity import DRAIN_S, Place, Quantity, Sample, take_turns

CHUNKS: Final = 64
_CHUNK: Final = b'data: {"id":"gen-1","object":"text_completion","choices":[{"index":0,"text":"word "}]}\n\n'
_SLICES: Final = 6
_LEAST_STREAMS: Final = 256
"""A slice has at least as many, some after others where fewer are concurrent."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


async def stream(_scope: MutableMapping[str, Any], _receive: Receive, send: Send) -> None:
    """Answer with chunks, and let the other streams go on after each."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for _ in range(CHUNKS):
        await send({"type": "http.response.body", "body": _CHUNK, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send(_message: Message) -> None:
    pass


async def _receive() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def _scope() -> MutableMapping[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/completions",
        "raw_path": b"/v1/completions",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }


def _streams(loop: asyncio.AbstractEventLoop, app: App, concurrent: int, times: int) -> None:
    async def together() -> None:
        for _ in range(times):
            await asyncio.gather(*(app(_scope(), _receive, _send) for _ in range(concurrent)))

    loop.run_until_complete(together())


def _of_streams(place: Place, concurrent: int, quick: bool) -> Sample:
    times, slices = max(1, _LEAST_STREAMS // concurrent), 1 if quick else _SLICES
    each = concurrent * times
    config = place.config()
    loop = asyncio.new_event_loop()
    try:
        with Logger(config) as logger:
            logged = partial(_streams, loop, InferenceLoggingMiddleware(stream, config), concurrent, times)
            control = partial(_streams, loop, stream, concurrent, times)
            gc.collect()
            logged_ns, control_ns = take_turns(logged, control, partial(logger.flush, DRAIN_S), slices)
            accepted = int(logger.stats()["accepted"])
    finally:
        loop.close()
    if accepted != each * (slices + 1):
        raise RuntimeError(f"{each * (slices + 1)} streams were logged, but {accepted} records accepted")
    return Sample(logged_ns / each, control_ns / each, accepted, place.arrived("request"))


STREAMS: Final = Quantity(
    name="streams",
    title="Concurrent streams",
    noun="concurrent streams",
    work=f"a stream of {CHUNKS} chunks",
    x_title="the number of streams",
    y_title="CPU time of a stream",
    words=(
        f"So many requests are open at once in one event loop; each streams {CHUNKS} chunks, one at a time, by turns "
        "with all others. The application is awaited in process, without a server, with the middleware in its default "
        "configuration and without it, slice by slice. Of more than 4,096 open requests the flight recorder holds the "
        "first 4,096, by default."
    ),
    control_title="without the middleware",
    places=(1, 10, 100, 1000, 5000),
    quick_places=(1, 50),
    measure=_of_streams,
    unit_title="stream",
)
