"""A pytest plugin for other projects' tests: puts our middleware around every application that is served.

It runs inside their process, where ``tests`` is theirs, so it imports nothing of our own tests. With FOREIGN_WRAP=no it
only writes down the outcomes, for the comparison.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, InferenceLoggingMiddleware, Logger, current_request

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


class EveryAppLogged:
    """Counts what enters the middleware and what leaves it towards the application; keeps outcomes by name."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.requests_entered = 0
        self.request_ids: list[str] = []
        # Every request is on record, also those that look like probes.
        self.logger = Logger(Config(skip_paths=[]))

    def wrap(self, app: App) -> App:
        """Return ``app`` behind our middleware, between two that count."""

        async def inside(scope: Scope, receive: Any, send: Any) -> Any:
            if scope["type"] == "http":
                ids = current_request()
                assert ids is not None
                self.request_ids.append(ids.request_id)
            return await app(scope, receive, send)

        logged = InferenceLoggingMiddleware(inside, config=self.logger.config)

        async def outside(scope: Scope, receive: Any, send: Any) -> Any:
            self.requests_entered += scope["type"] == "http"
            return await logged(scope, receive, send)

        return outside

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst of a test's three phases."""
        outcome = f"xfailed/{report.outcome}" if hasattr(report, "wasxfail") else report.outcome
        if report.when == "call" or outcome != "passed":
            self.outcomes[report.nodeid] = outcome

    def pytest_sessionfinish(self) -> None:
        """Drain and report."""
        assert self.logger.close()
        report = {"outcomes": self.outcomes, "requests_entered": self.requests_entered, "request_ids": self.request_ids}
        Path(os.environ["FOREIGN_REPORT"]).write_text(json.dumps(report))


def pytest_configure(config: pytest.Config) -> None:
    """Replace the two places where an application becomes a served one."""
    plugin = EveryAppLogged()
    config.pluginmanager.register(plugin)
    if os.environ["FOREIGN_WRAP"] == "yes":
        _wrap_in_starlettes_client(plugin)
        _wrap_in_uvicorn(plugin)


def _wrap_in_starlettes_client(plugin: EveryAppLogged) -> None:
    from starlette import testclient

    original = testclient.TestClient.__init__

    def init(self: testclient.TestClient, app: Any, *arguments: Any, **options: Any) -> None:
        # As the client itself does: the older form of ASGI is made the newer one first.
        asgi3 = app if testclient._is_asgi3(app) else testclient._WrapASGI2(app)
        original(self, plugin.wrap(asgi3), *arguments, **options)

    testclient.TestClient.__init__ = init  # type: ignore[method-assign]


def _wrap_in_uvicorn(plugin: EveryAppLogged) -> None:
    from uvicorn.config import Config as ServerConfig

    original = ServerConfig.load

    def load(self: ServerConfig) -> None:
        original(self)
        self.loaded_app = plugin.wrap(self.loaded_app)

    ServerConfig.load = load  # type: ignore[method-assign]
