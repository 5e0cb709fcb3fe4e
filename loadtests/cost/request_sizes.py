"""What one request takes in the queue, in segments, compressed, and of the listener's processor.

Run: python -m loadtests.cost.request_sizes (seconds). It prints the table of docs/sizing.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import zstandard

from inference_logging import Config, InferenceLoggingMiddleware, Logger
from inference_logging.read.segments.reading import is_framing
from inference_logging.segments import segments
from inference_logging.ship.kafka import KafkaDestination
from inference_logging.ship.s3.staging import whole_lines
from inference_logging.ship.shipper import Shipper
from inference_logging.ship.source import Source

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
_MOST_LINES_BYTES: Final = 64 << 20
_STATISTICS_MS: Final = 20

Message = MutableMapping[str, Any]


class Size(NamedTuple):
    """What one request takes."""

    queue_bytes: float
    segment_bytes: float
    compressed_bytes: float
    listener_cpu_s: float
    records: float


def measure(config: Config, input_tokens: int, output_tokens: int) -> Size:
    """Record requests and return what one of them takes; the queue is read while no listener empties it."""
    with tempfile.TemporaryDirectory(prefix="inference-logging-") as folder:
        waiting = _recorded(config, input_tokens, output_tokens, Path(folder) / "waiting", "external")
        written = _recorded(config, input_tokens, output_tokens, Path(folder) / "written", "thread")
        lines, _, _ = _lines(Path(folder) / "written" / "segments")
    size = _of_lines([line for line in lines if orjson.loads(line)["event_name"] != "process.started"], REQUESTS)
    cpu_s = written["listener"]["listener_cpu_s"] / REQUESTS
    return size._replace(queue_bytes=waiting["bytes_in_queue"] / REQUESTS, listener_cpu_s=cpu_s)


def measure_segments(directory: Path, requests_s: float) -> dict[str, Any]:
    """Return what a request of existing segments takes, and what a shipper to Kafka sends for it.

    Queue and listener are those of requests of the same mean shape, in proportion to the bytes of their lines.
    """
    lines, name, header = _lines(directory)
    records = [record for record in map(orjson.loads, lines) if record["event_name"] == "request"]
    tokens = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
    shape = [round(sum(record.get(key, 0) for record in records) / len(records)) for key in tokens]
    made, found = measure(Config(), *shape), _of_lines(lines, len(records))
    share = found.segment_bytes / made.segment_bytes
    found = found._replace(queue_bytes=made.queue_bytes * share, listener_cpu_s=made.listener_cpu_s * share)
    config = Config()
    batch = max(1, round(min(requests_s * config.ship_interval_s * found.records, config.ship_batch_records)))
    config = config.model_copy(update={"ship_batch_records": batch})
    with tempfile.TemporaryDirectory(prefix="inference-logging-") as folder:
        (Path(folder) / name).write_bytes(header + b"".join(lines))
        sent_bytes, cpu_s = _to_kafka(Path(folder), config)
    kafka = {"sent_bytes": sent_bytes / len(records), "shipper_cpu_s": cpu_s / len(records)}
    return {"shape": dict(zip(tokens, shape, strict=True)), **found._asdict(), "shipped": {"kafka": kafka}}


def _of_lines(lines: Sequence[bytes], requests: int) -> Size:
    content = b"".join(lines)
    compressed = zstandard.ZstdCompressor(level=Config().compress_level).compress(content)
    return Size(0.0, len(content) / requests, len(compressed) / requests, 0.0, len(lines) / requests)


def _lines(directory: Path) -> tuple[list[bytes], str, bytes]:
    """Return the newest lines of records, at most 64 MiB, a segment's name and its first line."""
    found: list[bytes] = []
    name, header = "", b""
    for segment in reversed(segments(directory)):
        name = name or segment.name
        for line in (line for block in whole_lines(segment) for line in block.splitlines(keepends=True)):
            if not is_framing(orjson.loads(line)):
                found.append(line)
            header = header or line
        if sum(map(len, found)) >= _MOST_LINES_BYTES:
            break
    return found, name, header


def _recorded(config: Config, input_tokens: int, output_tokens: int, folder: Path, listener: str) -> dict[str, Any]:
    """Return the logger's counts of requests that went through the middleware."""
    places = {"directory": folder / "segments", "queue_directory": folder / "queues", "listener": listener}
    own = config.model_copy(update={**places, "queue_bytes": QUEUE_BYTES, "metrics_registry": "none"})
    with Logger(own) as logger:
        asyncio.run(_serve(InferenceLoggingMiddleware(_answer(output_tokens), own), input_tokens, output_tokens))
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


async def _serve(application: Any, input_tokens: int, output_tokens: int) -> None:
    async def send(_message: Message) -> None:
        pass

    for number in range(REQUESTS):
        messages = [{"role": "user", "content": _text(input_tokens)}]
        request = {"model": "model", "stream": True, "max_tokens": output_tokens, "messages": messages}
        body = json.dumps(request).encode() if output_tokens else b""

        async def receive(body: bytes = body) -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        path = "/v1/chat/completions" if output_tokens else "/items"
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await application({
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1",
            "method": "POST" if output_tokens else "GET", "scheme": "http", "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": headers if output_tokens else [],
            "client": ("192.0.2.1", 1024 + number), "server": ("192.0.2.2", 8000),
        }, receive, send)  # fmt: skip


def _to_kafka(directory: Path, config: Config) -> tuple[int, float]:
    """Ship segments to librdkafka's mock broker; return the bytes sent, and the seconds of both."""
    seen: dict[str, Any] = {}
    mock: dict[str, Any] = {
        "test.mock.num.brokers": "1", "statistics.interval.ms": str(_STATISTICS_MS),
        "stats_cb": lambda statistics: seen.update(orjson.loads(statistics)),
    }  # fmt: skip
    destination = _Kept("127.0.0.1:9", "sizes", timeout_s=DEADLINE_S, properties=mock)
    shipper = Shipper(Source(directory, "sizes", once=True), destination, config, report=sys.exit)
    with contextlib.closing(shipper):
        begun_s = time.process_time()
        shipper.run(threading.Event(), once=True)
        cpu_s = time.process_time() - begun_s
    while seen.get("txmsgs", 0) < destination.lines:
        destination.send([])  # librdkafka calls back while it is asked for something
        time.sleep(_STATISTICS_MS / 1000)
    KafkaDestination.close(destination)
    return int(seen["tx_bytes"]), cpu_s


class _Kept(KafkaDestination):
    """Stays open at the shipper's end, until the broker's counts are there."""

    lines = 0

    def send(self, lines: Any) -> Any:
        """Count what is handed over."""
        self.lines += len(lines)
        return super().send(lines)

    def close(self) -> None:
        """Do nothing yet."""


def main() -> None:
    """Print the table."""
    print("| request | queue, B | segment, B | zstd, B | listener, µs |\n|---|---:|---:|---:|---:|")
    for name, (input_tokens, output_tokens, config) in SHAPES.items():
        size = measure(config, input_tokens, output_tokens)
        counts = f"{size.queue_bytes:,.0f} | {size.segment_bytes:,.0f} | {size.compressed_bytes:,.0f}"
        print(f"| {name} | {counts} | {size.listener_cpu_s * 1e6:,.1f} |")


if __name__ == "__main__":
    main()
