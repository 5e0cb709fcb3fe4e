"""Starlette's and uvicorn's behaviours survive: extensions, first byte, context variables, lifespans that fail."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
from collections.abc import MutableMapping
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


def recorded_of(
    recorded: Recorded, *sent: MutableMapping[str, Any], incoming: list[object] | None = None, extensions: object = None
) -> Any:
    """Serve an application that sends ``sent`` (and receives ``incoming`` before the last message)."""
    receives: list[Action] = [Receive() for _ in incoming or []]
    actions = [*map(Send, sent[:-1]), *receives, Send(sent[-1])]
    # One scope, since both must see the same object.
    script = Script({**http_scope(), "extensions": extensions}, actions, list(incoming or []))
    plain = drive(script)
    assert drive(script, recorded.wrap) == plain
    return recorded.request()


def test_a_file_sent_by_its_path_ends_the_answer_and_its_size_is_left_out(recorded: Recorded) -> None:
    record = recorded_of(recorded, START, {"type": "http.response.pathsend", "path": "/etc/hostname"})
    assert (record["outcome"], record["http.response.status_code"]) == ("ok", 200)
    assert SIZE not in record


def test_starlettes_file_response_uses_the_servers_pathsend_through_the_middleware(recorded: Recorded) -> None:
    scope = {**http_scope(), "extensions": {"http.response.pathsend": {}}}
    sent = recorded.serve(FileResponse(__file__), scope)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.pathsend"]
    assert recorded.request()["outcome"] == "ok"


def test_parts_sent_from_a_file_are_counted_where_their_size_is_reported(recorded: Recorded) -> None:
    part = {"type": "http.response.zerocopysend", "file": 0, "count": 70, "more_body": True}
    record = recorded_of(recorded, START, part, part, END)
    assert (record["outcome"], record[SIZE], record["chunks"]) == ("ok", 143, 3)


def test_a_part_sent_from_a_file_until_its_end_leaves_the_size_out(recorded: Recorded) -> None:
    part = {"type": "http.response.zerocopysend", "file": 0, "more_body": True}
    assert SIZE not in recorded_of(recorded, START, part, END)


def test_an_answer_with_trailers_is_complete_when_the_last_of_them_has_passed(recorded: Recorded) -> None:
    trailers = {"type": "http.response.trailers", "headers": [], "more_trailers": True}
    record = recorded_of(
        recorded, {**START, "trailers": True}, END, trailers, {**trailers, "more_trailers": False}, extensions=TRAILERS
    )
    assert (record["outcome"], record[SIZE]) == ("ok", 3)


def test_an_answer_whose_trailers_never_come_is_incomplete(recorded: Recorded) -> None:
    record = recorded_of(recorded, {**START, "trailers": True}, END, extensions=TRAILERS)
    assert (record["outcome"], record["error.type"]) == ("error", "response_incomplete")


def test_a_client_that_goes_before_the_trailers_has_gone(recorded: Recorded) -> None:
    gone: list[object] = [{"type": "http.disconnect"}]
    trailers = {"type": "http.response.trailers", "headers": []}
    record = recorded_of(recorded, {**START, "trailers": True}, END, trailers, incoming=gone, extensions=TRAILERS)
    assert record["outcome"] == "client_disconnect"


@pytest.mark.parametrize("extensions", [None, {}, {"http.response.pathsend": {}}, 7])
def test_trailers_that_the_server_does_not_send_are_not_missed(recorded: Recorded, extensions: object) -> None:
    record = recorded_of(recorded, {**START, "trailers": True}, END, extensions=extensions)
    assert (record["outcome"], record.get("error.type")) == ("ok", None)


@pytest.mark.parametrize(
    "sent",
    [
        [END],
        [{**END, "more_body": True}, END],
        [{**END, "body": memoryview(b"end")}],
        [{"type": "http.response.pathsend", "path": "/etc/hostname"}],
        [{"type": "http.response.zerocopysend", "file": 0, "count": 70}],
    ],
)
def test_an_answer_to_head_has_no_byte_of_a_body_since_no_server_sends_one(recorded: Recorded, sent: list[Any]) -> None:
    script = Script(http_scope(method="HEAD"), [Send(message) for message in [START, *sent]], [])
    assert drive(script, recorded.wrap) == drive(script)
    record = recorded.request()
    assert (record["outcome"], record[SIZE], record.get("chunks", 0)) == ("ok", 0, 0)


def test_early_hints_push_and_debug_pass_and_are_no_part_of_the_answer(recorded: Recorded) -> None:
    hints = {"type": "http.response.early_hint", "links": [b"</style.css>; rel=preload"]}
    debug = {"type": "http.response.debug", "info": {"template": "t", "context": {}}}
    push = {"type": "http.response.push", "path": "/style.css", "headers": []}
    record = recorded_of(recorded, hints, debug, START, push, END)
    assert (record["outcome"], record["http.response.status_code"], record[SIZE]) == ("ok", 200, 3)


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


def has_started(server: Server) -> bool:
    return b"startup complete" in b"".join(server.output)


@pytest.mark.parametrize("how", ["startup raises", "startup fails", "shutdown raises", "shutdown fails"])
def test_a_lifespan_that_fails_ends_uvicorn_as_without_us(configure: Configure, how: str) -> None:
    ends = {}
    for app in ("logged", "plain"):
        command = ["uvicorn", f"hostile_app:{app}", "--app-dir", str(HERE), "--port", "{port}", "--lifespan", "on"]
        server = Server(configure(), command, HOSTILE_LIFESPAN=how)
        try:
            if how.startswith("shutdown"):
                wait_until(functools.partial(has_started, server), "the start")
                said = server.stop()
            else:
                server.process.wait(30)
                said = server.stop()
        finally:
            server.end()
        ends[app] = (
            server.process.returncode,
            [line for line in said.splitlines() if "failed" in line or "Error" in line],
        )
    assert ends["logged"] == ends["plain"]
    assert ends["plain"][1]
