"""One round of the comparison of two configurations, in a process of its own: orders on stdin, figures in a file.

One process serves the same bare ASGI application without logging, with the middleware under the old configuration,
under the new one, and under the old one once more (the control). They take turns in random order within blocks, and
the CPU clock of the thread that serves is read between them. Each has a queue directory and a listener thread of its
own; after each batch of blocks all of them write what waits, so that nothing is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from inference_logging import InferenceLoggingMiddleware, Logger
from inference_logging.record.asgi.lifespan import ASGIApp, Message, Receive, Scope, Send
from inference_logging.record.config import FileConfig

NONE, OLD, NEW, CONTROL = ARMS = ("none", "old", "new", "control")
LOGGED: Final = (OLD, NEW, CONTROL)
CHUNKS: Final = 64
LEAST_BATCHES: Final = 12
_BLOCKS_OF_BATCH: Final = 8
_DRAIN_S: Final = 30.0

_ASKED: Final = (
    b'{"model":"tiny","messages":[{"role":"user","content":"What is on record?"}],"max_tokens":64,"stream":%s}'
)
_USAGE: Final = b'"usage":{"prompt_tokens":9,"completion_tokens":64,"total_tokens":73}'
ANSWER: Final = (
    b'{"id":"gen-1","object":"chat.completion","model":"tiny","choices":[{"index":0,"message":{"role":"assistant",'
    b'"content":"%s"},"finish_reason":"length"}],%s}' % (b"word " * 64, _USAGE)
)
CHUNK: Final = (
    b'data: {"id":"gen-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"w "}}]}\n\n'
)
_HEADERS: Final = (
    (b"host", b"127.0.0.1:8000"),
    (b"accept", b"application/json"),
    (b"accept-encoding", b"gzip, deflate"),
    (b"connection", b"keep-alive"),
    (b"user-agent", b"OpenAI/Python 1.50.0"),
)


@dataclass(frozen=True)
class Kind:
    """A kind of request: its name, method and path, its body, and how many of it one slice has."""

    name: str
    method: str
    path: str
    body: bytes
    requests: int

    def scope(self) -> dict[str, Any]:
        """Return a fresh scope of a request."""
        length = str(len(self.body)).encode()
        own = ((b"content-type", b"application/json"), (b"content-length", length)) if self.body else ()
        return {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1", "scheme": "http",
            "method": self.method, "path": self.path, "raw_path": self.path.encode(), "query_string": b"",
            "root_path": "", "headers": [*_HEADERS, *own], "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8000), "state": {},
        }  # fmt: skip

    async def receive(self) -> Message:
        """Return the whole body."""
        return {"type": "http.request", "body": self.body, "more_body": False}


async def ignore(_message: Message) -> None:
    """Take what an application sends."""


GET: Final = Kind("GET", "GET", "/v1/models", b"", 64)
POST: Final = Kind("POST of JSON", "POST", "/v1/chat/completions", _ASKED % b"false", 64)
STREAM: Final = Kind(f"stream of {CHUNKS} chunks", "POST", "/v1/chat/completions", _ASKED % b"true", 16)
KINDS: Final = (GET, POST, STREAM)


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a GET with a few bytes, a POST with an answer, or with a stream of chunks if its body asks for one."""
    body = (await receive())["body"] if scope["method"] == "POST" else b""
    is_stream = body.endswith(b"true}")
    kind = b"text/event-stream" if is_stream else b"application/json"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    if not is_stream:
        await send({"type": "http.response.body", "body": ANSWER if body else b'{"object":"list","data":[]}'})
        return
    for _ in range(CHUNKS):
        await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})


@dataclass
class Arm:
    """One of the contenders: its application, and its logger unless it is the one without."""

    app: ASGIApp
    logger: Logger | None = None

    def counts(self) -> tuple[int, int, float]:
        """Return records and bytes that its listener has written, and the listener's CPU time in µs."""
        if self.logger is None:
            return 0, 0, 0.0
        listener = self.logger.stats()["listener"]
        names = ("records_written", "bytes_written", "listener_cpu_s")
        records, size, cpu_s = (listener.get(name, 0) for name in names)
        return records, size, cpu_s * 1e6

    def dropped(self) -> int:
        """Return how many records it has refused."""
        return dropped(self.logger) if self.logger is not None else 0


def dropped(logger: Logger) -> int:
    """Return how many records a logger has refused, for all reasons and of all levels."""
    return sum(sum(levels.values()) for levels in logger.stats()["dropped"].values())


Batch = dict[str, dict[str, float | None]]
"""Per request of each arm: ``cpu_us`` and, but for ``none``, ``listener_us``, ``bytes`` and ``records``; and, unless
there are no records, ``listener_us_per_record``."""


async def measure(arms: Mapping[str, Arm], kind: Kind, seconds: float, draw: random.Random) -> list[Batch]:
    """Return the batches of one kind of request; the first one, which warms up, is left out."""
    batches: list[Batch] = []
    end, before = time.monotonic() + seconds, {}
    while len(batches) <= LEAST_BATCHES or time.monotonic() < end:
        before = {name: arm.counts() for name, arm in arms.items()}
        cpu_ns = dict.fromkeys(arms, 0)
        for _ in range(_BLOCKS_OF_BATCH):
            for name in draw.sample(ARMS, len(ARMS)):
                cpu_ns[name] += await _slice(arms[name].app, kind)
        _flush(arms, draw)
        requests = _BLOCKS_OF_BATCH * kind.requests
        batches.append({name: _figures(arm, cpu_ns[name], before[name], requests) for name, arm in arms.items()})
    return batches[1:]


def _flush(arms: Mapping[str, Arm], draw: random.Random) -> None:
    # Whose listener is awake first has more to do at once, so that is left to chance.
    for name in draw.sample(LOGGED, len(LOGGED)):
        arm = arms[name]
        if arm.logger is not None and not arm.logger.flush(_DRAIN_S):
            raise RuntimeError(f"the listener of the configuration {name!r} did not write within {_DRAIN_S:.0f} s")


def _figures(arm: Arm, cpu_ns: int, before: tuple[int, int, float], requests: int) -> dict[str, float | None]:
    cpu_us = cpu_ns / requests / 1e3
    if arm.logger is None:
        return {"cpu_us": cpu_us}
    records, size, listener_us = (now - then for now, then in zip(arm.counts(), before, strict=True))
    stored = 0 if arm.logger.config.sink == "null" else size
    return {
        "cpu_us": cpu_us,
        "listener_us": listener_us / requests,
        "listener_us_per_record": listener_us / records if records else None,
        "bytes": stored / requests,
        "records": records / requests,
    }


async def _slice(app: ASGIApp, kind: Kind) -> int:
    """Serve one slice; return the nanoseconds of CPU time of this thread."""
    scopes = [kind.scope() for _ in range(kind.requests)]
    start = time.thread_time_ns()
    for scope in scopes:
        await app(scope, kind.receive, ignore)
    return time.thread_time_ns() - start


async def run(order: Mapping[str, Any], application: ASGIApp) -> dict[str, Any]:
    """Measure every kind: ``order`` has seconds, seed, and file and further parameters of each logged arm."""
    draw = random.Random(order["seed"])
    with contextlib.ExitStack() as stack:
        arms = {NONE: Arm(application)}
        for name in LOGGED:
            config = FileConfig(config_file=order[name]["file"], **order[name]["parameters"])
            logger = stack.enter_context(Logger(config))
            arms[name] = Arm(InferenceLoggingMiddleware(application, config), logger)
        gc.collect()
        gc.freeze()
        kinds = {}
        for kind in KINDS:
            kinds[kind.name] = {"batches": await measure(arms, kind, order["seconds"] / len(KINDS), draw)}
        dropped = {name: arms[name].dropped() for name in LOGGED}
    return {"kinds": kinds, "dropped": dropped}


def main(application: ASGIApp = application) -> None:
    """Run one round on one core, if the system allows to choose it."""
    order = json.load(sys.stdin)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    Path(order["answer"]).write_text(json.dumps(asyncio.run(run(order, application))), encoding="utf-8")


if __name__ == "__main__":
    main()
