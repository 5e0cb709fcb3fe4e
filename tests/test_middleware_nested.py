"""An application behind two middlewares, or one mounted with its own: one record of each request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response, WebSocket
from fastapi.testclient import TestClient
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.gzip import GZipMiddleware

from inference_logging import Config, InferenceLoggingMiddleware, current_request
from tests.support import App as ASGIApp
from tests.support import Message, Receive, Recorded, Send, answer, http_scope, replying


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Recorded]:
    """Record with another configuration."""
    own = Recorded(Config(directory=tmp_path / "own", queue_directory=tmp_path / "own-queues", service_name="own"))
    yield own
    own.close()


def application(config: Config) -> FastAPI:
    """Return an application with the middleware, for a GET and a WebSocket."""
    app = FastAPI()

    @app.get("/{name}")
    def get(name: str) -> str:
        return name

    @app.websocket("/ws")
    async def echo(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text(await websocket.receive_text())
        await websocket.close()

    app.add_middleware(InferenceLoggingMiddleware, config=config)
    return app


def mounted(outer: Config, inner: Config) -> FastAPI:
    """Return an application with the middleware that has another one with the middleware below it."""
    app = FastAPI()
    app.mount("/sub", application(inner))
    app.add_middleware(GZipMiddleware)
    app.add_middleware(InferenceLoggingMiddleware, config=outer)
    return app


async def between(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Do nothing, as a middleware that wraps `receive` and `send` for what is below it."""
    return await call_next(request)


class Wrapped:
    """A middleware that gives a WebSocket functions of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        async def own_receive() -> Message:
            return await receive()

        async def own_send(message: Message) -> None:
            await send(message)

        await self.app(scope, own_receive, own_send)


def twice(config: Config) -> FastAPI:
    app = application(config)
    app.add_middleware(InferenceLoggingMiddleware, config=config)
    return app


def use(app: FastAPI, path: str) -> None:
    with TestClient(app) as client:
        assert client.get(f"{path}/x").json() == "x"
        with client.websocket_connect(f"{path}/ws") as websocket:
            websocket.send_text("hello")
            assert websocket.receive_text() == "hello"


def test_a_request_behind_two_middlewares_has_one_record(recorded: Recorded) -> None:
    use(twice(recorded.config), "")
    assert recorded.request()["http.route"] == "/{name}"
    assert len(recorded.records("websocket.connection")) == 1


def test_a_request_of_a_mounted_application_with_its_own_middleware_has_one_record(recorded: Recorded) -> None:
    use(mounted(recorded.config, recorded.config), "/sub")
    assert recorded.request()["http.route"] == "/sub/{name}"
    assert len(recorded.records("websocket.connection")) == 1


@pytest.mark.parametrize("wrapping", [(BaseHTTPMiddleware, {"dispatch": between}), (Wrapped, {})])
def test_what_wraps_the_functions_between_two_middlewares_makes_no_second_record(
    recorded: Recorded, wrapping: tuple[Any, dict[str, Any]]
) -> None:
    app = FastAPI()
    app.mount("/sub", application(recorded.config))
    app.add_middleware(wrapping[0], **wrapping[1])
    app.add_middleware(InferenceLoggingMiddleware, config=recorded.config)
    use(app, "/sub")
    assert recorded.request()["http.route"] == "/sub/{name}"
    assert len(recorded.records("websocket.connection")) == 1


def test_a_scope_that_is_served_again_after_its_end_has_a_record_of_each(recorded: Recorded) -> None:
    scope = http_scope()
    for _ in range(2):
        recorded.serve(replying(*answer(b"x")), scope)
    assert len(recorded.records("request")) == 2
    assert scope == http_scope()


def test_a_middleware_within_another_one_gives_its_context_back(recorded: Recorded, elsewhere: Recorded) -> None:
    seen = []

    async def innermost(scope: Message, receive: Receive, send: Send) -> None:
        seen.append(current_request())
        for message in answer(b"x"):
            await send(message)

    inner = elsewhere.wrap(innermost)

    async def between(scope: Message, receive: Receive, send: Send) -> None:
        seen.append(current_request())
        await inner(scope, receive, send)
        seen.append(current_request())

    recorded.serve(between)
    before, within, after = [ids.span_id for ids in seen if ids is not None]
    assert before == after == recorded.request()["span_id"] != within


@pytest.mark.parametrize("event", ["request", "websocket.connection"])
def test_where_the_mounted_application_is_recorded_elsewhere_there_is_a_record_in_each_place(
    recorded: Recorded, elsewhere: Recorded, event: str
) -> None:
    use(mounted(recorded.config, elsewhere.config), "/sub")
    assert len(recorded.records(event)) == len(elsewhere.records(event)) == 1
