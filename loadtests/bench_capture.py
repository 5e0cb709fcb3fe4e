"""What the capture of texts costs: on the way of a request and in the listener, against the same with capture off.

A chat with a conversation of some 4 KB is answered by a stream of events as OpenAI's servers send them. The same
application stands twice behind the middleware, with a logger of its own each: once with the default (no text), once
with ``capture_input`` and ``capture_output``; blocks of requests take turns as in `bench_middleware`. *Listener* is the
CPU time of its thread per request: reading messages out of bodies, and writing them.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from contextlib import ExitStack
from operator import sub
from pathlib import Path
from statistics import median
from typing import Any, Final

import uvloop

from bench_loggers import memory_directory, our_config, scratch_directory
from bench_middleware import App, Receive, Send, paired_blocks_us
from bench_report import Report, middle, pairwise
from inference_logging import InferenceLoggingMiddleware, Logger

CHUNKS: Final = 256
ON: Final[dict[str, Any]] = {"capture_input": "truncated", "capture_output": "truncated"}
BODY: Final = json.dumps(
    {
        "model": "meta/llama-3-8b",
        "stream": True,
        "messages": [{"role": "user", "content": "What is the airspeed of an unladen swallow? " * 16}] * 6,
    }
).encode()
JSON: Final = (b"content-type", b"application/json")
REDACTED: Final = {"redact_patterns": ["email", "phone", "card", "key", "bearer"]}


VARIANTS: Final[dict[str, dict[str, Any]]] = {
    "off": {},
    "on": ON,
    "on, five patterns redacted": {**ON, **REDACTED},
}


async def chat(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Answer ``/stream/N`` with N events of a chat."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for number in range(int(scope["path"][8:])):
        await send({"type": "http.response.body", "body": EVENTS[number], "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})


def _event(number: int) -> bytes:
    choice = {"index": 0, "delta": {"content": f" word{number}"}, "logprobs": None, "finish_reason": None}
    chunk = {"id": "chatcmpl-4a7f3c1e5b1a4f0e", "object": "chat.completion.chunk", "created": 1763000000}
    return b"data: " + json.dumps({**chunk, "model": "meta/llama-3-8b", "choices": [choice]}).encode() + b"\n\n"


EVENTS: Final = [_event(number) for number in range(CHUNKS)]


def capture(quick: bool) -> Report:
    """Measure what the capture of texts adds."""
    report = Report(f"capture: a chat of {len(BODY)} bytes, answered by {CHUNKS} events of {len(EVENTS[0])} bytes")
    with scratch_directory(memory_directory()) as directory:
        uvloop.run(_measure(report, directory, 4 if quick else 200, 3 if quick else 10))
        for name, settings in VARIANTS.items():
            rounds = [
                _listener_us(directory / name / str(number), settings, quick) for number in range(2 if quick else 7)
            ]
            report.add(f"listener: per request, capture {name}", "µs", rounds)
    report.remarks.append("the spread of the first two is the middle half of the pairs")
    return report


async def _measure(report: Report, directory: Path, pairs: int, block: int) -> None:
    with ExitStack() as stack:
        apps = _logged(stack, directory / "off", {}), _logged(stack, directory / "with", ON)
        headers = ([JSON], [JSON])
        empty = pairwise(sub, *reversed(await paired_blocks_us(apps, "/stream/0", pairs, 10 * block, headers)))
        whole = pairwise(sub, *reversed(await paired_blocks_us(apps, f"/stream/{CHUNKS}", pairs, block, headers)))
    report.add("added per request", "µs", middle(empty))
    report.add("added per event", "µs", middle([(added - median(empty)) / CHUNKS for added in whole]))


def _logged(stack: ExitStack, directory: Path, settings: dict[str, Any]) -> App:
    config = stack.enter_context(our_config(directory, queue_bytes=1 << 26, **settings))
    stack.enter_context(Logger(config))
    return posted(InferenceLoggingMiddleware(chat, config))


def posted(app: App) -> App:
    """Return ``app`` with the chat as the body of each of its requests."""

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def post(scope: MutableMapping[str, Any], _receive: Receive, send: Send) -> None:
        await app({**scope, "method": "POST"}, receive, send)

    return post


def _listener_us(directory: Path, settings: dict[str, Any], quick: bool) -> float:
    requests = 5 if quick else 400
    with our_config(directory, queue_bytes=1 << 26, **settings) as config, Logger(config) as logger:
        app = posted(InferenceLoggingMiddleware(chat, config))
        before = logger.stats()["listener"]["listener_cpu_s"]
        uvloop.run(paired_blocks_us((app, app), f"/stream/{CHUNKS}", 1, requests // 4 + 1, ([JSON], [JSON])))
        logger.flush()
        taken_s: float = logger.stats()["listener"]["listener_cpu_s"] - before
        accepted: int = logger.stats()["accepted"]
        return taken_s / accepted * 1e6
