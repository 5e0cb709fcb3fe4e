"""The example with a route that fails and one that makes audit records, and an engine behind it.

The engine has vLLM's classes in name only, and what they would report of its requests and of itself.
"""

from __future__ import annotations

import importlib
import itertools
import random
import sys
import time
import types
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.middleware import Middleware

from app import app, log
from tests.kit import fake_vllm
from tests.kit.fake_vllm import IterationStats, OutputProcessor, RequestResponseMetadata, SchedulerStats, UsageInfo
from tests.kit.signatures import App, Message, Receive, Send

_PROTOCOLS = {
    "vllm.entrypoints.generate.base.protocol": RequestResponseMetadata,
    "vllm.entrypoints.serve.engine.protocol": UsageInfo,
}


def add_engine(app: FastAPI) -> None:
    """Put an engine behind an application that has the middleware."""
    fake_vllm.install(pytest.MonkeyPatch())
    for name, kind in _PROTOCOLS.items():
        sys.modules[name] = types.ModuleType(name)
        setattr(sys.modules[name], kind.__name__, kind)
    module = importlib.import_module("inference_logging.record.integrations.vllm.engine")
    stat_logger = module.EngineStatLogger(SimpleNamespace(speculative_config=None), [0])
    manager, processor = SimpleNamespace(stat_loggers=[stat_logger]), OutputProcessor()
    app.state.engine_client = SimpleNamespace(logger_manager=manager, output_processor=processor)
    # The innermost: it has ended before the middleware looks.
    app.user_middleware.append(Middleware(Engine, stat_logger=stat_logger, processor=processor))


class Engine:
    """Works on one request after the other, so it says, each until the last part of its answer."""

    def __init__(self, app: App, stat_logger: Any, processor: OutputProcessor) -> None:
        """Report to a stat logger, and let a processor know of each request."""
        self._app, self._stat_logger, self._processor = app, stat_logger, processor
        self._names = (f"cmpl-{number}" for number in itertools.count())
        self._running = 0

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if not scope.get("path", "").startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        name, begun = next(self._names), time.monotonic()
        scope.setdefault("state", {})["request_metadata"] = RequestResponseMetadata(request_id=name)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                self._report(self._processor.end(name, **_times(time.monotonic() - begun)))
            await send(message)

        self._running += 1
        self._processor.run(name, name)
        try:
            self._report(None)
            await self._app(scope, receive, sending)
        finally:
            self._running -= 1
            if name in self._processor.request_states:
                self._processor.abort_requests([name], internal=True)

    def _report(self, iteration: IterationStats | None) -> None:
        waiting = max(0, self._running - 1)
        stats = SchedulerStats(self._running - waiting, waiting, kv_cache_usage=min(1.0, self._running / 8))
        self._stat_logger.record(stats, iteration)


def _times(took_s: float) -> dict[str, float]:
    """Return the times of a request that has ended: in the queue, with its prompt and with its answer."""
    queued = took_s * random.uniform(0.05, 0.3)
    prefill = took_s * random.uniform(0.05, 0.2)
    return {
        "e2e_latency": took_s,
        "queued_time": queued,
        "prefill_time": prefill,
        "decode_time": took_s - queued - prefill,
    }


__all__ = ["app"]


@app.post("/v1/responses")
async def fail() -> None:
    """Fail, as an engine that is out of memory."""
    raise MemoryError("as asked for")


@app.post("/audited")
async def audited() -> None:
    """Make an audit record."""
    await log.audit("policy.decision", user="u")


add_engine(app)
