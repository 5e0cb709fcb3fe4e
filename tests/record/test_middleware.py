"""The middleware changes nothing, and leaves one terminal record for each request, whatever its end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Coroutine, Generator, MutableMapping
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException, Request
from fastapi.testclient import TestClient
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

from inference_logging import InferenceLoggingMiddleware, current_request
from tests.kit.signatures import Message, Receive, Recording, Send
from tests.kit.support import Client, Recorded, answer, body_messages, http_scope, raising, replying

Scope = MutableMapping[str, Any]
MODES = ("off", "summary", "timeline", "events")

EVENTS = b"text/event-stream"
LEAVING: list[Message] = [*body_messages(b""), {"type": "http.disconnect"}]


@pytest.mark.parametrize("chunks", MODES)
def test_every_sent_message_reaches_the_server_as_the_same_object_in_order(recording: Recording, chunks: str) -> None:
    messages, as_made = (answer(*(b"data: %d\n\n" % n for n in range(50)), content_type=EVENTS) for _ in range(2))
    sent = recording(chunks=chunks).serve(replying(*messages))
    assert [id(message) for message in sent] == [id(message) for message in messages]
    assert sent == as_made


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


def failing_route(recorded: Recorded, error: Exception) -> tuple[int, dict[str, Any]]:
    """Return the status of a FastAPI application whose route raises, and its record."""
    app = FastAPI()

    @app.get("/")
    def fail() -> None:
        raise error

    app.add_middleware(InferenceLoggingMiddleware, config=recorded.config)
    return TestClient(app, raise_server_exceptions=False).get("/").status_code, recorded.request()


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        *((status, "ok") for status in (200, 204, 301, 404, 422, 499)),
        *[(500, "error"), (503, "error"), (504, "timeout"), (408, "timeout")],
    ],
)
def test_the_status_of_a_complete_answer_is_its_outcome(recorded: Recorded, status: int, outcome: str) -> None:
    record = recorded.request_of(replying(*answer(b"", status=status)))
    assert (record["outcome"], record["http.response.status_code"]) == (outcome, status)
    assert record["severity_text"] == ("INFO" if outcome == "ok" else "ERROR")
    assert outcome != "ok" or "error.type" not in record


def test_an_exception_before_the_answer_is_an_error_with_its_class_and_status_500(recorded: Recorded) -> None:
    status, record = failing_route(recorded, LookupError("no such model"))
    assert (status, record["http.response.status_code"], record["http.route"]) == (500, 500, "/")
    assert (record["outcome"], record["error.type"]) == ("error", "LookupError")
    assert (record["exception.type"], record["exception.message"]) == ("LookupError", "no such model")
    assert record["exception.stacktrace"].endswith("raise error\nLookupError: no such model")


def test_an_exception_amid_the_stream_is_an_error_that_keeps_the_status_sent(recorded: Recorded) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise MemoryError

    record = recorded.request_of(app, raises=MemoryError)
    assert (record["outcome"], record["error.type"]) == ("error", "MemoryError")
    assert (record["http.response.status_code"], record["http.response.body.size"]) == (200, 4)


def test_an_http_exception_is_the_answer_it_becomes(recorded: Recorded) -> None:
    status, record = failing_route(recorded, HTTPException(status_code=429))
    assert (status, record["outcome"], record["http.response.status_code"]) == (429, "ok", 429)


@pytest.mark.parametrize("sent", [[], answer(b"x")[:1], answer(b"x", b"y")[:-1]], ids=["nothing", "start", "half"])
def test_an_application_that_returns_before_its_answer_is_complete_is_an_error(
    recorded: Recorded, sent: list[Message]
) -> None:
    record = recorded.request_of(replying(*sent))
    assert (record["outcome"], record["error.type"]) == ("error", "response_incomplete")


@pytest.mark.parametrize("error", [TimeoutError(), asyncio.TimeoutError("engine")])
def test_a_timeout_error_is_a_timeout(recorded: Recorded, error: Exception) -> None:
    record = recorded.request_of(raising(error), raises=type(error))
    assert (record["outcome"], record["error.type"]) == ("timeout", "TimeoutError")


def test_a_client_that_goes_amid_the_stream_is_a_disconnect_with_the_chunks_so_far(recorded: Recorded) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        start, first, *_ = answer(b"12345", b"67890")
        await send(start)
        await send(first)
        while (await receive())["type"] != "http.disconnect":
            pass

    record = recorded.request_of(app, incoming=LEAVING)
    assert (record["outcome"], record["http.response.status_code"]) == ("client_disconnect", 200)
    assert (record["chunks"], record["http.response.body.size"]) == (1, 5)
    assert record["severity_text"] == "WARN"


def test_starlettes_streaming_response_whose_client_goes_is_a_disconnect(recorded: Recorded) -> None:
    async def parts() -> Any:
        yield b"one"
        await asyncio.Event().wait()

    assert recorded.request_of(StreamingResponse(parts()), incoming=LEAVING)["outcome"] == "client_disconnect"


def test_a_client_that_goes_while_its_body_is_read_is_a_disconnect_without_a_status(recorded: Recorded) -> None:
    async def read(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()

    incoming: list[Message] = [{"type": "http.request", "body": b"abc", "more_body": True}, {"type": "http.disconnect"}]
    record = recorded.request_of(read, http_scope(method="POST"), incoming, raises=ClientDisconnect)
    assert (record["outcome"], record["http.request.body.size"]) == ("client_disconnect", 3)
    assert "http.response.status_code" not in record


def test_a_client_that_goes_after_the_complete_answer_is_ok(recorded: Recorded) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await replying(*answer(b"a", b"b"))(scope, receive, send)
        assert (await receive())["type"] == "http.disconnect"

    assert recorded.request_of(app, incoming=LEAVING)["outcome"] == "ok"


def test_a_cancelled_request_is_a_server_shutdown_and_stays_cancelled(recorded: Recorded) -> None:
    waiting = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(answer(b"")[0])
        waiting.set()
        await asyncio.Event().wait()

    async def serve() -> None:
        client = Client()
        task = asyncio.ensure_future(recorded.wrap(app)(http_scope(), client.receive, client.send))
        await waiting.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(serve())
    record = recorded.request()
    assert (record["outcome"], record["error.type"]) == ("server_shutdown", "CancelledError")


def test_a_request_cancelled_because_its_client_went_is_a_disconnect(recorded: Recorded) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.disconnect"
        raise asyncio.CancelledError

    record = recorded.request_of(app, None, [{"type": "http.disconnect"}], raises=asyncio.CancelledError)
    assert record["outcome"] == "client_disconnect"


def test_a_request_whose_coroutine_is_thrown_away_leaves_its_record(recorded: Recorded) -> None:
    class Never:
        def __await__(self) -> Generator[None, None, None]:
            yield

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Never()

    served: Coroutine[Any, Any, None] | None = recorded.wrap(app)(http_scope(), Client().receive, Client().send)
    assert served is not None
    served.send(None)
    served = None
    gc.collect()
    assert recorded.request()["outcome"] == "server_shutdown"


def test_a_thousand_requests_at_once_leave_a_thousand_records_with_ids_of_their_own(recording: Recording) -> None:
    recorded = recording(queue_bytes=16 << 20)
    gate = asyncio.Event()
    arrived = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        arrived.append(scope["path"])
        if len(arrived) == 1000:
            gate.set()
        await gate.wait()
        await replying(*answer(b"a", b"b"))(scope, receive, send)

    async def serve() -> None:
        served = recorded.wrap(app)
        clients = [(http_scope(f"/{number}"), Client()) for number in range(1000)]
        await asyncio.gather(*(served(scope, client.receive, client.send) for scope, client in clients))

    asyncio.run(serve())
    records = recorded.records("request")
    assert sorted(record["url.path"] for record in records) == sorted(f"/{number}" for number in range(1000))
    assert {record["outcome"] for record in records} == {"ok"}
    for key in ("trace_id", "span_id", "request_id", "seq"):
        assert len({record[key] for record in records}) == 1000
