"""What recording takes of memory, disk, network and processor, from records that are made or read, and measured here.

Requests of a stated shape go through the middleware into a real queue. What they take there is read while no listener
runs; a second time a listener writes them, and what it wrote is measured again after compression and shipping. Lines
of segments that exist are measured in place of those; their queue and listener are then those of requests of the same
mean shape, in proportion to the bytes of their lines.

Internal: users import nothing from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import tempfile
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from inference_logging.asgi.middleware import InferenceLoggingMiddleware
from inference_logging.config import Config
from inference_logging.errors import InferenceLoggingError, MissingExtraError
from inference_logging.logger import Logger
from inference_logging.segments import Record, Segment, segments
from inference_logging.segments.reading import is_framing

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
_MOST_LINES_BYTES: Final = 64 << 20
"""Of segments that exist; the newest are taken."""
_BATCHES: Final = 100
"""Enough for a shipper to show what one costs."""
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


class PerRequest(NamedTuple):
    """What a destination takes for a request; ``stored_bytes``: None where the destination decides it."""

    sent_bytes: float
    stored_bytes: float | None
    shipper_cpu_s: float


class Measured(NamedTuple):
    """What one request takes: bytes in the queue, in segments and compressed; the listener's seconds of processor."""

    queue_bytes: float
    segment_bytes: float
    compressed_bytes: float
    listener_cpu_s: float
    records: float = 1.0
    """Its own, its chunks' and the application's."""
    shipped: Mapping[str, PerRequest] = {}
    """By kind of destination."""


class Lines(NamedTuple):
    """Lines of records as segments have them, how many are requests, and a segment's name and first line."""

    segment: str
    header: bytes
    lines: Sequence[bytes]
    requests: int

    def first(self, count: int) -> Lines:
        """Return the first lines: ``count``, or as many more as it takes to have a request among them."""
        requests = 0
        for at, line in enumerate(self.lines):
            if at >= count and requests:
                return self._replace(lines=self.lines[:at], requests=requests)
            requests += orjson.loads(line)["event_name"] == "request"
        return self


def measure(config: Config, shape: Shape, kinds: Collection[str] = (), requests_s: float = math.inf) -> Measured:
    """Record requests of ``shape`` as ``config`` says, in a temporary directory, and return what one of them takes.

    ``kinds``: destinations that they are shipped to; ``requests_s``: how many come in a second, which decides how many
    a shipper sends together.

    Raises ``InferenceLoggingError`` if not even one fits into a queue, or they are not written in time;
    ``MissingExtraError`` without zstandard (extra ``cli``) or what a kind needs (extras ``ship``, ``query``).
    """
    with tempfile.TemporaryDirectory(prefix="inference-logging-size-") as folder:
        waiting, requests = _recorded(config, shape, Path(folder) / "waiting", "external")
        queue_bytes = waiting["bytes_in_queue"] / requests
        written, requests = _recorded(config, shape, Path(folder) / "written", "thread")
        lines = _lines(Path(folder) / "written" / "segments", _PER_REQUEST)
    cpu_s = written["listener"]["listener_cpu_s"]
    return _measured(config, lines, kinds, requests_s)._replace(
        queue_bytes=queue_bytes, listener_cpu_s=cpu_s / requests
    )


def measure_segments(
    config: Config, directory: Path, kinds: Collection[str] = (), requests_s: float = math.inf
) -> tuple[Shape, Measured]:
    """Return the mean shape of the requests in ``directory``, and what one takes; the newest 64 MiB of lines count.

    Raises as ``measure``; also ``InferenceLoggingError`` if no request is there, ``CorruptLineError``.
    """
    lines = _lines(directory)
    if not lines.requests:
        raise InferenceLoggingError("there is no record of a request")
    shape = _shape(lines)
    made = measure(config, shape)
    found = _measured(config, lines, kinds, requests_s)
    share = found.segment_bytes / made.segment_bytes
    return shape, found._replace(queue_bytes=made.queue_bytes * share, listener_cpu_s=made.listener_cpu_s * share)


def _measured(config: Config, lines: Lines, kinds: Collection[str], requests_s: float) -> Measured:
    """Measure lines; what they took before they were lines is left to be filled in."""
    try:
        import zstandard  # an extra
    except ImportError:
        raise MissingExtraError("size", "zstandard", "cli") from None
    content = b"".join(lines.lines)
    compressed = zstandard.ZstdCompressor(level=config.compress_level).compress(content)
    shipped = {kind: _shipped(config, lines, kind, requests_s) for kind in kinds}
    each = 1 / lines.requests
    return Measured(0.0, len(content) * each, len(compressed) * each, 0.0, len(lines.lines) * each, shipped)


def _shipped(config: Config, lines: Lines, kind: str, requests_s: float) -> PerRequest:
    """Ship lines in batches of what comes while a shipper pauses, at most as many as it takes."""
    from inference_logging.shipping import measured  # only where something is shipped

    if kind in measured.IN_BATCHES:
        arriving = requests_s * config.ship_interval_s * len(lines.lines) / lines.requests
        batch = max(1, round(min(arriving, config.ship_batch_records)))
        config = config.model_copy(update={"ship_batch_records": batch})
        lines = lines.first(batch * _BATCHES)
    with tempfile.TemporaryDirectory(prefix="inference-logging-size-") as folder:
        (Path(folder) / lines.segment).write_bytes(lines.header + b"".join(lines.lines))
        sent, stored, cpu_s = measured.ship(Path(folder), kind, config)
    requests = lines.requests
    return PerRequest(sent / requests, None if stored is None else stored / requests, cpu_s / requests)


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


def _lines(directory: Path, events: Collection[str] | None = None) -> Lines:
    """Return the records of the newest segments: those of ``events``, or all."""
    found: list[bytes] = []
    requests, bytes_, name, header = 0, 0, "", b""
    for segment in reversed(segments(directory)):
        name = name or segment.name
        for line, record in _records(segment):
            if is_framing(record):
                header = header or line
            elif events is None or record["event_name"] in events:
                found.append(line)
                requests += record["event_name"] == "request"
                bytes_ += len(line)
        if bytes_ >= _MOST_LINES_BYTES:
            break
    return Lines(name, header, found, requests)


def _records(segment: Segment) -> Iterator[tuple[bytes, Record]]:
    """Return the lines that are records or framing; `verify` is for the others."""
    from inference_logging.shipping.s3.staging import whole_lines  # reads both forms of a segment

    for block in whole_lines(segment):
        for line in block.splitlines(keepends=True):
            with contextlib.suppress(orjson.JSONDecodeError):
                record = orjson.loads(line)
                if isinstance(record, dict) and "event_name" in record:
                    yield line, record


def _shape(lines: Lines) -> Shape:
    """Return the means of requests."""
    records = [record for record in map(orjson.loads, lines.lines) if record["event_name"] == "request"]

    def mean(name: str) -> int:
        values = [value for record in records if isinstance(value := record.get(name), int)]
        return round(sum(values) / len(records))

    others = round((len(lines.lines) - lines.requests) / lines.requests)
    return Shape(
        mean("gen_ai.usage.input_tokens"), mean("gen_ai.usage.output_tokens"), mean("chunks"), min(others, 10_000)
    )


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
