"""What identity, resource and kept bodies add to a request that is recorded already: in process, by turns.

Each feature has three arms over the same application and the same requests: the parameters that it presupposes, the
same once more (the control), and the same with the feature. Blocks of requests of each arm take turns in random order,
and differences are taken within each turn. A figure is the mean of the differences without the tenth at either end,
with its interval of 95 %; the control's own figure, where the truth is 0, says how much of that is noise. Time is the
CPU time of the event loop's thread: what else runs on the machine counts only by what it takes from the caches. Each
arm has a logger and a listener of its own; what the listener does is not in the figures.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import sub
from pathlib import Path
from time import thread_time_ns
from typing import Any, Final

import uvloop

from bench_loggers import memory_directory, our_config, scratch_directory
from bench_middleware import App, Message, Receive, Send, scope_of
from bench_report import Goal, Report, at_most, pairwise
from inference_logging import InferenceLoggingMiddleware, Logger, current_request
from inference_logging.read.stats.interval import bootstrap, trimmed_mean

KEY: Final = bytes(range(32))
HEADERS: Final = [
    (b"x-tenant", b"acme"), (b"x-user", b"user-0123456789"), (b"x-session", b"0af7651916cd43dd"),
    (b"content-type", b"application/json"),
]  # fmt: skip
THREE: Final = ["x-tenant=tenant.id", "x-user=enduser.id", "x-session=gen_ai.conversation.id"]
ONE: Final = THREE[:1]
ABSENT: Final = ["x-other"]
RESOURCE: Final = {"service.version": "1.4", "k8s.pod.name": "chat-7f", "deployment.environment.name": "production"}
BODY: Final = (
    b'{"model":"m","messages":[{"role":"user","content":"'
    + b"word " * 100
    + b'"}],"user":"user-7","metadata":{"a":"b"},'
    b'"tools":[{"type":"function","function":{"name":"find","parameters":{"type":"object"}}}]}'
)
Arms = tuple[App, App, App]


@dataclass(frozen=True)
class Feature:
    """One thing to switch on, and what it presupposes."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    base: Mapping[str, Any] = field(default_factory=dict)
    goal: Goal | None = None
    method: str = "GET"
    sets: bool = False
    """The application sets two fields of its request."""


FEATURES: Final = (
    Feature("resource", {"resource": RESOURCE}),
    Feature("record_headers, none of them sent", {"record_headers": ABSENT}),
    Feature("record_headers, 1", {"record_headers": ONE}),
    Feature("record_headers, 3", {"record_headers": THREE}),
    Feature("resource and record_headers, 3", {"resource": RESOURCE, "record_headers": THREE}, goal=at_most(0.15)),
    Feature("record_headers, 1 as a hash", {"record_headers": ["authorization:hash=api_key.hash"]}),
    Feature("record_body_fields, 2", {"record_body_fields": ["user", "metadata"]}, method="POST"),
    Feature("capture_tools: full", {"capture_tools": "full"}, method="POST"),
    Feature("capture_body: raw", {"capture_body": "raw"}, method="POST"),
    Feature("current_request().set(), 2 fields", sets=True),
    Feature("resource_on_lines", {"resource": RESOURCE, "resource_on_lines": "on"}, {"resource": RESOURCE}),
    Feature("metrics_tenants", {"record_headers": ONE, "metrics_tenants": ["acme"]}, base={"record_headers": ONE}),
)


def identity(quick: bool) -> Report:
    """Measure what each of these features adds to a request, in process."""
    report = Report("identity: added to a request that is recorded already, in process, bare ASGI, by turns")
    noise: list[float] = []
    with scratch_directory(memory_directory()) as directory:
        (directory / "key").write_bytes(KEY)
        for number, feature in enumerate(FEATURES):
            base, control, added = uvloop.run(_taken_us(feature, directory, directory / str(number), quick))
            report.add(feature.name, "µs", _interval(pairwise(sub, added, base)), feature.goal)
            noise += pairwise(sub, control, base)
    report.add("control: the same twice, over all of these", "µs", _interval(noise))
    report.remarks.append(
        "the spread is the interval of 95 %; a figure within the control's own distance from 0 is noise"
    )
    return report


def _interval(values: Sequence[float]) -> list[float]:
    found = bootstrap(values, trimmed_mean)
    return [found.low, found.value, found.high]


async def _taken_us(feature: Feature, place: Path, directory: Path, quick: bool) -> tuple[list[float], ...]:
    """Return µs per request of each arm, turn by turn."""
    turns, block = (4, 3) if quick else (600, 250)
    taken: tuple[list[float], ...] = ([], [], [])
    with ExitStack() as stack:
        arms = _arms(stack, feature, place, directory)
        draw = random.Random(directory.name)
        for _ in range(turns + 1):
            for arm in draw.sample(range(len(arms)), len(arms)):
                taken[arm].append(await _block_us(arms[arm], feature.method, block))
    return tuple(values[1:] for values in taken)  # the first turn builds and warms


def _arms(stack: ExitStack, feature: Feature, place: Path, directory: Path) -> Arms:
    def logged(name: str, app: App, settings: Mapping[str, Any]) -> App:
        given = {"capture_hash_key_file": place / "key", **settings}
        config = stack.enter_context(our_config(directory / name, **given))
        stack.enter_context(Logger(config))
        return InferenceLoggingMiddleware(app, config)

    return (
        logged("base", answer, feature.base),
        logged("control", answer, feature.base),
        logged("with", setting if feature.sets else answer, {**feature.base, **feature.settings}),
    )


async def answer(_scope: Message, receive: Receive, send: Send) -> None:
    """Read the body and answer with a few bytes."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def setting(scope: Message, receive: Receive, send: Send) -> None:
    """Do the same, and set two fields of the request."""
    request = current_request()
    if request is not None:
        request.set(**{"tenant.id": "acme"}, retries=2)
    await answer(scope, receive, send)


async def _block_us(app: App, method: str, block: int) -> float:
    body = BODY if method == "POST" else b""

    async def send(message: Message) -> None:
        pass

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    scopes = [{**scope_of("/v1/chat/completions", HEADERS), "method": method} for _ in range(block)]
    start = thread_time_ns()
    for scope in scopes:
        await app(scope, receive, send)
    return (thread_time_ns() - start) / block / 1000
