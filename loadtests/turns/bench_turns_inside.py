"""The turns without a server: applications are awaited with hand-made scopes, in processes on one core.

What the scopes cost is not in the slices. The logger writes what waits in its queue between blocks, so that no record
is dropped however quick the application is; most of it the listener has written by then, beside the slices, on the same
core.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Any, Final

import uvloop
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, StreamingResponse

from inference_logging import InferenceLoggingMiddleware, Logger
from loadtests.cost.bench_loggers import DRAIN_S, our_config, scratch_directory
from loadtests.instructions.instruction_requests import CHUNK, CLIENT_HEADERS
from loadtests.turns.bench_turns_report import LEAST_BLOCKS, Case, ChunkRow, Row
from loadtests.turns.bench_turns_slices import LOGGED, App, Message, Receive, Send, Slices

CHUNKS: Final = 64
HELLO: Final = "/hello"
STREAM: Final = f"/stream/{CHUNKS}"
MOST_CHUNK_US: Final = 0.12


async def bare(scope: Message, _receive: Receive, send: Send) -> None:
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


APPS: Final[dict[str, Callable[[], Any]]] = {"bare ASGI": lambda: bare, "FastAPI": fastapi}
_SLICES_AT_ONCE: Final = 48

Print = Callable[[Row | ChunkRow], None]


def inside(limit_s: float, processes: int, show: Print) -> list[Row | ChunkRow]:
    """Measure a bare ASGI application and FastAPI, each request and each chunk, within ``limit_s`` a row."""
    rows: list[Row | ChunkRow] = []
    for name in APPS:
        request = _row(Case(f"in process, {name}", most_added_us=2.0), name, HELLO, limit_s, processes)
        show(request)
        case = Case(f"in process, {name}, stream of {CHUNKS}", 16, most_added_us=2.0 + CHUNKS * MOST_CHUNK_US)
        stream = _row(case, name, STREAM, limit_s, processes)
        show(stream)
        chunk = ChunkRow.of(f"in process, {name}, one chunk", request, stream, CHUNKS, MOST_CHUNK_US)
        show(chunk)
        rows += request, stream, chunk
    return rows


def _row(case: Case, name: str, path: str, limit_s: float, processes: int) -> Row:
    if processes == 1:
        return _measure(case, name, path, limit_s)
    rows: list[Row] = []
    for _ in range(processes):
        with multiprocessing.get_context("spawn").Pool(1) as process:
            rows.append(process.apply(_measure, (case, name, path, limit_s / processes)))
    return Row.across(rows)


def _measure(case: Case, name: str, path: str, limit_s: float) -> Row:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with (
            scratch_directory() as directory,
            our_config(directory, server_record="off") as config,
            Logger(config) as logger,
        ):
            app = APPS[name]()
            arms: tuple[App, ...] = (app, InferenceLoggingMiddleware(app, config), app)
            return uvloop.run(_take_turns(case, arms, path, logger, limit_s))
    finally:
        os.sched_setaffinity(0, cores)


async def _take_turns(case: Case, arms: tuple[App, ...], path: str, logger: Logger, limit_s: float) -> Row:
    slices, logged = Slices(len(arms)), 0
    gc.collect()
    gc.freeze()
    start, look_s = time.monotonic(), min(1.0, limit_s)
    while True:
        for _ in range(_SLICES_AT_ONCE):
            arm = await _slice(slices, arms, path, case.requests)
            logged += case.requests * (arm == LOGGED)
        logger.flush(DRAIN_S)
        passed_s = time.monotonic() - start
        if passed_s < look_s or len(slices.blocks) < LEAST_BLOCKS:
            continue
        row = Row.of(case, slices.blocks, logger.stats()["listener"]["listener_cpu_s"] / logged * 1e6)
        if row.is_precise or passed_s >= limit_s:
            break
        look_s = min(passed_s * 1.3, limit_s)
    if not (books := logger.stats())["accepted"] == books["written"] == logged:
        raise RuntimeError(f"{logged} requests were served by the logged arm, but the books say {books}")
    return row


async def _slice(slices: Slices, arms: tuple[App, ...], path: str, requests: int) -> int:
    scopes = [_scope_of(path) for _ in range(requests)]
    arm = slices.begin()
    app = arms[arm]
    for scope in scopes:
        await app(scope, _receive, _send)
    slices.end()
    return arm


async def _send(message: Message) -> None:
    pass


async def _receive() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def _scope_of(path: str) -> dict[str, Any]:
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
        "headers": list(CLIENT_HEADERS),
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }
