"""What each feature of the middleware adds to a request that has the middleware already: in process, bare ASGI.

Each figure compares the default configuration with the default and this one feature, over the same application and the
same request, in blocks that take turns as in `bench_middleware`. What is off is not in any figure here: it is in the
default, and so in the figures of `bench_middleware`. The last lines have every feature on at once: against the default,
and against the application alone. Each contender has a logger and a listener of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import sub
from pathlib import Path
from typing import Any, Final

import uvloop

from bench_loggers import memory_directory, our_config, scratch_directory
from bench_middleware import App, bare, paired_blocks_us
from bench_report import Report, middle, pairwise
from inference_logging import InferenceLoggingMiddleware, Logger

Headers = Sequence[tuple[bytes, bytes]]

IDS: Final = (
    (b"x-request-id", b"7d9f3c1e-5b1a-4f0e-9c58-3a1b2c3d4e5f"),
    (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03"),
)
SECOND: Final = "file:///a/second/directory"
STATE: Final = (*IDS, (b"tracestate", b"ot=th:0;rv:9b8233f7e3a151,vendor=t61rcWkgMzE"))


@dataclass(frozen=True)
class Feature:
    """One thing to switch on: parameters, and headers that only its requests have."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    headers: Headers = ()
    path: str = "/hello"
    common: Headers = ()
    """Headers that both sides get."""


ALL_ON: Final[dict[str, Any]] = {
    "trusted_callers": ["127.0.0.0/8"],
    "sample_routes": {"/v1/embeddings": 0.1, "/items/{id}": 0.5},
    "slow_s": 1.0,
    "budget_records_s": 1_000_000,
    "response_header": "X-Request-Id",
    "wrap_health_path": "/health",
    "metrics_path": "/metrics",
    "additional_sinks": [SECOND],
}

FEATURES: Final = (
    Feature("client sends X-Request-Id and traceparent", headers=IDS),
    Feature("client sends tracestate as well", headers=STATE),
    Feature("trusted caller, th and rv", {"trusted_callers": ["127.0.0.0/8"]}, common=STATE),
    Feature("sample_routes, two patterns", {"sample_routes": ALL_ON["sample_routes"]}),
    Feature("slow_s", {"slow_s": 1.0}),
    Feature("budget_records_s, within the budget", {"budget_records_s": 1_000_000}),
    Feature("budget_records_s, far above it", {"budget_records_s": 100}),
    Feature("sample_ratio 0.01", {"sample_ratio": 0.01}),
    Feature("skipped probe", {"skip_paths": ["/hello"]}),
    Feature("response_header", {"response_header": "X-Request-Id"}),
    Feature("wrap_health_path, another path", {"wrap_health_path": "/health"}),
    Feature("metrics_path, another path", {"metrics_path": "/metrics"}),
    Feature("additional_sinks, a second directory", {"additional_sinks": [SECOND]}),
    Feature("chunks: events, 64 chunks", {"chunks": "events"}, path="/stream/64"),
    Feature("all of these parameters on", ALL_ON, common=STATE),
)


def features(quick: bool) -> Report:
    """Measure what each feature adds to a request, in process."""
    report = Report("features: added to a request that is recorded already, in process, bare ASGI")
    with scratch_directory(memory_directory()) as directory:
        for number, feature in enumerate(FEATURES):
            place = directory / str(number)
            report.add(feature.name, "µs", middle(uvloop.run(_added_us(feature, place, quick))))
        everything = uvloop.run(_added_us(FEATURES[-1], directory / "all", quick, to_nothing=True))
        report.add("the middleware with all of these on, in all", "µs", middle(everything))
    report.remarks.append("the spread is the middle half of the pairs; below about 0.05 µs it is noise")
    return report


async def _added_us(feature: Feature, directory: Path, quick: bool, *, to_nothing: bool = False) -> list[float]:
    pairs, block = (4, 3) if quick else (200, 300 if feature.path == "/hello" else 40)
    with ExitStack() as stack:
        with_it = _logged(stack, directory / "with", _with_own_directory(feature.settings, directory))
        base: App = bare if to_nothing else _logged(stack, directory / "base", {})
        plain = () if to_nothing else feature.common
        headers = ([*plain], [*feature.common, *feature.headers])
        without, added = await paired_blocks_us((base, with_it), feature.path, pairs, block, headers)
    return pairwise(sub, added, without)


def _with_own_directory(settings: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Return the settings, with a directory of this run where one is named."""
    found = dict(settings)
    if found.get("additional_sinks") == [SECOND]:
        found["additional_sinks"] = [f"file://{directory / 'second'}"]
    return found


def _logged(stack: ExitStack, directory: Path, settings: Mapping[str, Any]) -> App:
    config = stack.enter_context(our_config(directory, **settings))
    stack.enter_context(Logger(config))
    return InferenceLoggingMiddleware(bare, config)
