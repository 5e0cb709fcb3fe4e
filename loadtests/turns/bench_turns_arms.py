"""The arms of `bench_turns` in a server: nothing, the thinnest wrapper, other packages, and ours.

Each arm is an application of its own with the same routes, and has the package in it as the package's page installs
it. structlog's documentation has no middleware: its arm is its contextvars recipe with its configuration for speed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import orjson
import structlog
from asgi_correlation_id import CorrelationIdMiddleware
from fastapi import FastAPI, Request, Response
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from prometheus_fastapi_instrumentator import Instrumentator

from inference_logging import InferenceLoggingMiddleware, Logger
from inference_logging.record.asgi.lifespan import ASGIApp, Message, Receive, Send
from loadtests.cost.loggers import our_config
from loadtests.turns.thinnest import Thinnest

CAPTURE: Final[dict[str, Any]] = {"capture_input": "truncated", "capture_output": "truncated"}


class Arms:
    """Makes arms, holds what they write, and knows the loggers of ours."""

    def __init__(self, application: Callable[[], FastAPI], directory: Path, stack: ExitStack) -> None:
        self.loggers: dict[str, Logger] = {}
        self._application = application
        self._directory = directory
        self._stack = stack

    def make(self, name: str) -> ASGIApp:
        """Return the arm of this name; raises KeyError if there is none."""
        app = self._application()
        return NAMES[name](self, app) or app

    def ours(self, name: str, app: FastAPI, **settings: Any) -> None:
        """Add our middleware, with a logger of its own."""
        config = self._stack.enter_context(our_config(self._directory / name.replace(" ", "-"), **settings))
        self.loggers[name] = self._stack.enter_context(Logger(config))
        app.add_middleware(InferenceLoggingMiddleware, config=config)

    def lines(self, name: str) -> Any:
        """Return a file of lines, open for writing."""
        self._directory.mkdir(parents=True, exist_ok=True)
        return self._stack.enter_context((self._directory / name).open("ab"))


class Structlog:
    """One line for a request by structlog, with the request's id in its context."""

    def __init__(self, app: ASGIApp, logger: Any) -> None:
        self._app = app
        self._logger = logger
        self._number = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one scope, and write a line."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0
        self._number += 1
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=self._number, method=scope["method"], path=scope["path"])

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note)
        finally:
            self._logger.info("request", status=status, duration_s=time.perf_counter() - started)


def _prometheus(_arms: Arms, app: FastAPI) -> None:
    Instrumentator(registry=CollectorRegistry()).instrument(app)


def _opentelemetry(_arms: Arms, app: FastAPI) -> ASGIApp:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_Forgetful()))
    return OpenTelemetryMiddleware(app, tracer_provider=provider)


class _Forgetful(InMemorySpanExporter):
    """Keeps the spans of the last export only, so that memory does not grow."""

    def export(self, spans: Any) -> Any:
        self.clear()
        return super().export(spans)


def _base_http(_arms: Arms, app: FastAPI) -> None:
    @app.middleware("http")
    async def pass_on(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        return await call_next(request)


def _structlog(arms: Arms, app: FastAPI) -> None:
    logger = structlog.wrap_logger(
        structlog.BytesLogger(arms.lines("structlog.jsonl")),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(serializer=orjson.dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=True,
    )
    app.add_middleware(Structlog, logger=logger.bind())


def _access_log(_arms: Arms, app: FastAPI) -> ASGIApp:
    """Switch uvicorn's own access log on for a request: its line is written where the answer begins."""

    def logged(scope: Message, receive: Receive, send: Send) -> Awaitable[Any]:
        send.__self__.access_log = True  # type: ignore[attr-defined]
        return app(scope, receive, send)

    return logged


NOTHING: Final = "nothing"
NOTHING_AGAIN: Final = "nothing, once more"
THINNEST: Final = "thinnest wrapper"
THINNEST_AGAIN: Final = "thinnest wrapper, once more (control)"
OURS: Final = "ours"
OURS_WITH_TEXTS: Final = "ours, texts captured"
NAMES: Final[dict[str, Callable[[Arms, FastAPI], ASGIApp | None]]] = {
    NOTHING: lambda _, _app: None,
    NOTHING_AGAIN: lambda _, _app: None,
    THINNEST: lambda _, app: app.add_middleware(Thinnest),
    THINNEST_AGAIN: lambda _, app: app.add_middleware(Thinnest),
    "asgi-correlation-id": lambda _, app: app.add_middleware(CorrelationIdMiddleware),
    "prometheus-fastapi-instrumentator": _prometheus,
    "opentelemetry-instrumentation-asgi": _opentelemetry,
    "BaseHTTPMiddleware that does nothing": _base_http,
    "structlog": _structlog,
    "uvicorn's access log": _access_log,
    OURS: lambda arms, app: arms.ours(OURS, app),
    OURS_WITH_TEXTS: lambda arms, app: arms.ours(OURS_WITH_TEXTS, app, **CAPTURE),
}
COMPARED: Final = tuple(name for name in NAMES if name != NOTHING_AGAIN)
WITH_AND_WITHOUT: Final = (NOTHING, OURS, NOTHING_AGAIN)
UNLOGGED, LOGGED, CONTROL = range(len(WITH_AND_WITHOUT))
