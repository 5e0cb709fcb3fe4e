"""What an application ties to a request, a model or a logger goes with it: the garbage collector sees our objects."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import weakref
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request

from inference_logging import InferenceLoggingMiddleware, Logger
from inference_logging._native import AuditQueue, EngineReader, Event
from inference_logging.triton import RequestLog
from tests.fake_triton import arguments, ok, request
from tests.support import Client, Receive, Recorded, Send, answer, http_scope

REQUESTS = int(os.environ.get("GARBAGE_REQUESTS", "20000"))
"""How many requests with cycles are served where memory is measured; 1,000,000 for the long run."""

MIB = 1 << 20
VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("held", default=None)


class Held:
    """Something of the application's that must not outlive what it is tied to."""

    def __init__(self, *members: Any) -> None:
        self.members: Any = members
        alive.add(self)

    def call(self, *_arguments: Any) -> Any:
        """Stand for any callable."""


alive: weakref.WeakSet[Held] = weakref.WeakSet()


class Server:
    """A server whose channel to the client keeps what the application was given."""

    def __init__(self) -> None:
        self.held: Any = None

    async def receive(self) -> dict[str, Any]:
        """Return an empty body."""
        return {"type": "http.request", "body": b""}

    async def send(self, message: Any) -> None:
        """Keep nothing."""


def tie_scope(scope: Any, receive: Receive, send: Send, server: Server) -> None:
    """Make a cycle through the scope."""
    scope["held"] = Held(send, receive, scope)


def tie_send(scope: Any, receive: Receive, send: Send, server: Server) -> None:
    """Make a cycle through the server's send."""
    server.held = Held(send)


def tie_receive(scope: Any, receive: Receive, send: Send, server: Server) -> None:
    """Make a cycle through the server's receive."""
    server.held = Held(receive)


def tie_waiting(scope: Any, receive: Receive, send: Send, server: Server) -> None:
    """Make a cycle through a call of receive that nobody ever awaits to its end."""
    waiting: Any = receive()
    with pytest.raises(StopIteration):
        waiting.send(None)
    server.held = Held(waiting, receive)


def tie_context(scope: Any, receive: Receive, send: Send, server: Server) -> None:
    """Make a cycle through a context of the request."""
    VARIABLE.set(Held(send, receive))
    server.held = contextvars.copy_context()


TIES = (tie_scope, tie_send, tie_receive, tie_waiting, tie_context)


def serve(middleware: InferenceLoggingMiddleware, requests: int) -> None:
    """Serve so many requests, each with a server and a context of its own, in which nothing ever waits."""
    for _ in range(requests):
        server = Server()
        served = middleware({**http_scope(), "server object": server}, server.receive, server.send)
        with pytest.raises(StopIteration):
            contextvars.Context().run(served.send, None)


def tying(*ties: Callable[..., None]) -> Callable[..., Any]:
    """Return an application that ties something of its own to each request in these ways."""

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        for tie in ties:
            tie(scope, receive, send, scope["server object"])
        for message in answer(b"ok"):
            await send(message)

    return app


def living() -> int:
    """Return how many held objects a collection leaves."""
    gc.collect()
    return len(alive)


def resident_bytes() -> int:
    """Return the memory of this process that belongs to no file."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


def test_a_service_that_keeps_its_request_in_the_requests_state_goes_with_it(recorded: Recorded) -> None:
    app = FastAPI()

    @app.get("/")
    async def route(request: Request) -> str:
        request.state.service = Held(request)
        return "ok"

    served = recorded.wrap(app)

    async def requests() -> None:
        for _ in range(300):
            client = Client()
            await served(http_scope(), client.receive, client.send)

    before = living()
    asyncio.run(requests())
    assert living() == before
    assert len(recorded.records("request")) == 300


@pytest.mark.parametrize("tie", TIES)
def test_a_cycle_through_a_request_is_collected(recorded: Recorded, tie: Callable[..., None]) -> None:
    before = living()
    serve(recorded.wrap(tying(tie)), 300)
    assert living() == before


def test_a_request_whose_application_never_ends_is_collected_with_it(recorded: Recorded) -> None:
    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        scope["held"] = Held(send, receive, scope)
        await asyncio.get_running_loop().create_future()

    async def begin(served: InferenceLoggingMiddleware) -> None:
        server = Server()
        with_cycle: Any = served(http_scope(), server.receive, server.send)
        future = with_cycle.send(None)
        future.held = with_cycle

    before = living()
    asyncio.run(begin(recorded.wrap(app)))
    assert living() == before
    assert recorded.request()["outcome"] == "server_shutdown"


def test_a_middleware_is_collected_with_its_application(recorded: Recorded) -> None:
    middlewares: weakref.WeakSet[InferenceLoggingMiddleware] = weakref.WeakSet()
    before = living()
    for _ in range(10):
        app: Any = tying(tie_scope)
        app.middleware = recorded.wrap(app)
        middlewares.add(app.middleware)
        serve(app.middleware, 3)
        app.middleware._close()
        del app
    assert living() == before
    assert not list(middlewares)


def test_a_cycle_through_a_function_that_makes_records_is_collected(open_: Callable[..., Logger]) -> None:
    logger = open_()
    service, audit = logger.service, logger.audit_service
    assert audit is not None
    queue, fields, before = AuditQueue(audit), ["trace", "request_id", "value"], living()

    def tie() -> None:
        context, opener, registered, audited = Held(), Held(), Held(), Held()
        context.members = opener.members = Event.log("held", 9, context.call, opener.call)
        registered.members = service.event("held", fields, 9, registered.call)
        audited.members = queue.event("held", fields, 9, audited.call)

    for _ in range(20):
        tie()
    assert living() == before


def test_a_cycle_through_an_engines_reader_is_collected(recorded: Recorded) -> None:
    def tie() -> None:
        take, failed = Held(), Held()
        take.members = failed.members = EngineReader(take=take.call, failed=failed.call, id_characters=8)

    before = living()
    for _ in range(20):
        tie()
    assert living() == before


@pytest.mark.usefixtures("fake_backend")
@pytest.mark.parametrize("answers", [True, False], ids=["answered", "under way"])
def test_a_model_and_its_requests_are_collected(recorded: Recorded, answers: bool) -> None:
    logs: weakref.WeakSet[RequestLog] = weakref.WeakSet()

    def tie() -> None:
        log = RequestLog(arguments(), recorded.config)
        logs.add(log)
        begun = log.begin([request(name="a"), request(name="b")])
        log.held = Held(log, begun)  # type: ignore[attr-defined]
        if answers:
            log.end(begun, [ok(), ok()])
        log.close()

    before = living()
    for _ in range(20):
        tie()
    assert living() == before
    assert not list(logs)


def test_memory_and_the_number_of_objects_stay_the_same_over_many_requests_with_cycles(recorded: Recorded) -> None:
    served, batch = recorded.wrap(tying(*TIES)), 500

    def work(batches: int) -> None:
        for _ in range(batches):
            serve(served, batch)
            assert recorded.logger.flush(60.0)

    batches = REQUESTS // batch
    # The first ones fill the allocator's pools, the process's queue and the listener's buffers.
    work(batches // 4)
    held, objects, resident = living(), len(gc.get_objects()), resident_bytes()
    work(batches - batches // 4)
    assert living() == held
    assert abs(len(gc.get_objects()) - objects) < 100
    assert resident_bytes() - resident < 2 * MIB
    assert recorded.logger.stats()["written"] == batches * batch
