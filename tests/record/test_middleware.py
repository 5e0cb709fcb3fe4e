"""The middleware changes nothing: every message passes untouched, and no request fails because of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, MutableMapping
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import strategies as st
from starlette.responses import StreamingResponse
from starlette.websockets import WebSocket

from inference_logging import InferenceLoggingMiddleware, current_request
from tests.kit.signatures import Message, Receive, Recording, Send
from tests.kit.support import Client, Recorded, answer, body_messages, http_scope, raising, replying

Scope = MutableMapping[str, Any]
MODES = ("off", "summary", "timeline", "events")

START: Message = {"type": "http.response.start", "status": 200, "headers": []}


@pytest.mark.parametrize("chunks", MODES)
def test_every_sent_message_reaches_the_server_as_the_same_object_in_order(recording: Recording, chunks: str) -> None:
    messages = answer(*(b"data: %d\n\n" % number for number in range(50)), content_type=b"text/event-stream")
    sent = recording(chunks=chunks).serve(replying(*messages))
    assert [id(message) for message in sent] == [id(message) for message in messages]
    assert sent == answer(*(b"data: %d\n\n" % number for number in range(50)), content_type=b"text/event-stream")


def test_every_received_message_reaches_the_application_as_the_same_object_in_order(recorded: Recorded) -> None:
    incoming = [*body_messages(b"a", b"", b"b" * 100_000, b"c"), {"type": "http.disconnect"}]
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend([await receive() for _ in incoming])

    recorded.serve(app, incoming=incoming)
    assert [id(message) for message in seen] == [id(message) for message in incoming]


def test_the_application_gets_the_servers_own_scope(recorded: Recorded) -> None:
    scope, seen = http_scope(), []

    async def app(inner: Scope, receive: Receive, send: Send) -> None:
        seen.append(inner)

    before = dict(scope)
    recorded.serve(app, scope)
    assert seen[0] is scope
    assert scope == before


@pytest.mark.parametrize("kind", ["", "from_the_future"])
def test_foreign_scopes_pass_through_with_the_servers_own_receive_and_send(recorded: Recorded, kind: str) -> None:
    client, seen = Client(), []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope, receive, send))

    scope = {"type": kind}
    receive, send = client.receive, client.send
    asyncio.run(recorded.wrap(app)(scope, receive, send))
    assert seen == [(scope, receive, send)]
    assert recorded.records() == []


def test_a_websocket_talks_through_the_middleware(recorded: Recorded) -> None:
    app = FastAPI()
    app.add_middleware(InferenceLoggingMiddleware, config=recorded.config)

    @app.websocket("/echo")
    async def echo(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text(await websocket.receive_text())
        await websocket.close()

    with TestClient(app) as client, client.websocket_connect("/echo") as websocket:
        websocket.send_text("hello")
        assert websocket.receive_text() == "hello"


def test_send_returns_the_servers_own_awaitable(recorded: Recorded) -> None:
    returned: list[Awaitable[None]] = []

    async def server_send(message: Message) -> None: ...

    def spying_send(message: Message) -> Awaitable[None]:
        returned.append(server_send(message))
        return returned[-1]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in answer(b"a", b"b"):
            pending = send(message)
            assert pending is returned[-1]
            await pending

    asyncio.run(recorded.wrap(app)(http_scope(), Client().receive, spying_send))
    assert len(returned) == 4


def test_a_chunk_is_at_the_server_before_the_next_one_is_made(recorded: Recorded) -> None:
    client = Client()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for number, message in enumerate(answer(b"a", b"b", b"c"), start=1):
            await send(message)
            assert len(client.sent) == number

    asyncio.run(recorded.wrap(app)(http_scope(), client.receive, client.send))
    assert len(client.sent) == 5


@pytest.mark.parametrize("error", [ValueError("v"), KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError()])
def test_the_applications_exception_is_raised_as_the_same_object(recorded: Recorded, error: BaseException) -> None:
    async def serve() -> None:
        with pytest.raises(type(error)) as raised:
            await recorded.wrap(raising(error))(http_scope(), Client().receive, Client().send)
        assert raised.value is error

    asyncio.run(serve())
    assert recorded.request()["error.type"] == type(error).__qualname__


def test_the_request_under_way_is_known_inside_only(recorded: Recorded) -> None:
    inside = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        inside.append(current_request())

    async def serve() -> None:
        await recorded.wrap(app)(http_scope(), Client().receive, Client().send)
        assert current_request() is None

    asyncio.run(serve())
    record = recorded.request()
    assert inside[0] is not None
    assert (inside[0].trace_id, inside[0].span_id) == (record["trace_id"], record["span_id"])


def test_a_fastapi_application_answers_the_same_bytes_with_and_without(recorded: Recorded) -> None:
    def make() -> FastAPI:
        app = FastAPI()

        @app.get("/stream")
        def stream() -> StreamingResponse:
            return StreamingResponse((f"part {number}\n" for number in range(10)), media_type="text/event-stream")

        return app

    plain, logged = make(), make()
    logged.add_middleware(InferenceLoggingMiddleware, config=recorded.config)
    for path in ("/stream", "/missing"):
        with TestClient(plain) as without, TestClient(logged) as with_middleware:
            expected, got = without.get(path), with_middleware.get(path)
        assert (got.status_code, got.headers, got.content) == (expected.status_code, expected.headers, expected.content)


_keys = st.sampled_from(["type", "status", "headers", "body", "more_body"])
