"""What recording takes of memory, disk, network and processor, from records that are made and measured here.

Requests of a stated shape go through the middleware into a real queue. What they take there is read while no listener
runs; a second time a listener writes them, and what it wrote is measured again after compression.

Internal: users import nothing from here.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Awaitable, Callable, MutableMapping
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from inference_logging.asgi.middleware import InferenceLoggingMiddleware
from inference_logging.config import Config
from inference_logging.errors import InferenceLoggingError, MissingExtraError
from inference_logging.logger import Logger
from inference_logging.segments import segments

_REQUESTS: Final = 400
"""Enough for a compressor to find what repeats, few enough for a second."""
_AT_ONCE: Final = 20
_QUEUE_BYTES: Final = 64 << 20
_DEADLINE_S: Final = 30.0
_PARTS: Final = ("al", "be", "cor", "di", "el", "fan", "go", "hi", "in", "ju", "ka", "lo")
_ALONE: Final = {
    "enabled": "on", "sink": "file", "additional_sinks": (), "fallback": "none", "compress": "off", "audit": "off",
    "sample_ratio": 1.0, "sample_routes": {}, "budget_records_s": 0, "queue_bytes": _QUEUE_BYTES, "retention_s": 0.0,
    "quota_bytes": 0, "overflow_info_ratio": 1.0, "metrics_registry": "none",
}  # fmt: skip
"""Every request is recorded, in one place, whatever the configuration says of shares and places."""
_PER_REQUEST: Final = frozenset({"request", "request.chunk", "application.step"})
_WORDS: Final = tuple(f"{first}{middle}{last}" for first in _PARTS for middle in ("", *_PARTS) for last in _PARTS)
"""Made up, and taken with the frequencies of a language: the n-th as often as 1/n."""

_WEIGHTS: Final = tuple(accumulate(1 / (place + 1) for place in range(len(_WORDS))))
_RANDOM: Final = random.Random(1)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Shape(NamedTuple):
    """One request: tokens read and generated, chunks of its stream, application records made inside it."""

    input_tokens: int
    output_tokens: int
    chunks: int
    records: int


class Measured(NamedTuple):
    """What one request takes: bytes in the queue, in segments and compressed; the listener's seconds of processor."""

    queue_bytes: float
    segment_bytes: float
    compressed_bytes: float
    listener_cpu_s: float


def measure(config: Config, shape: Shape) -> Measured:
    """Record requests of ``shape`` as ``config`` says, in a temporary directory, and return what one of them takes.

    Raises ``InferenceLoggingError`` if not even one fits into a queue, or they are not written in time;
    ``MissingExtraError`` without zstandard (extra ``cli``).
    """
    try:
        import zstandard  # an extra
    except ImportError:
        raise MissingExtraError("size", "zstandard", "cli") from None
    with tempfile.TemporaryDirectory(prefix="inference-logging-size-") as folder:
        waiting, requests = _recorded(config, shape, Path(folder) / "waiting", "external")
        queue_bytes = waiting["bytes_in_queue"] / requests
        written, requests = _recorded(config, shape, Path(folder) / "written", "thread")
        lines = _lines(Path(folder) / "written" / "segments")
        compressed = zstandard.ZstdCompressor(level=config.compress_level).compress(lines)
        cpu_s = written["listener"]["listener_cpu_s"]
        return Measured(queue_bytes, len(lines) / requests, len(compressed) / requests, cpu_s / requests)


def _recorded(config: Config, shape: Shape, folder: Path, listener: str) -> tuple[dict[str, Any], int]:
    """Return the logger's counts, and how many requests were recorded until enough were or its queue was half full."""
    places = {"directory": folder / "segments", "queue_directory": folder / "queues", "listener": listener}
    own = config.model_copy(update={**_ALONE, **places})
    with Logger(own) as logger:
        application = InferenceLoggingMiddleware(_application(shape, logger), own)
        requests = 0
        while requests < _REQUESTS and logger.stats()["bytes_in_queue"] < _QUEUE_BYTES // 2:
            asyncio.run(_serve(application, shape, _AT_ONCE))
            requests += _AT_ONCE
            if listener == "thread" and not logger.flush(_DEADLINE_S):
                raise InferenceLoggingError(f"the records are not written after {_DEADLINE_S} s")
        counts: dict[str, Any] = logger.stats()
    if counts["dropped"]:
        raise InferenceLoggingError(f"{_AT_ONCE} such requests do not fit into a queue of {_QUEUE_BYTES} bytes")
    return counts, requests


def _lines(directory: Path) -> bytes:
    """Return all lines but those that come once a segment or process."""
    lines = (line for segment in segments(directory) for line in segment.path.read_bytes().splitlines(keepends=True))
    return b"".join(line for line in lines if orjson.loads(line)["event_name"] in _PER_REQUEST)


def _application(shape: Shape, logger: Logger) -> Any:
    """Return an application that reads a chat request and streams its answer, as an inference server does."""
    record = logger.event("application.step", ["step", "message"])
    head = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "model": "model"}
    per_chunk = max(1, shape.output_tokens // max(1, shape.chunks))
    total = {"prompt_tokens": shape.input_tokens, "completion_tokens": shape.output_tokens}
    end = _event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": total})

    async def application(_scope: Message, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        for number in range(shape.records):
            record(number, _text(8))
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(shape.chunks):
            choices = [{"index": 0, "delta": {"content": _text(per_chunk)}}]
            await send({"type": "http.response.body", "body": _event({**head, "choices": choices}), "more_body": True})
        await send({"type": "http.response.body", "body": end + b"data: [DONE]\n\n"})

    return application


def _text(words: int) -> str:
    return " ".join(_RANDOM.choices(_WORDS, cum_weights=_WEIGHTS, k=words))


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


async def _serve(application: Any, shape: Shape, requests: int) -> None:
    async def send(_message: Message) -> None:
        pass

    for number in range(requests):
        messages = [{"role": "user", "content": _text(shape.input_tokens)}]
        request = {"model": "model", "stream": True, "max_tokens": shape.output_tokens, "messages": messages}
        body = json.dumps(request).encode()

        async def receive(body: bytes = body) -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await application({
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": "/v1/chat/completions", "raw_path": b"/v1/chat/completions", "query_string": b"",
            "headers": headers, "client": ("192.0.2.1", 1024 + number), "server": ("192.0.2.2", 8000),
        }, receive, send)  # fmt: skip
