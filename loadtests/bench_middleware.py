"""What the middleware adds to a request and to a streamed chunk, in process: no server, no socket.

A minimal driver on uvloop awaits the application, request after request, with a ``send`` that does nothing and a fresh
scope with the headers of an ordinary client. Blocks of requests with and without the middleware take turns (which of
them comes first alternates), and the difference is taken within each pair of blocks, then the median over all pairs.
The listener runs meanwhile, on whichever core the kernel gives it; what it does is not in the figures. Python's garbage
collector runs as always.

*Per request*: a response of a start and one body. *Per chunk*: the slope between a stream of 64 chunks and the same
stream without any, so what a stream costs once is not in it. Chunks are server-sent events as an inference server sends
them; the configuration is the default, with the timeline on. The applications: a bare ASGI function, where nothing
hides the cost, and FastAPI with ``add_middleware``. ``BaseHTTPMiddleware`` with a function that only passes the request
on stands beside them for scale.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from operator import sub
from statistics import median
from time import perf_counter_ns
from typing import Any

import uvloop
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request

from bench_loggers import our_config, scratch_directory
from bench_report import Goal, Report, at_most, middle, pairwise
from inference_logging import Config, InferenceLoggingMiddleware, Logger
from instruction_requests import CLIENT_HEADERS

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
Pair = tuple[list[float], list[float]]
Header = tuple[bytes, bytes]

CHUNKS = 64
CHUNK = b'data: {"id":"gen-1","object":"text_completion","choices":[{"index":0,"text":"word "}]}\n\n'
PATHS = {"request": "/hello", "empty stream": "/stream/0", "stream": f"/stream/{CHUNKS}"}


async def bare(scope: MutableMapping[str, Any], _receive: Receive, send: Send) -> None:
    """Answer ``/hello`` with a few bytes and ``/stream/N`` with N chunks; the smallest ASGI application that does."""
    path: str = scope["path"]
    if path == "/hello":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"ok"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for _ in range(int(path[8:])):
        await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def fastapi() -> FastAPI:
    """Return a FastAPI application with the same two routes."""
    app = FastAPI()

    @app.get("/hello")
    async def hello() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @app.get("/stream/{count}")
    async def stream(count: int) -> StreamingResponse:
        async def chunks() -> Any:
            for _ in range(count):
                yield CHUNK

        return StreamingResponse(chunks(), media_type="text/event-stream")

    return app


async def pass_on(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Do nothing: what a ``BaseHTTPMiddleware`` costs before it does anything."""
    return await call_next(request)


def middleware(quick: bool) -> Report:
    """Measure what the middleware adds, in process."""
    report = Report(f"middleware: added per request and per chunk, in process, no server ({CHUNKS}-chunk stream)")
    with scratch_directory() as directory, our_config(directory) as config, Logger(config) as logger:
        served = uvloop.run(_measure_all(report, config, quick))
        if not logger.flush() or logger.stats()["accepted"] != served:
            raise RuntimeError(f"{served} requests were served, but the books say {logger.stats()}")
    report.remarks.append("the spread is the middle half of the pairs; one record arrived per request")
    return report


async def _measure_all(report: Report, config: Config, quick: bool) -> int:
    scale = 0.02 if quick else 1.0  # of the number of blocks and of the requests in each
    with_ours, with_base = fastapi(), fastapi()
    with_ours.add_middleware(InferenceLoggingMiddleware, config=config)
    with_base.add_middleware(BaseHTTPMiddleware, dispatch=pass_on)
    goals = (at_most(2.0), at_most(0.12))
    served = await _compare(report, "bare ASGI", (bare, InferenceLoggingMiddleware(bare, config)), 300, scale, goals)
    served += await _compare(report, "FastAPI", (fastapi(), with_ours), 40, scale, goals)
    await _compare(report, "FastAPI, BaseHTTPMiddleware", (fastapi(), with_base), 10, scale, (None, None))
    return served


async def _compare(
    report: Report, name: str, apps: tuple[App, App], block: int, scale: float, goals: tuple[Goal | None, Goal | None]
) -> int:
    pairs = max(4, int(300 * scale))
    block = max(3, int(block * scale))
    plain, added = {}, {}
    for kind, path in PATHS.items():
        without, logged = await paired_blocks_us(apps, path, pairs, block)
        plain[kind], added[kind] = median(without), pairwise(sub, logged, without)
    per_chunk = [value / CHUNKS for value in pairwise(sub, added["stream"], added["empty stream"])]
    report.add(f"{name}: per request (of {plain['request']:.1f} µs)", "µs", middle(added["request"]), goals[0])
    report.add(f"{name}: per chunk", "µs", middle(per_chunk), goals[1])
    report.add(f"{name}: per stream (of {plain['stream']:.0f} µs)", "µs", middle(added["stream"]))
    return len(PATHS) * (pairs + 1) * block


async def paired_blocks_us(
    apps: tuple[App, App],
    path: str,
    pairs: int,
    block: int,
    headers: tuple[list[Header], list[Header]] = ([], []),
) -> Pair:
    """Return µs per request of two applications, block by block in turns; ``headers`` are added to each one's own."""
    taken: Pair = ([], [])
    for app, own in zip(apps, headers, strict=True):
        await _block_us(app, path, block, own)  # builds the middleware stack, warms caches
    for number in range(pairs):
        for which in (0, 1) if number % 2 else (1, 0):
            taken[which].append(await _block_us(apps[which], path, block, headers[which]))
    return taken


async def _block_us(app: App, path: str, block: int, headers: list[Header]) -> float:
    async def send(message: Message) -> None:
        pass

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    scopes = [scope_of(path, headers) for _ in range(block)]
    start = perf_counter_ns()
    for scope in scopes:
        await app(scope, receive, send)
    return (perf_counter_ns() - start) / block / 1000


def scope_of(path: str, headers: list[Header]) -> dict[str, Any]:
    """Return a fresh scope of an ordinary client's request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [*CLIENT_HEADERS, *headers],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }
