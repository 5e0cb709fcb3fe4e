"""Requests as the application has them: behind two middlewares, below a prefix, in the context, after the answer."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response, WebSocket
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.routing import Mount, Route

from inference_logging import Config, InferenceLoggingMiddleware, current_request
from tests.kit.signatures import App as ASGIApp
from tests.kit.signatures import Configure, Message, Receive, Recording, Send
from tests.kit.support import Client, Recorded, answer, http_scope, raising, replying


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


def between_two(outer: Config, wrapping: Any, inner: Config | None = None, **options: Any) -> FastAPI:
    """Return an application with the middleware and another one, that has a third with the middleware below it."""
    app = FastAPI()
    app.mount("/sub", application(inner or outer))
    app.add_middleware(wrapping, **options)
    app.add_middleware(InferenceLoggingMiddleware, config=outer)
    return app


def mounted(outer: Config, inner: Config) -> FastAPI:
    return between_two(outer, GZipMiddleware, inner)


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


@pytest.mark.parametrize(
    ("app", "prefix"),
    [
        (twice, ""),
        (lambda config: mounted(config, config), "/sub"),
        (lambda config: between_two(config, BaseHTTPMiddleware, dispatch=between), "/sub"),
        (lambda config: between_two(config, Wrapped), "/sub"),
    ],
    ids=["twice", "mounted", "BaseHTTPMiddleware between", "functions wrapped"],
)
def test_a_request_behind_two_middlewares_has_one_record(
    recorded: Recorded, app: Callable[[Config], FastAPI], prefix: str
) -> None:
    use(app(recorded.config), prefix)
    assert recorded.request()["http.route"] == f"{prefix}/{{name}}"
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


def below(path: str, root_path: object = "/llm") -> dict[str, Any]:
    """Return the scope of a request whose proxy has not stripped the prefix."""
    return {**http_scope(path), "root_path": root_path}


@pytest.mark.parametrize("path", ["/health/logging", "/health/logging/live", "/metrics/logging"])
def test_routes_of_the_middleware_answer_with_and_without_the_prefix(configure: Configure, path: str) -> None:
    app = FastAPI()
    config = configure(liveness_path="/health/logging/live", metrics_path="/metrics/logging")
    app.add_middleware(InferenceLoggingMiddleware, config=config)
    with TestClient(app, root_path="/llm") as client:
        assert client.get(path).status_code == client.get(f"/llm{path}").status_code == 200
        assert client.get(f"/llmx{path}").status_code == client.get(f"/other{path}").status_code == 404


def test_the_servers_own_health_route_is_wrapped_below_the_prefix(recording: Recording) -> None:
    start, _ = recording(wrap_health_path="/health").serve(replying(*answer(b"")), below("/llm/health"))
    assert b"inference-logging-state" in dict(start["headers"])


def paths(recorded: Recorded, *paths: str) -> list[str]:
    """Ask for paths below a prefix, and return those on record."""
    for path in paths:
        recorded.serve(replying(*answer(b"")), below(path))
    return [record["url.path"] for record in recorded.records("request")]


@pytest.mark.parametrize(("skipped", "end"), [("/ready", ""), ("/llm/ready", ""), ("/ready/*", "/x")])
def test_a_path_that_is_skipped_is_skipped_below_the_prefix(recording: Recording, skipped: str, end: str) -> None:
    others = [f"/other/ready{end}", f"/llmx/ready{end}"]
    assert paths(recording(skip_paths=[skipped]), f"/llm/ready{end}", *others) == others


def test_a_route_has_its_ratio_below_the_prefix_and_one_with_the_prefix_goes_first(recording: Recording) -> None:
    recorded = recording(sample_routes={"/llm/b": 1.0, "/a": 0.0, "/b": 0.0})
    assert paths(recorded, "/llm/a", "/llm/b", "/llm/c") == ["/llm/b", "/llm/c"]


@pytest.mark.parametrize("root_path", [None, 7, b"/llm", "", "/", "/llm/x/y"])
def test_a_prefix_that_is_none_changes_nothing(recorded: Recorded, root_path: object) -> None:
    assert recorded.request_of(replying(*answer(b"")), below("/llm/x", root_path))["url.path"] == "/llm/x"


_APP = """
import asyncio, contextvars, sys
from inference_logging import Config, InferenceLoggingMiddleware

async def receive():
    return {"type": "http.request", "body": b"", "more_body": False}

sent = []
async def send(message):
    sent.append(message)

def scope():
    return {"type": "http", "method": "GET", "path": "/", "headers": [], "client": None, "http_version": "1.1"}

def served(app, requests=1):
    config = Config(directory=sys.argv[1] + "/logs", queue_directory=sys.argv[1] + "/queue")
    middleware = InferenceLoggingMiddleware(app, config)
    async def run():
        for _ in range(requests):
            await middleware(scope(), receive, send)
        middleware._close()
    asyncio.run(run())

def in_context():
    return [value for var, value in contextvars.copy_context().items() if var.name == "inference_logging.request"]
"""
_CASES = {
    "nobody asks, and nothing is set": """
async def app(scope, receive, send):
    assert in_context() == [], in_context()
served(app, 2)
""",
    "an import before the first request": """
from inference_logging import current_request
async def app(scope, receive, send):
    assert len(current_request().trace_id) == 32
    assert in_context() == [current_request()]
    assert await asyncio.create_task(child()) == current_request().request_id
async def child():
    return current_request().request_id
served(app)
assert current_request() is None
""",
    "an import within a request": """
seen = []
async def app(scope, receive, send):
    from inference_logging import current_request
    async def child():
        return current_request()
    seen.append(current_request())
    assert await asyncio.create_task(child()) is seen[-1] is not None
    assert await asyncio.to_thread(current_request) is seen[-1]
async def after(scope, receive, send):
    await app(scope, receive, send)
served(after, 2)
assert seen[0].trace_id != seen[1].trace_id
assert in_context() in ([], [None]), in_context()
""",
    "a logger within a request": """
seen = []
async def app(scope, receive, send):
    from inference_logging import get_logger
    get_logger("late").info("within")
    seen.extend(in_context())
served(app)
assert len(seen) == 1 and seen[0].trace_id
""",
    "a handler of the standard library": """
import logging
from inference_logging import Handler
handler = Handler()
async def app(scope, receive, send):
    assert len(in_context()) == 1
served(app)
""",
}


@pytest.mark.servers
@pytest.mark.parametrize("case", _CASES)
def test_code_that_asks_knows_the_request_under_way(tmp_path: Path, case: str) -> None:
    subprocess.run([sys.executable, "-c", _APP + _CASES[case], str(tmp_path)], check=True, timeout=180)


Scope = MutableMapping[str, Any]


async def work() -> None:
    """Take a while, as a background task does."""
    await asyncio.sleep(0.05)


async def fail() -> None:
    """Fail, as a background task does."""
    raise LookupError


def background(task: Any) -> FastAPI:
    """Return an application that answers and then does ``task``."""
    app = FastAPI()
    app.get("/")(lambda: Response("ok", background=BackgroundTask(task)))
    return app


def test_a_background_task_takes_time_behind_the_answer(recorded: Recorded) -> None:
    record = recorded.request_of(background(work))
    # The sleep is between the two of them, whatever the machine adds.
    assert record["after_response_s"] >= 0.05
    assert record["duration_s"] >= 0
    assert (record["outcome"], "after_response_outcome" in record) == ("ok", False)


def test_a_background_task_that_fails_is_no_error_of_the_answer(recorded: Recorded) -> None:
    record = recorded.request_of(background(fail), raises=LookupError)
    assert (record["outcome"], record["http.response.status_code"], "error.type" in record) == ("ok", 200, False)
    assert (record["after_response_outcome"], record["after_response_error_type"]) == ("error", "LookupError")
    assert record["severity_text"] == "ERROR"


class Refusing(Client):
    """A server that refuses the last part of an answer."""

    error: Exception = RuntimeError("Response content shorter than Content-Length")

    async def send(self, message: Message) -> None:
        """Take ``message``, unless it is the last one."""
        if message["type"] == "http.response.body" and not message.get("more_body"):
            raise self.error
        await super().send(message)


@pytest.mark.parametrize("wraps", [False, True], ids=["as it is", "partial"])
def test_a_last_part_that_the_server_refuses_is_an_error_of_the_answer(recorded: Recorded, wraps: bool) -> None:
    client = Refusing()
    send = functools.partial(client.send) if wraps else client.send
    with pytest.raises(RuntimeError):
        asyncio.run(recorded.wrap(replying(*answer(b"x")))(http_scope(), client.receive, send))
    record = recorded.request()
    assert (record["outcome"], record["error.type"]) == ("error", "RuntimeError")
    assert not {"after_response_s", "after_response_outcome"} & record.keys()


def test_a_client_that_is_gone_when_the_last_part_comes_is_a_disconnect(recorded: Recorded) -> None:
    class Gone(Refusing):
        error = OSError()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def parts() -> Any:
            yield b"x"

        await StreamingResponse(parts())(scope, receive, send)

    client = Gone()
    scope = {**http_scope(), "asgi": {"version": "3.0", "spec_version": "2.4"}}
    with pytest.raises(ClientDisconnect):
        asyncio.run(recorded.wrap(app)(scope, client.receive, client.send))
    record = recorded.request()
    assert (record["outcome"], record["error.type"]) == ("client_disconnect", "ClientDisconnect")
    assert "after_response_outcome" not in record


def breaking_off() -> Starlette:
    """Return an application whose stream raises after its first part, and whose background task after the last one."""

    async def parts(fails: bool) -> AsyncIterator[bytes]:
        yield b"data: a\n\n"
        if fails:
            raise LookupError

    def stream(_: Request) -> StreamingResponse:
        return StreamingResponse(parts(True), media_type="text/event-stream")

    def whole(_: Request) -> StreamingResponse:
        return StreamingResponse(parts(False), media_type="text/event-stream", background=BackgroundTask(fail))

    routes = [Route("/stream", stream), Route("/whole", whole)]
    return Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=between)])


def test_a_stream_that_raises_is_an_error_though_a_middleware_ends_its_answer(recorded: Recorded) -> None:
    record = recorded.request_of(breaking_off(), http_scope("/stream"), raises=LookupError)
    assert (record["outcome"], record["error.type"], record["chunks"]) == ("error", "LookupError", 1)
    assert not {"after_response_s", "after_response_outcome"} & record.keys()


def test_work_after_a_whole_stream_that_raises_is_no_error_of_the_answer(recorded: Recorded) -> None:
    record = recorded.request_of(breaking_off(), http_scope("/whole"), raises=LookupError)
    assert (record["outcome"], record["after_response_error_type"]) == ("ok", "LookupError")


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/sub/x", "/sub/x"),
        ("/sub/none", "/sub"),
        ("/of/5/sub/x", "/of/{name}/sub/x"),
        ("/of/5/sub/none", "/of/{name}/sub"),
        ("/same/same", "/same/same"),
        ("/files/a.txt", "/files"),
        ("/none", None),
    ],
)
def test_the_route_of_a_mount_is_its_path_once(recorded: Recorded, path: str, route: str | None) -> None:
    sub = Starlette(routes=[Route("/x", lambda _: Response())])
    same = Starlette(routes=[Route("/same", lambda _: Response())])
    mounts = [Mount("/sub", sub), Mount("/of/{name}", Starlette(routes=[Mount("/sub", sub)])), Mount("/same", same)]
    app = Starlette(routes=[*mounts, Mount("/files", Response("a file"))])
    assert recorded.request_of(app, http_scope(path)).get("http.route") == route


def test_the_size_of_an_answer_that_only_the_server_makes_is_not_known(recorded: Recorded) -> None:
    record = recorded.request_of(raising(LookupError), raises=LookupError)
    assert (record["http.response.status_code"], "http.response.body.size" in record) == (500, False)
