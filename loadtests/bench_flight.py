"""What the flight recorder adds to a request and to a streamed chunk: with slots against ``in_flight_slots=0``.

The same application twice, each with the middleware and a logger of its own; blocks of requests take turns as in
`bench_middleware`, and the difference is taken within each pair of blocks. A chunk is the slope between a stream of 512
chunks and the same stream without any: a few nanoseconds are looked for, so the stream is long.
"""

from __future__ import annotations

from contextlib import ExitStack
from operator import sub
from pathlib import Path
from statistics import median
from typing import Any, Final

import uvloop

from bench_loggers import memory_directory, our_config, scratch_directory
from bench_middleware import App, Header, bare, fastapi, paired_blocks_us
from bench_report import Report, at_most, middle, pairwise
from inference_logging import InferenceLoggingMiddleware, Logger

CHUNKS: Final = 512
SLOTS: Final = 1024
IDS: Final[list[Header]] = [
    (b"x-request-id", b"7d9f3c1e-5b1a-4f0e-9c58-3a1b2c3d4e5f"),
    (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03"),
]


def flight(quick: bool) -> Report:
    """Measure what the slots of requests in flight cost."""
    report = Report(f"flight: what {SLOTS} slots add to the middleware, in process ({CHUNKS}-chunk stream)")
    with scratch_directory(memory_directory()) as directory:
        uvloop.run(_measure_all(report, directory, quick))
    report.remarks.append("the spread is the middle half of the pairs; below about 0.05 µs per request it is noise")
    return report


async def _measure_all(report: Report, directory: Path, quick: bool) -> None:
    pairs = 4 if quick else 400
    with ExitStack() as stack:
        apps = _logged(stack, directory / "without", 0, bare), _logged(stack, directory / "with", SLOTS, bare)
        for name, headers in [("", []), (", with X-Request-Id and traceparent", IDS)]:
            request = await _added_us(apps, "/hello", pairs, 3 if quick else 300, headers)
            report.add(f"bare ASGI: per request{name}", "µs", middle(request), at_most(0.3))
        empty = await _added_us(apps, "/stream/0", pairs, 3 if quick else 300, [])
        stream = await _added_us(apps, f"/stream/{CHUNKS}", pairs, 3 if quick else 20, [])
        chunk_ns = [(added - median(empty)) * 1000 / CHUNKS for added in stream]
        report.add("bare ASGI: per chunk", "ns", middle(chunk_ns), at_most(10.0))
        routed = _logged(stack, directory / "a", 0, fastapi()), _logged(stack, directory / "b", SLOTS, fastapi())
        request = await _added_us(routed, "/hello", pairs, 3 if quick else 40, [])
        report.add("FastAPI, where there is a route: per request", "µs", middle(request), at_most(0.3))


async def _added_us(apps: tuple[App, App], path: str, pairs: int, block: int, headers: list[Header]) -> list[float]:
    without, with_slots = await paired_blocks_us(apps, path, pairs, block, (headers, headers))
    return pairwise(sub, with_slots, without)


def _logged(stack: ExitStack, directory: Path, slots: int, app: Any) -> App:
    config = stack.enter_context(our_config(directory, in_flight_slots=slots))
    stack.enter_context(Logger(config))
    return InferenceLoggingMiddleware(app, config)
