"""Starlette's and uvicorn's behaviours survive: extensions, first byte, context variables, lifespans that fail."""

from __future__ import annotations

import asyncio
import os
import socket
from contextvars import ContextVar
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, JSONResponse

from inference_logging import current_request
from tests.kit.servers import HERE, Server, uvicorn
from tests.kit.signatures import Configure
from tests.kit.support import Client, Recorded, body_messages, http_scope, wait_until
from tests.record.hostile import Action, Pause, Raise, Receive, Return, Script, Send, drive

START: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": []}
END: dict[str, Any] = {"type": "http.response.body", "body": b"end"}
TRAILERS: dict[str, Any] = {"http.response.trailers": {}}
SIZE = "http.response.body.size"


PATHSEND: dict[str, Any] = {"type": "http.response.pathsend", "path": "/etc/hostname"}
PART: dict[str, Any] = {"type": "http.response.zerocopysend", "file": 0, "more_body": True}
ANNOUNCED = {**START, "trailers": True}
TRAILER: dict[str, Any] = {"type": "http.response.trailers", "headers": [], "more_trailers": True}
LAST = {**TRAILER, "more_trailers": False}
BESIDE: list[dict[str, Any]] = [
    {"type": "http.response.early_hint", "links": [b"</style.css>; rel=preload"]},
    {"type": "http.response.debug", "info": {"template": "t", "context": {}}},
    {"type": "http.response.push", "path": "/style.css", "headers": []},
]
OK = {"outcome": "ok", "http.response.status_code": 200, "error.type": None}

OTHERS: list[object] = [None, {}, {"http.response.pathsend": {}}, 7]

ANSWERS: dict[str, tuple[list[Any], object, dict[str, object]]] = {
    "a file sent by its path ends it, its size is left out": ([START, PATHSEND], None, {**OK, SIZE: None}),
    "parts of a file count where their size is reported": (
        [START, {**PART, "count": 70}, {**PART, "count": 70}, END],
        None,
        {**OK, SIZE: 143, "chunks": 3},
    ),
    "a part until the end of its file leaves the size out": ([START, PART, END], None, {SIZE: None}),
    "it is complete with the last of its trailers": ([ANNOUNCED, END, TRAILER, LAST], TRAILERS, {**OK, SIZE: 3}),
    "it is incomplete without its trailers": (
        [ANNOUNCED, END],
        TRAILERS,
        {"outcome": "error", "error.type": "response_incomplete"},
    ),
    "a client goes before them": (
        [ANNOUNCED, END, Receive(), LAST],
        TRAILERS,
        {"outcome": "client_disconnect"},
    ),
    **{
        f"trailers that a server of {extensions} does not send are not missed": ([ANNOUNCED, END], extensions, OK)
        for extensions in OTHERS
    },
    "hints, pushes and debug are no part of it": ([*BESIDE, START, *BESIDE, END], None, {**OK, SIZE: 3}),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_with_extensions_passes_as_it_is_and_is_recorded_so(recorded: Recorded, name: str) -> None:
    sent, extensions, expected = ANSWERS[name]
    actions: list[Action] = [one if isinstance(one, Receive) else Send(one) for one in sent]
    # One scope, since both must see the same object.
    script = Script({**http_scope(), "extensions": extensions}, actions, [{"type": "http.disconnect"}])
    assert drive(script, recorded.wrap) == drive(script)
    record = recorded.request()
    assert {field: record.get(field) for field in expected} == expected


def test_starlettes_file_response_uses_the_servers_pathsend_through_the_middleware(recorded: Recorded) -> None:
    scope = {**http_scope(), "extensions": {"http.response.pathsend": {}}}
    sent = recorded.serve(FileResponse(__file__), scope)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.pathsend"]
    assert recorded.request()["outcome"] == "ok"


@pytest.mark.parametrize(
    "sent",
    [
        [END],
        [{**END, "more_body": True}, END],
        [{**END, "body": memoryview(b"end")}],
        [PATHSEND],
        [{**PART, "more_body": False, "count": 70}],
    ],
)
def test_an_answer_to_head_has_no_byte_of_a_body_since_no_server_sends_one(recorded: Recorded, sent: list[Any]) -> None:
    script = Script(http_scope(method="HEAD"), [Send(message) for message in [START, *sent]], [])
    assert drive(script, recorded.wrap) == drive(script)
    record = recorded.request()
    assert (record["outcome"], record[SIZE], record.get("chunks", 0)) == ("ok", 0, 0)


def ask(path: bytes) -> bytes:
    return b"GET " + path + b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


def read_all(stream: socket.socket) -> bytes:
    return b"".join(iter(lambda: stream.recv(1000), b""))


def test_the_first_chunk_is_at_the_client_before_the_second_exists(configure: Configure) -> None:
    # The application waits for a second request, which the client sends when it has the first chunk: a middleware that
    # holds a chunk back waits for ever.
    with uvicorn(configure(), app="hostile_app:logged") as server:
        address = ("127.0.0.1", server.port)
        with socket.create_connection(address, timeout=120) as stream:
            stream.sendall(ask(b"/gate"))
            answer = b""
            while not answer.endswith(b"5\r\nfirst\r\n"):
                part = stream.recv(1000)
                assert part, answer
                answer += part
            with socket.create_connection(address, timeout=120) as other:
                other.sendall(ask(b"/open-gate"))
                read_all(other)
            rest = read_all(stream)
    # Chunks as the application made them, neither joined nor split.
    assert rest == b"6\r\nsecond\r\n5\r\nthird\r\n0\r\n\r\n"


outer: ContextVar[str] = ContextVar("outer", default="unset")
inner: ContextVar[str] = ContextVar("inner", default="unset")


def test_context_variables_are_seen_in_both_directions_as_without_us(recorded: Recorded) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(outer.get())
        inner.set("by the application")
        await receive()
        await JSONResponse({}, background=BackgroundTask(lambda: seen.append(inner.get())))(scope, receive, send)

    async def serve(served: Any) -> None:
        client = Client(body_messages(b""))

        async def receive() -> Any:
            seen.append(inner.get())
            inner.set("by the server")
            return await client.receive()

        async def send(message: Any) -> None:
            seen.append(inner.get())

        outer.set("by the server")
        await served(http_scope(), receive, send)
        seen.append(inner.get())
        assert current_request() is None

    seen: list[str] = []
    asyncio.run(serve(app))
    plain, seen = seen, []
    asyncio.run(serve(recorded.wrap(app)))
    assert seen == plain == ["by the server", "by the application", *["by the server"] * 4]


_kinds = ["lifespan.startup", "lifespan.shutdown"]
_ends = [f"{kind}.{end}" for kind in _kinds for end in ("complete", "failed")]
_odd: st.SearchStrategy[object] = st.one_of(
    st.sampled_from([None, 7, "lifespan.startup.complete", {}, {"type": None}, {"type": []}, {"type": b"x"}])
)
_lifespan_errors = st.sampled_from([OSError, RuntimeError, asyncio.CancelledError, KeyboardInterrupt]).map(
    lambda kind: kind()
)
_lifespan_actions: st.SearchStrategy[Action] = st.one_of(
    st.just(Receive()),
    st.builds(Send, st.builds(lambda kind: {"type": kind}, st.sampled_from(_ends)) | _odd),
    st.just(Pause()),
    st.builds(Raise, _lifespan_errors),
    st.builds(Return, st.sampled_from([None, 7])),
)
_in_order: list[object] = [{"type": kind} for kind in _kinds]
_incoming: st.SearchStrategy[list[object]] = st.just(_in_order) | st.lists(_odd, max_size=2)


@settings(max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "200")), suppress_health_check=list(HealthCheck))
@given(
    actions=st.lists(_lifespan_actions, max_size=6),
    incoming=_incoming,
    refusals=st.dictionaries(st.integers(0, 3), _lifespan_errors, max_size=1),
    is_tolerant=st.booleans(),
    throw_at=st.none() | st.integers(0, 5),
    throw=_lifespan_errors,
)
def test_any_lifespan_that_receives_is_the_same_with_and_without_us(
    recorded: Recorded,
    actions: list[Action],
    incoming: list[object],
    refusals: dict[int, BaseException],
    is_tolerant: bool,
    throw_at: int | None,
    throw: BaseException,
) -> None:
    # One that never receives knows no lifespan and is served by the middleware.
    scope: dict[str, Any] = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    before = dict(scope)
    script = Script(scope, [Receive(), *actions], incoming, refusals, False, is_tolerant, throw_at, throw)
    plain, ours = drive(script), drive(script, recorded.wrap)
    note(f"without: {plain}\nwith:    {ours}")
    assert ours == plain
    assert scope == before


# The property above has all four failures; one before and one after the start show what uvicorn makes of them.
@pytest.mark.parametrize("how", ["startup fails", "shutdown raises"])
def test_a_lifespan_that_fails_ends_uvicorn_as_without_us(configure: Configure, how: str) -> None:
    command = ["uvicorn", "--app-dir", str(HERE), "--port", "{port}", "--lifespan", "on"]
    apps = ("logged", "plain")
    servers = [Server(configure(), [*command, f"hostile_app:{app}"], HOSTILE_LIFESPAN=how) for app in apps]
    ends = []
    try:
        for server in servers:
            wait_until(lambda: server.process.poll() or b"startup complete" in b"".join(server.output), "the start")  # noqa: B023
            said = server.stop().splitlines()
            ends.append((server.process.returncode, [line for line in said if "failed" in line or "Error" in line]))
    finally:
        for server in servers:
            server.end()
    assert ends[0] == ends[1]
    assert ends[1][1]
