"""Memory is bounded, and what an application ties to a request, a model or a logger goes with it."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import os
import tracemalloc
import weakref
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request

from inference_logging import InferenceLoggingMiddleware, Logger, get_logger
from inference_logging._native import AuditQueue, EngineReader, Event
from inference_logging.triton import RequestLog
from tests.kit.fake_triton import arguments, ok, request
from tests.kit.signatures import Configure, Receive, Recording, Send
from tests.kit.sinks import small_file_system
from tests.kit.support import Client, Recorded, answer, body_messages, http_scope, replying, resident_bytes

KIB = 1 << 10
MIB = 1 << 20
STREAMS = 500
JSON = [(b"content-type", b"application/json")]


def fill(recorded: Recorded) -> int:
    """Log until the queue has refused 1,000 records in a row of the highest level; return how many it took."""
    log, accepted, refused = get_logger("full"), 0, 0
    while refused < 1000:
        if log.critical("x" * 1000, n=accepted):
            accepted, refused = accepted + 1, 0
        else:
            refused += 1
    return accepted


@pytest.mark.servers
def test_a_full_queue_has_the_size_that_was_configured_and_counts_what_it_refuses(recording: Recording) -> None:
    recorded = recording(listener="external", drain_deadline_s=0, queue_bytes=MIB)
    accepted = fill(recorded)
    stats = recorded.logger.stats()
    assert (stats["accepted"], stats["in_queue"]) == (accepted, accepted)
    assert 0.95 * MIB <= stats["bytes_in_queue"] <= MIB
    assert stats["dropped"] == {"queue_full": {"FATAL": 1000}}
    (queue,) = recorded.config.resolved_queue_directory.glob("*.queue")
    # Header and schemas, the slots of requests in flight, the records.
    assert queue.stat().st_size == 64 * KIB + recorded.config.in_flight_slots * 2 * KIB + MIB


@pytest.mark.servers
def test_info_is_refused_at_four_fifths_and_warnings_still_find_room(recording: Recording) -> None:
    recorded = recording(listener="external", drain_deadline_s=0, queue_bytes=MIB)
    log = get_logger("overflow")
    while log.info("x" * 1000):
        pass
    assert 0.78 * MIB <= recorded.logger.stats()["bytes_in_queue"] <= 0.8 * MIB
    assert not log.info("x" * 1000)
    assert log.warning("x" * 1000)
    fill(recorded)
    assert not log.critical("x" * 1000)
    assert set(recorded.logger.stats()["dropped"]["queue_full"]) == {"INFO", "FATAL"}


@pytest.mark.servers
def test_what_a_full_queue_refused_is_reported_in_band_once_there_is_a_listener(recording: Recording) -> None:
    blocked = recording(listener="external", drain_deadline_s=0, queue_bytes=MIB)
    accepted = fill(blocked)
    listening = recording()
    while listening.logger.backlog_records():
        assert listening.logger.flush()
    records = listening.records()
    reported = [record for record in records if record["event_name"] == "log.dropped"]
    assert sum(record["dropped"] for record in reported) == 1000
    assert reported[-1]["reasons"] == {"queue_full": {"FATAL": 1000}}
    assert len([record for record in records if record["event_name"] == "log"]) == accepted


def streaming(recorded: Recorded, requests: int) -> Callable[[], None]:
    """Return what serves so many streams."""
    served = recorded.wrap(replying(*answer(*[b"data: x\n\n"] * 20, content_type=b"text/event-stream")))

    async def serve() -> None:
        for _ in range(requests):
            client = Client(body_messages(b"{}"))
            await served(http_scope("/v1", "POST", JSON), client.receive, client.send)

    return lambda: asyncio.run(serve())


def growth_bytes(*work: Callable[[], object], warm: int) -> int:
    """Return by how much the process grows while work is done 8 times, after it was done ``warm`` times."""

    def do(times: int) -> None:
        for part in work * times:
            part()

    do(warm)
    before = resident_bytes()
    do(8)
    return resident_bytes() - before


@pytest.mark.servers
def test_under_a_full_queue_neither_logging_nor_serving_makes_the_process_grow(recording: Recording) -> None:
    recorded = recording(listener="external", drain_deadline_s=0, queue_bytes=MIB)
    # 4,000 requests; one kilobyte kept of each would be four times this.
    assert growth_bytes(streaming(recorded, 500), lambda: fill(recorded), warm=1) < MIB
    assert recorded.logger.stats()["dropped"]["queue_full"]["INFO"] > 0


@pytest.mark.servers
def test_serving_and_writing_for_long_does_not_make_the_process_grow(recording: Recording) -> None:
    recorded = recording(rotate_bytes=MIB)
    assert growth_bytes(streaming(recorded, 1000), recorded.logger.flush, warm=3) < 2 * MIB
    assert len(recorded.records("request")) == 11_000


def memory_of_streams(recorded: Recorded | None) -> tuple[int, int]:
    """Return what streams under way hold, each after 300 chunks: bytes of Python, bytes of the process."""
    request = json.dumps({"messages": "m" * 10_000, "model": "llama"}).encode()
    part = {"type": "http.response.body", "body": b"data: " + b"t" * 200 + b"\n\n", "more_body": True}

    async def discard(message: MutableMapping[str, Any]) -> None: ...

    async def run() -> tuple[int, int]:
        begun, ending, all_begun = [], asyncio.Event(), asyncio.Event()

        async def app(scope: Any, receive: Receive, send: Send) -> None:
            await receive()
            await send(answer(b"", content_type=b"text/event-stream")[0])
            for _ in range(300):
                await send(dict(part))
            begun.append(True)
            if len(begun) == STREAMS:
                all_begun.set()
            await ending.wait()
            await send({"type": "http.response.body", "body": b""})

        served, messages = recorded.wrap(app) if recorded is not None else app, body_messages(request)

        def one() -> Any:
            return served(http_scope("/v1/chat/completions", "POST", JSON), Client(messages).receive, discard)

        gc.collect()
        tracemalloc.start()
        process, (python, _) = resident_bytes(), tracemalloc.get_traced_memory()
        tasks = [asyncio.ensure_future(one()) for _ in range(STREAMS)]
        await all_begun.wait()
        grown = resident_bytes() - process, tracemalloc.get_traced_memory()[0] - python
        tracemalloc.stop()
        ending.set()
        await asyncio.gather(*tasks)
        return grown[1], grown[0]

    return asyncio.run(run())


@pytest.mark.servers
def test_many_long_streams_hold_a_few_kilobytes_each(recording: Recording) -> None:
    recorded = recording(queue_bytes=16 * MIB)
    recorded.serve(replying(*answer(b"a", b"b")))
    without, with_middleware = memory_of_streams(None), memory_of_streams(recorded)
    python, process = (got - had for got, had in zip(with_middleware, without, strict=True))
    assert python < STREAMS * 4096
    # Captures (1 KiB head and 2 KiB tail of the request, 2 KiB tail of the answer), timeline (256 gaps of 4 bytes),
    # and the allocator's own share; the answer alone has 63 kB.
    assert process < STREAMS * 16 * 1024
    assert len(recorded.records("request")) == STREAMS + 1


@pytest.mark.servers
def test_a_logger_that_was_closed_leaves_no_memory_and_no_descriptor_behind(
    configure: Configure, tmp_path: Path
) -> None:
    with small_file_system(tmp_path / "small", "64m") as small:
        config = configure(queue_directory=small / "queues", queue_bytes=16 * MIB)
        Logger(config).close()
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(8):  # Four of them would fill the file system.
            with Logger(config) as logger:
                assert logger.event("step", [])()
        assert len(list(Path("/proc/self/fd").iterdir())) == before


REQUESTS = int(os.environ.get("GARBAGE_REQUESTS", "10000"))
"""How many requests with cycles are served where memory is measured; 1,000,000 for the long run."""
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
    scope["held"] = Held(send, receive, scope)


def tie_send(scope: Any, receive: Receive, send: Send, server: Server) -> None:
    server.held = Held(send)


def tie_receive(scope: Any, receive: Receive, send: Send, server: Server) -> None:
    server.held = Held(receive)


def tie_waiting(scope: Any, receive: Receive, send: Send, server: Server) -> None:
    """Make a cycle through a call of receive that nobody ever awaits to its end."""
    waiting: Any = receive()
    with pytest.raises(StopIteration):
        waiting.send(None)
    server.held = Held(waiting, receive)


def tie_context(scope: Any, receive: Receive, send: Send, server: Server) -> None:
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


@contextmanager
def leaving_nothing() -> Iterator[None]:
    """Do what is within, after which a collection must leave no held object more."""
    gc.collect()
    before = len(alive)
    yield
    gc.collect()
    assert len(alive) == before


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

    with leaving_nothing():
        asyncio.run(requests())
    assert len(recorded.records("request")) == 300


@pytest.mark.parametrize("tie", TIES)
def test_a_cycle_through_a_request_is_collected(recorded: Recorded, tie: Callable[..., None]) -> None:
    served = recorded.wrap(tying(tie))
    with leaving_nothing():
        serve(served, 300)


def test_a_request_whose_application_never_ends_is_collected_with_it(recorded: Recorded) -> None:
    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        scope["held"] = Held(send, receive, scope)
        await asyncio.get_running_loop().create_future()

    async def begin(served: InferenceLoggingMiddleware) -> None:
        server = Server()
        with_cycle: Any = served(http_scope(), server.receive, server.send)
        future = with_cycle.send(None)
        future.held = with_cycle

    with leaving_nothing():
        asyncio.run(begin(recorded.wrap(app)))
    assert recorded.request()["outcome"] == "server_shutdown"


def test_a_middleware_is_collected_with_its_application(recorded: Recorded) -> None:
    middlewares: weakref.WeakSet[InferenceLoggingMiddleware] = weakref.WeakSet()
    with leaving_nothing():
        for _ in range(10):
            app: Any = tying(tie_scope)
            app.middleware = recorded.wrap(app)
            middlewares.add(app.middleware)
            serve(app.middleware, 3)
            app.middleware._close()
            del app
    assert not list(middlewares)


def test_a_cycle_through_a_function_that_makes_records_is_collected(open_: Callable[..., Logger]) -> None:
    logger = open_()
    service, audit = logger.service, logger.audit_service
    assert audit is not None
    queue, fields = AuditQueue(audit), ["trace", "request_id", "value"]

    def tie() -> None:
        context, opener, registered, audited = Held(), Held(), Held(), Held()
        context.members = opener.members = Event.log("held", 9, context.call, opener.call)
        registered.members = service.event("held", fields, 9, registered.call)
        audited.members = queue.event("held", fields, 9, audited.call)

    with leaving_nothing():
        for _ in range(20):
            tie()


def test_a_cycle_through_an_engines_reader_is_collected(recorded: Recorded) -> None:
    def tie() -> None:
        take, failed = Held(), Held()
        take.members = failed.members = EngineReader(take=take.call, failed=failed.call, id_characters=8)

    with leaving_nothing():
        for _ in range(20):
            tie()


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

    with leaving_nothing():
        for _ in range(20):
            tie()
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
    with leaving_nothing():
        objects, resident = len(gc.get_objects()), resident_bytes()
        work(batches - batches // 4)
    assert abs(len(gc.get_objects()) - objects) < 100
    assert resident_bytes() - resident < 2 * MIB
    assert recorded.logger.stats()["written"] == batches * batch
