"""WebSocket connections have a record each: messages and bytes both ways, close code, outcome, ids inside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

import pytest
from fastapi import FastAPI, WebSocket
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from inference_logging import InferenceLoggingMiddleware, current_request, get_logger
from tests.kit.identity import HEADERS, SECRET, everything
from tests.kit.signatures import Configure, Message, Receive, Recording, Send
from tests.kit.support import TRACE_ID, TRACEPARENT, Client, Recorded, http_scope

CONNECT: Message = {"type": "websocket.connect"}
ACCEPT: Message = {"type": "websocket.accept"}


def scope(path: str = "/ws", headers: Iterable[tuple[bytes, bytes]] = ()) -> dict[str, Any]:
    """Return a WebSocket's scope."""
    return {**http_scope(path, headers=headers), "type": "websocket", "scheme": "ws", "subprotocols": []}


def connection(recorded: Recorded) -> dict[str, Any]:
    """Return the one record of a connection."""
    assert not recorded.records("request")
    (record,) = recorded.records("websocket.connection")
    return record


def sending(*messages: Message, error: BaseException | None = None, receives: int = 1) -> Any:
    """Return an application that receives so many messages, sends ``messages`` and then raises ``error``."""

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        for _ in range(receives):
            await receive()
        for message in messages:
            await send(message)
        if error is not None:
            raise error

    return app


def test_a_connection_has_a_record_with_what_passed_both_ways(recorded: Recorded) -> None:
    app = FastAPI()
    log = get_logger("app")

    @app.websocket("/ws/{room}")
    async def talk(websocket: WebSocket, room: str) -> None:
        await websocket.accept(subprotocol="chat")
        log.info("talking", room=room)
        assert await websocket.receive_text() == "héllo"
        assert await websocket.receive_bytes() == b"1234"
        await websocket.send_text("ok")
        await websocket.close(3001)

    app.add_middleware(InferenceLoggingMiddleware, config=recorded.config)
    headers = {"traceparent": TRACEPARENT.decode(), "x-request-id": "ws-1"}
    with TestClient(app).websocket_connect("/ws/a", subprotocols=["chat"], headers=headers) as client:
        client.send_text("héllo")
        client.send_bytes(b"1234")
        assert client.receive_text() == "ok"
        with pytest.raises(WebSocketDisconnect):
            client.receive_text()
    record = connection(recorded)
    assert (record["outcome"], record["severity_text"], record["trace_id"]) == ("ok", "INFO", TRACE_ID)
    assert (record["client_request_id"], record["url.path"], record["http.route"]) == ("ws-1", "/ws/a", "/ws/{room}")
    assert (record["http.response.status_code"], record["websocket.subprotocol"]) == (101, "chat")
    names = ("messages_received", "bytes_received", "messages_sent", "bytes_sent", "close_code", "closed_by")
    assert [record[f"websocket.{name}"] for name in names] == [2, 10, 1, 2, 3001, "server"]
    assert record["duration_s"] >= 0
    (logged,) = recorded.records("log")
    assert (logged["trace_id"], logged["request_id"]) == (TRACE_ID, record["request_id"])


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(1000, "ok"), (1001, "ok"), (1005, "ok"), (1006, "client_disconnect"), (1012, "server_shutdown")],
)
@pytest.mark.parametrize("raises", [False, True], ids=["returns", "raises"])
def test_a_client_that_leaves_is_known_by_its_close_code(
    recorded: Recorded, code: int, outcome: str, raises: bool
) -> None:
    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await receive()
        await send(ACCEPT)
        message = await receive()
        if raises:
            raise WebSocketDisconnect(message["code"])

    incoming = [CONNECT, {"type": "websocket.disconnect", "code": code}]
    call: Callable[..., Any] = recorded.serve
    if raises:
        with pytest.raises(WebSocketDisconnect):
            call(app, scope(), incoming)
    else:
        call(app, scope(), incoming)
    record = connection(recorded)
    assert (record["outcome"], record["websocket.close_code"], record["websocket.closed_by"]) == (
        outcome,
        code,
        "client",
    )
    assert "error.type" not in record


@pytest.mark.parametrize(
    ("messages", "outcome", "status", "code"),
    [
        ([ACCEPT], "ok", 101, None),
        ([ACCEPT, {"type": "websocket.close"}], "ok", 101, 1000),
        ([ACCEPT, {"type": "websocket.close", "code": 1008}], "ok", 101, 1008),
        ([ACCEPT, {"type": "websocket.close", "code": 1011}], "error", 101, 1011),
        ([{"type": "websocket.close"}], "ok", 403, None),
        ([{"type": "websocket.http.response.start", "status": 401, "headers": []}], "ok", 401, None),
        ([{"type": "websocket.http.response.start", "status": 503, "headers": []}], "error", 503, None),
        ([], "error", None, None),
    ],
)
def test_how_the_application_ends_a_connection_is_its_outcome(
    recorded: Recorded, messages: list[Message], outcome: str, status: int | None, code: int | None
) -> None:
    assert recorded.serve(sending(*messages), scope(), [CONNECT]) == messages
    record = connection(recorded)
    found = (record["outcome"], record.get("http.response.status_code"), record.get("websocket.close_code"))
    assert found == (outcome, status, code)


@pytest.mark.parametrize(
    ("error", "outcome", "severity"),
    [
        (LookupError("no such room"), "error", "ERROR"),
        (TimeoutError(), "timeout", "ERROR"),
        (asyncio.CancelledError(), "server_shutdown", "WARN"),
    ],
)
def test_an_exception_ends_a_connection_and_is_raised_unchanged(
    recorded: Recorded, error: BaseException, outcome: str, severity: str
) -> None:
    with pytest.raises(type(error)):
        recorded.serve(sending(ACCEPT, error=error), scope(), [CONNECT])
    record = connection(recorded)
    assert (record["outcome"], record["severity_text"]) == (outcome, severity)
    assert record["error.type"] == type(error).__qualname__
    if isinstance(error, LookupError):
        assert (record["exception.type"], record["exception.message"]) == ("LookupError", "no such room")
        assert "in app" in record["exception.stacktrace"]


def test_a_connection_is_recorded_whatever_the_sampler_says(recording: Recording) -> None:
    recorded = recording(sample_ratio=0)
    recorded.serve(sending(ACCEPT), scope(), [CONNECT])
    assert connection(recorded)["outcome"] == "ok"


def test_hostile_messages_and_scopes_leave_a_record_and_pass_unchanged(recorded: Recorded) -> None:
    strange: list[Message] = [
        ACCEPT,
        {"type": "websocket.send", "bytes": None, "text": 7},
        {"type": 3},
        {},
        {"type": "websocket.close", "code": "x"},
    ]
    hostile = {**scope("/" + "x" * 100_000), "headers": None, "client": 5, "http_version": 3}
    assert recorded.serve(sending(*strange), hostile, [CONNECT]) == strange
    record = connection(recorded)
    assert (record["websocket.messages_sent"], record["websocket.bytes_sent"]) == (1, 0)
    assert len(record["url.path"]) < 1000


def test_where_recording_is_off_a_connection_passes_untouched(recording: Recording) -> None:
    recorded = recording(enabled="off")
    assert recorded.serve(sending(ACCEPT), scope(), [CONNECT]) == [ACCEPT]
    assert not recorded.records("websocket.connection")


def test_what_is_no_message_reaches_the_server_as_it_is(recorded: Recorded) -> None:
    nothing: Any = None
    assert recorded.serve(sending(ACCEPT, nothing), scope(), [CONNECT, nothing]) == [ACCEPT, None]
    assert connection(recorded)["outcome"] == "ok"


def test_a_record_that_cannot_be_made_is_no_failure_of_the_connection(
    recorded: Recorded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference_logging.record.asgi.websocket._text", lambda _: b"a" * (1 << 20))
    served = recorded.wrap(sending(ACCEPT))
    client = Client([CONNECT])
    asyncio.run(served(scope(), client.receive, client.send))
    assert client.sent == [ACCEPT]
    assert "Traceback" not in capsys.readouterr().err


def test_a_connection_has_the_recorded_headers_of_its_handshake_and_what_the_application_sets(keyed: Configure) -> None:
    recorded = Recorded(keyed(record_headers=[*HEADERS, "x-user=enduser.id"]))
    kept: list[Any] = []

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        request = current_request()
        assert request is not None
        assert request.set(**{"enduser.id": "of the application"}, room=7)
        kept.append(request)
        scope["headers"] = []
        await receive()
        await send(ACCEPT)

    headers = [(b"x-tenant", b"acme"), (b"X-Team", b" search "), (b"authorization", f"Bearer {SECRET}".encode())]
    recorded.serve(app, scope(headers=[*headers, (b"x-user", b"u-1"), (b"x-other", b"no")]), [CONNECT])
    record = connection(recorded)
    assert (record["tenant.id"], record["http.request.header.x-team"]) == ("acme", "search")
    assert record["enduser.id"] == "of the application"
    assert record["attributes"] == {"room": 7}
    assert record["api_key.hash"].startswith("blake3-keyed:")
    assert not any("other" in name for name in record)
    assert kept[0].set(late=1) is False
    recorded.close()
    assert SECRET.encode() not in everything(recorded.config.directory)


def test_a_connection_that_fails_has_both_its_headers_and_its_exception(keyed: Configure) -> None:
    recorded = Recorded(keyed(record_headers=HEADERS))
    with pytest.raises(ZeroDivisionError):
        recorded.serve(
            sending(error=ZeroDivisionError("as it must")), scope(headers=[(b"x-tenant", b"acme")]), [CONNECT]
        )
    record = connection(recorded)
    recorded.close()
    assert (record["tenant.id"], record["exception.type"]) == ("acme", "ZeroDivisionError")
    assert "members" not in record
