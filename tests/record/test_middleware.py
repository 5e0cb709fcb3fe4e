"""The middleware changes nothing: every message passes untouched, and no request fails because of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from starlette.responses import StreamingResponse
from starlette.websockets import WebSocket

from inference_logging import InferenceLoggingMiddleware, current_request
from tests.kit.signatures import Message, Receive, Recording, Send
from tests.kit.support import Client, Recorded, answer, body_messages, http_scope, replying

Scope = MutableMapping[str, Any]
MODES = ("off", "summary", "timeline", "events")

START: Message = {"type": "http.response.start", "status": 200, "headers": []}
ODD_SEQUENCES: dict[str, list[Message]] = {
    "nothing": [],
    "body_before_start": [{"type": "http.response.body", "body": b"x"}],
    "start_twice": [START, START, {"type": "http.response.body", "body": b"x"}],
    "body_after_the_end": [*answer(b"x"), {"type": "http.response.body", "body": b"y"}],
    "unknown_type": [{"type": "http.response.from_the_future"}, *answer(b"x")],
    "trailers": [
        START,
        {"type": "http.response.body", "body": b"x"},
        {"type": "http.response.trailers", "headers": []},
    ],
    "early_hint": [{"type": "http.response.early_hint", "links": []}, *answer(b"x")],
    "path_send": [START, {"type": "http.response.pathsend", "path": "/a"}],
    "no_type": [{}],
    "type_is_no_text": [{"type": 7}],
    "no_body_key": [START, {"type": "http.response.body"}],
    "body_is_none": [START, {"type": "http.response.body", "body": None}],
    "body_is_text": [START, {"type": "http.response.body", "body": "text"}],
    "body_is_a_memoryview": [START, {"type": "http.response.body", "body": memoryview(b"abc")}],
    "status_is_text": [{"type": "http.response.start", "status": "200", "headers": []}],
    "status_is_huge": [{"type": "http.response.start", "status": 10**30, "headers": []}],
    "status_is_negative": [{"type": "http.response.start", "status": -1}],
    "headers_are_none": [{"type": "http.response.start", "status": 200, "headers": None}],
    "headers_are_text": [
        {"type": "http.response.start", "status": 200, "headers": [("content-type", "text/plain"), 7]}
    ],
    "more_body_is_a_number": [START, {"type": "http.response.body", "body": b"x", "more_body": 1}],
}


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


@pytest.mark.parametrize("chunks", MODES)
@pytest.mark.parametrize("name", ODD_SEQUENCES)
def test_unusual_messages_pass_and_leave_one_terminal_record(recording: Recording, name: str, chunks: str) -> None:
    recorded = recording(chunks=chunks)
    messages = ODD_SEQUENCES[name]
    sent = recorded.serve(replying(*messages))
    assert [id(message) for message in sent] == [id(message) for message in messages]
    assert recorded.request()["outcome"] in {"ok", "error"}


def test_what_the_server_raises_in_send_and_receive_reaches_the_application_unchanged(recorded: Recorded) -> None:
    broken, lost = OSError("broken pipe"), RuntimeError("lost")

    async def refuse(message: Message) -> None:
        raise broken

    async def lose() -> Message:
        raise lost

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(RuntimeError) as receiving:
            await receive()
        assert receiving.value is lost
        await send(START)

    with pytest.raises(OSError, match="broken pipe") as sending:
        asyncio.run(recorded.wrap(app)(http_scope(), lose, refuse))
    assert sending.value is broken


def test_a_send_that_raises_at_once_is_not_swallowed(recorded: Recorded) -> None:
    def refuse(message: Message) -> Awaitable[None]:
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError, match="gone"):
        asyncio.run(recorded.wrap(replying(*answer(b"x")))(http_scope(), Client().receive, refuse))


@pytest.mark.parametrize("error", [ValueError("v"), KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError()])
def test_the_applications_exception_is_raised_as_the_same_object(recorded: Recorded, error: BaseException) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise error

    async def serve() -> None:
        with pytest.raises(type(error)) as raised:
            await recorded.wrap(app)(http_scope(), Client().receive, Client().send)
        assert raised.value is error

    asyncio.run(serve())
    assert recorded.request()["error.type"] == type(error).__qualname__


def test_a_context_variable_that_the_application_sets_is_visible_outside_as_without_the_middleware(
    recorded: Recorded,
) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        variable.set("set by the application")
        await replying(*answer(b"x"))(scope, receive, send)

    async def serve(served: Callable[[Scope, Receive, Send], Awaitable[None]]) -> str:
        client = Client()
        await served(http_scope(), client.receive, client.send)
        return variable.get()

    assert asyncio.run(serve(recorded.wrap(app))) == asyncio.run(serve(app)) == "set by the application"


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
_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.binary(max_size=40),
    st.text(max_size=10),
    st.sampled_from(["http.response.start", "http.response.body"]),
    st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=12)), max_size=3),
)


@hypothesis_settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    messages=st.lists(st.dictionaries(_keys, _values), max_size=6), incoming=st.lists(st.dictionaries(_keys, _values))
)
def test_no_message_whatever_makes_the_middleware_raise(
    recorded: Recorded, messages: list[Message], incoming: list[Message]
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert [await receive() for _ in incoming] == incoming
        for message in messages:
            await send(message)

    assert recorded.serve(app, incoming=incoming) == messages


_scope_values = st.one_of(
    _values, st.floats(), st.lists(st.none()), st.just(object()), st.text(st.characters(codec=None))
)


@hypothesis_settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    damage=st.dictionaries(
        st.sampled_from(["method", "path", "root_path", "headers", "client", "http_version", "route", "path_template"]),
        _scope_values,
    )
)
def test_no_scope_whatever_makes_the_middleware_raise(recorded: Recorded, damage: dict[str, Any]) -> None:
    assert len(recorded.serve(replying(*answer(b"x")), {**http_scope(), **damage})) == 2
