"""What one request takes in the queue, in segments, compressed, and of the listener's processor.

Run: python -m loadtests.cost.request_sizes (seconds). It prints the table of docs/sizing.md.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

import zstandard

from inference_logging import Config, InferenceLoggingMiddleware, Logger
from inference_logging.prove.bench.configurations_round import Kind, ignore
from loadtests import harness

REQUESTS: Final = 400
"""Enough for a compressor to find what repeats, few enough for a second."""
DEADLINE_S: Final = 30.0
QUEUE_BYTES: Final = 64 << 20
SHAPES: Final = {
    "GET": (0, 0, Config()),
    "stream of 64": (500, 64, Config()),
    "stream of 256": (500, 256, Config()),
    "stream of 256, texts kept": (500, 256, Config(capture_input="full", capture_output="full")),
    "stream of 256, each chunk a record": (500, 256, Config(chunks="events")),
}
"""Tokens of the prompt, tokens of the answer (a chunk each), configuration."""
_PARTS: Final = ("al", "be", "cor", "di", "el", "fan", "go", "hi", "in", "ju", "ka", "lo")
_WORDS: Final = tuple(f"{first}{middle}{last}" for first in _PARTS for middle in ("", *_PARTS) for last in _PARTS)
"""Made up, and taken with the frequencies of a language: the n-th as often as 1/n."""
_WEIGHTS: Final = tuple(accumulate(1 / (place + 1) for place in range(len(_WORDS))))
_RANDOM: Final = random.Random(1)

Message = MutableMapping[str, Any]


class Size(NamedTuple):
    """What one request takes."""

    queue_bytes: float
    segment_bytes: float
    compressed_bytes: float
    listener_cpu_s: float


def measure(config: Config, input_tokens: int, output_tokens: int, requests: int = REQUESTS) -> Size:
    """Record requests and return what one of them takes; the queue is read while no listener empties it."""
    with tempfile.TemporaryDirectory(prefix="inference-logging-") as folder:
        waiting = _recorded(config, input_tokens, output_tokens, requests, Path(folder) / "waiting", "external")
        written = _recorded(config, input_tokens, output_tokens, requests, Path(folder) / "written", "thread")
        # Records have a sequence; what frames them, and what the listener says of itself, has none.
        content = b"".join(line + b"\n" for line in harness.lines(Path(folder) / "written" / "segments", b'"seq":'))
    compressed = zstandard.ZstdCompressor(level=Config().compress_level).compress(content)
    amounts = (waiting["bytes_in_queue"], len(content), len(compressed), written["listener"]["listener_cpu_s"])
    return Size(*(amount / requests for amount in amounts))


def _recorded(
    config: Config, input_tokens: int, output_tokens: int, requests: int, folder: Path, listener: str
) -> dict[str, Any]:
    """Return the logger's counts of requests that went through the middleware."""
    places = {"directory": folder / "segments", "queue_directory": folder / "queues", "listener": listener}
    own = config.model_copy(update={**places, "queue_bytes": QUEUE_BYTES, "metrics_registry": "none"})
    with Logger(own) as logger:
        application = InferenceLoggingMiddleware(_answer(output_tokens), own)
        asyncio.run(_serve(application, input_tokens, output_tokens, requests))
        assert listener == "external" or logger.flush(DEADLINE_S)
        counts: dict[str, Any] = logger.stats()
    assert not counts["dropped"], counts
    return counts


def _answer(tokens: int) -> Any:
    """Return an application that streams an answer, as an inference server does, or answers a GET."""

    async def application(_scope: Message, receive: Callable[[], Awaitable[Message]], send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        kind = b"text/event-stream" if tokens else b"text/plain"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        for body in _bodies(tokens):
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n" if tokens else b"ok"})

    return application


def _bodies(tokens: int) -> Iterable[bytes]:
    head = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "model": "model"}
    for _ in range(tokens):
        yield _event({**head, "choices": [{"index": 0, "delta": {"content": _text(1)}, "finish_reason": None}]})
    if tokens:
        usage = {"prompt_tokens": 500, "completion_tokens": tokens}
        yield _event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": usage})


def _text(words: int) -> str:
    return " ".join(_RANDOM.choices(_WORDS, cum_weights=_WEIGHTS, k=words))


def _event(content: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


async def _serve(application: Any, input_tokens: int, output_tokens: int, requests: int) -> None:
    for _ in range(requests):
        asked = Kind("GET", "GET", "/items", b"", 1)
        if output_tokens:
            messages = [{"role": "user", "content": _text(input_tokens)}]
            request = {"model": "model", "stream": True, "max_tokens": output_tokens, "messages": messages}
            asked = Kind("stream", "POST", "/v1/chat/completions", json.dumps(request).encode(), 1)
        await application(asked.scope(), asked.receive, ignore)


def main() -> None:
    """Print the table."""
    print("| request | queue, B | segment, B | zstd, B | listener, µs |\n|---|---:|---:|---:|---:|")
    for name, (input_tokens, output_tokens, config) in SHAPES.items():
        size = measure(config, input_tokens, output_tokens)
        counts = f"{size.queue_bytes:,.0f} | {size.segment_bytes:,.0f} | {size.compressed_bytes:,.0f}"
        print(f"| {name} | {counts} | {size.listener_cpu_s * 1e6:,.1f} |")


if __name__ == "__main__":
    main()
