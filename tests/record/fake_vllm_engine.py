"""Engine records of a vLLM that is not there: its stat logger as vLLM makes it, attached to a client of `fake_vllm`."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from inference_logging import InferenceLoggingMiddleware
from inference_logging._native import RequestIds
from inference_logging.record.context import REQUEST
from inference_logging.testing import Records, capture_records
from tests.kit import fake_vllm
from tests.kit.fake_vllm import AsyncLLM, FinishedRequestStats, IterationStats, OutputProcessor
from tests.kit.signatures import Receive, Send
from tests.kit.support import Client, http_scope, serve_one

Timers = list[tuple[float, Callable[[], None]]]


@pytest.fixture
def records() -> Iterator[Records]:
    with capture_records(engine_records="on", engine_stats_interval_s=3.0) as captured:
        yield captured


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return fake_vllm.install(monkeypatch)


@pytest.fixture
def timers() -> Timers:
    """Return what the event loop was asked to call later."""
    return []


@pytest.fixture
def engine(
    records: Records, modules: dict[str, Any], timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Make the stat logger as vLLM does."""

    def make(engine_indexes: tuple[int, ...] = (0,), **config: object) -> Any:
        module = importlib.import_module("inference_logging.record.integrations.vllm.engine")
        monkeypatch.setattr(module, "_later", lambda delay_s, call: timers.append((delay_s, call)))
        return module.EngineStatLogger(
            vllm_config=SimpleNamespace(**{"speculative_config": None, **config}), engine_indexes=list(engine_indexes)
        )

    return make


def during_a_request(work: Callable[[RequestIds], Awaitable[None] | None]) -> RequestIds:
    """Call ``work`` while a request is handled; return the request's ids, which has ended then."""
    found: list[RequestIds] = []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        ids = REQUEST.get()
        assert ids is not None
        found.append(ids)
        if (waits := work(ids)) is not None:
            await waits

    serve_one(InferenceLoggingMiddleware(app), http_scope(), Client())
    return found[0]


def finished(request_id: str = "chatcmpl-1", **values: Any) -> IterationStats:
    """Return the statistics of a batch in which one request ended."""
    return IterationStats(FinishedRequestStats(request_id=request_id, **values))


@pytest.fixture
def attached(engine: Any) -> tuple[Any, OutputProcessor]:
    """Return a stat logger of engine 3, and the output processor of the client to which it is attached."""
    stat_logger, client = engine((3,)), AsyncLLM()
    stat_logger.attach(client)
    return stat_logger, client.output_processor


def taken_after(stat_logger: Any, *steps: Callable[[], object], with_running: bool = False) -> Any:
    """Do ``steps`` while a request is handled, and return what it takes at its end."""
    taken: list[Any] = []

    async def work(ids: RequestIds) -> None:
        for step in steps:
            if asyncio.iscoroutine(waits := step()):
                await waits
        taken.append(stat_logger.take(ids, with_running=with_running))
        assert stat_logger.take(ids, with_running=True) is None

    during_a_request(work)
    return taken[0]
