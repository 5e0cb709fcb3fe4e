"""OpenTelemetry mounted together with us, around us or inside: both sides name the same trace and the same span."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import Token
from typing import Any, Literal

import pytest
from fastapi import BackgroundTasks, FastAPI, Request
from fastapi.responses import PlainTextResponse, StreamingResponse
from fastapi.testclient import TestClient
from opentelemetry import baggage, context, trace
from opentelemetry.context import Context
from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from inference_logging import InferenceLoggingMiddleware, current_request, get_logger
from tests.kit.signatures import App, Receive, Recording, Send
from tests.kit.support import (
    PARENT_ID,
    TRACE_ID,
    TRACEPARENT,
    Client,
    Recorded,
    answer,
    body_messages,
    doing,
    http_scope,
    replying,
    serve_one,
)

Excluded = list[Literal["receive", "send"]] | None
Order = Literal["outside", "inside"]

log = get_logger("app")


class Tracer:
    """A tracer provider of its own, and the spans that have ended."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def middleware(self, app: App, exclude_spans: Excluded = None) -> App:
        return OpenTelemetryMiddleware(app, tracer_provider=self.provider, exclude_spans=exclude_spans)

    def mount(self, recorded: Recorded, app: App, order: Order, exclude_spans: Excluded = None) -> App:
        """Return ``app`` behind both, OpenTelemetry outside of us or inside."""
        if order == "outside":
            return self.middleware(recorded.wrap(app), exclude_spans)
        return recorded.wrap(self.middleware(app, exclude_spans))

    def span(self, *, kind: trace.SpanKind = trace.SpanKind.SERVER, name: str | None = None) -> ReadableSpan:
        """Return the one span of this kind, or of this name."""
        spans = self.exporter.get_finished_spans()
        found = [span for span in spans if (span.name == name if name else span.kind is kind)]
        assert len(found) == 1, [span.name for span in spans]
        return found[0]


@pytest.fixture
def tracer() -> Tracer:
    return Tracer()


@pytest.fixture(params=["outside", "inside"])
def order(request: pytest.FixtureRequest) -> Order:
    return request.param  # type: ignore[no-any-return] # pytest does not know what it was given


def ids(span: ReadableSpan) -> tuple[str, str]:
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def ids_of(record: dict[str, Any]) -> tuple[str, str]:
    return record["trace_id"], record["span_id"]


def serve(app: App, *headers: tuple[bytes, bytes]) -> None:
    client = Client(body_messages(b"{}"))
    serve_one(app, http_scope("/v1/x", "POST", headers), client)


EXCLUDED: list[Excluded] = [None, ["send"], ["receive"], ["receive", "send"]]


@pytest.mark.parametrize("exclude_spans", EXCLUDED)
@pytest.mark.parametrize("parts", [[b"whole"], [b"a", b"b", b"c"]], ids=["whole", "stream"])
@pytest.mark.parametrize("headers", [[], [(b"traceparent", TRACEPARENT)]], ids=["root", "continued"])
def test_the_records_of_a_request_carry_the_ids_of_its_server_span(
    recording: Recording,
    tracer: Tracer,
    order: Order,
    exclude_spans: Excluded,
    parts: list[bytes],
    headers: list[tuple[bytes, bytes]],
) -> None:
    recorded = recording(chunks="events")

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        log.info("before the body")
        await replying(*answer(*parts))(scope, receive, send)
        log.info("after the answer")

    serve(tracer.mount(recorded, app, order, exclude_spans), *headers)
    span = tracer.span()
    records = recorded.records()
    assert {ids_of(record) for record in records} == {ids(span)}
    assert len(records) == 3 + (len(parts) if len(parts) > 1 else 0)
    request = recorded.request()
    assert {record["request_id"] for record in records} == {request["request_id"]}
    assert request["request_id"] != request["span_id"]
    assert request.get("parent_span_id") == (PARENT_ID if headers else None)
    assert request["trace_id"] == TRACE_ID if headers else request["trace_id"] != TRACE_ID


def test_a_record_made_within_a_span_of_the_application_carries_that_span(
    recorded: Recorded, tracer: Tracer, order: Order
) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        with tracer.tracer.start_as_current_span("generate"):
            log.info("inside")
            request = current_request()
            assert request is not None
            context = trace.get_current_span().get_span_context()
            assert int(request.trace_id, 16) == context.trace_id
            assert int(request.span_id, 16) == context.span_id
        await replying(*answer(b"x"))(scope, receive, send)

    serve(tracer.mount(recorded, app, order))
    (inside,) = recorded.records("log")
    assert ids_of(inside) == ids(tracer.span(name="generate"))
    assert ids_of(recorded.request()) == ids(tracer.span())


def test_an_answer_that_begins_within_a_span_of_the_application_is_still_the_server_spans(
    recorded: Recorded, tracer: Tracer, order: Order
) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        with tracer.tracer.start_as_current_span("generate"):
            await replying(*answer(b"a", b"b"))(scope, receive, send)

    serve(tracer.mount(recorded, app, order, ["receive", "send"]))
    assert ids_of(recorded.request()) == ids(tracer.span())


@pytest.mark.parametrize("exclude_spans", EXCLUDED)
def test_a_request_that_the_tracer_does_not_sample_carries_the_same_ids_everywhere(
    recorded: Recorded, order: Order, exclude_spans: Excluded
) -> None:
    tracer, seen = Tracer(ALWAYS_OFF), []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        seen.append(trace.get_current_span().get_span_context())
        log.info("inside")
        await replying(*answer(b"a", b"b"))(scope, receive, send)

    serve(tracer.mount(recorded, app, order, exclude_spans))
    expected = (f"{seen[0].trace_id:032x}", f"{seen[0].span_id:016x}")
    assert [ids_of(record) for record in recorded.records()] == [expected] * 2
    assert int(recorded.request()["trace_flags"], 16) & 1 == 0


def test_calls_to_other_services_are_children_of_the_active_span(
    recorded: Recorded, tracer: Tracer, order: Order
) -> None:
    made: list[dict[str, str]] = []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        request = current_request()
        assert request is not None
        for name in ("first", "second"):
            with tracer.tracer.start_as_current_span(name, kind=trace.SpanKind.CLIENT):
                made.append(request.outgoing_headers())
        await replying(*answer(b"x"))(scope, receive, send)

    serve(
        tracer.mount(recorded, app, order),
        (b"traceparent", TRACEPARENT),
        (b"tracestate", b"foo=1"),
        (b"tracestate", b"b=2"),
    )
    for name, headers in zip(("first", "second"), made, strict=True):
        assert headers["traceparent"].split("-")[1:3] == list(ids(tracer.span(name=name)))
        assert headers["tracestate"] == "foo=1,b=2"


def test_the_sampler_decides_by_the_tracers_trace_id(recording: Recording, order: Order) -> None:
    recorded, tracer = recording(sample_ratio=0.5), Tracer()
    app = tracer.mount(recorded, replying(*answer(b"x")), order)
    for _ in range(60):
        serve(app)
    spans = tracer.exporter.get_finished_spans()
    traces = [ids(span)[0] for span in spans if span.kind is trace.SpanKind.SERVER]
    kept = [record["trace_id"] for record in recorded.records("request")]
    assert kept == [name for name in traces if int(name[-14:], 16) >= 1 << 55]
    assert 0 < len(kept) < len(traces) == 60


def test_a_trace_that_a_client_sent_by_headers_that_only_the_tracer_reads_is_not_decided_by_its_id(
    recording: Recording,
) -> None:
    recorded, tracer = recording(sample_ratio=0.25), Tracer()
    traces = [2**128 - number for number in range(1, 201)]
    inner = recorded.wrap(replying(*answer(b"x")))

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        # As with a propagator of another format: a remote parent, and no traceparent.
        parent = trace.SpanContext(traces[len(served)], 1, is_remote=True, trace_flags=trace.TraceFlags(1))
        remote = trace.set_span_in_context(trace.NonRecordingSpan(parent))
        with tracer.tracer.start_as_current_span("GET", context=remote, kind=trace.SpanKind.SERVER):
            await inner(scope, receive, send)

    served: list[int] = []
    for number in traces:
        serve(app)
        served.append(number)
    records = recorded.records("request")
    assert {int(record["trace_id"], 16) for record in records} < set(traces)
    assert 20 <= len(records) <= 80, "about a quarter of 200, though each id is among the highest"


def test_a_task_that_outlives_its_request_keeps_the_ids_and_flushing_later_changes_none(
    recorded: Recorded, tracer: Tracer, order: Order
) -> None:
    async def main() -> None:
        tasks, go = [], asyncio.Event()

        async def later() -> None:
            await go.wait()
            log.info("later")

        async def app(scope: Any, receive: Receive, send: Send) -> None:
            log.info("during")
            tasks.append(asyncio.create_task(later()))
            await replying(*answer(b"x"))(scope, receive, send)

        client = Client()
        await tracer.mount(recorded, app, order)(http_scope(), client.receive, client.send)
        go.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    with tracer.tracer.start_as_current_span("while it is flushed"):
        records = recorded.records()
    assert {ids_of(record) for record in records} == {ids(tracer.span())}
    assert len({record["request_id"] for record in records}) == 1


def test_a_record_outside_of_any_request_carries_the_active_span_and_no_request_id(
    recorded: Recorded, tracer: Tracer
) -> None:
    with tracer.tracer.start_as_current_span("job"):
        log.info("inside")
    log.info("outside")
    inside, outside = recorded.records("log")
    assert ids_of(inside) == ids(tracer.span(name="job"))
    assert "request_id" not in inside
    assert "trace_id" not in outside


def test_registered_events_carry_the_active_span_like_application_records(
    recorded: Recorded, tracer: Tracer, order: Order
) -> None:
    emit = recorded.logger.event("step", ["n"], with_request=True)

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        with tracer.tracer.start_as_current_span("step"):
            emit(1)
        await replying(*answer(b"x"))(scope, receive, send)

    serve(tracer.mount(recorded, app, order))
    (step,) = recorded.records("step")
    assert ids_of(step) == ids(tracer.span(name="step"))
    assert step["request_id"] == recorded.request()["request_id"]


def test_with_the_headers_as_source_no_tracer_is_asked(recording: Recording, order: Order) -> None:
    recorded, tracer = recording(trace_source="header"), Tracer()

    serve(tracer.mount(recorded, doing(lambda: log.info("inside")), order))
    request = recorded.request()
    assert request["trace_id"] != ids(tracer.span())[0]
    assert request["span_id"] == request["request_id"]
    assert {ids_of(record) for record in recorded.records()} == {ids_of(request)}


class OwnContext(ContextVarsRuntimeContext):
    """A context that an application has configured (``OTEL_PYTHON_CONTEXT``): not where ours is looked for."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere, self._current_context = self._current_context, None  # type: ignore[assignment]

    def attach(self, context: Context) -> Token[Context]:
        return self.elsewhere.set(context)

    def get_current(self) -> Context:
        return self.elsewhere.get()

    def detach(self, token: Token[Context]) -> None:
        self.elsewhere.reset(token)


@pytest.mark.parametrize("is_own", [False, True], ids=["the context variable", "a context of the application"])
def test_spans_are_seen_whatever_holds_the_context(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, tracer: Tracer, order: Order, is_own: bool
) -> None:
    if is_own:
        monkeypatch.setattr("opentelemetry.context._RUNTIME_CONTEXT", OwnContext())
    recorded = recording()

    log.info("outside")
    token = context.attach(baggage.set_baggage("a", "b"))
    log.info("outside")
    serve(tracer.mount(recorded, doing(lambda: log.info("inside")), order))
    context.detach(token)
    first, second, inside = recorded.records("log")
    assert "trace_id" not in first
    assert "trace_id" not in second
    assert ids_of(inside) == ids_of(recorded.request()) == ids(tracer.span())


# --- FastAPI, as applications mount it -------------------------------------------------------------------------------


def make_fastapi() -> FastAPI:
    app = FastAPI()

    def in_background() -> None:
        log.info("in the background")

    @app.get("/stream")
    async def stream(background: BackgroundTasks) -> StreamingResponse:
        log.info("in the handler")
        background.add_task(in_background)
        return StreamingResponse(iter(["a", "b"]), background=background)

    @app.get("/thread")
    def thread() -> PlainTextResponse:
        log.info("in a thread")
        return PlainTextResponse("x")

    @app.post("/broken")
    async def broken(request: Request) -> None:
        await request.body()
        raise ValueError("broken")

    return app


@pytest.fixture(params=["instrumented", "added after ours", "added before ours"])
def instrumented(
    request: pytest.FixtureRequest, recorded: Recorded, tracer: Tracer
) -> Iterator[tuple[FastAPI, Recorded, Tracer]]:
    """Return an application with both: by FastAPIInstrumentor (always outermost), or by add_middleware."""
    app = make_fastapi()
    if request.param == "instrumented":
        FastAPIInstrumentor.instrument_app(app, tracer_provider=tracer.provider)
    if request.param == "added before ours":
        app.add_middleware(OpenTelemetryMiddleware, tracer_provider=tracer.provider)
    app.add_middleware(InferenceLoggingMiddleware, config=recorded.config)
    if request.param == "added after ours":
        app.add_middleware(OpenTelemetryMiddleware, tracer_provider=tracer.provider)
    yield app, recorded, tracer
    if request.param == "instrumented":
        FastAPIInstrumentor.uninstrument_app(app)


@pytest.mark.parametrize("path", ["/stream", "/thread", "/missing"])
def test_a_fastapi_application_and_its_tracer_name_the_same_span(
    instrumented: tuple[FastAPI, Recorded, Tracer], path: str
) -> None:
    app, recorded, tracer = instrumented
    TestClient(app).get(path)
    records = [record for record in recorded.records() if record.get("message") != "in the background"]
    assert {ids_of(record) for record in records} == {ids(tracer.span())}
    # OpenTelemetry gives a background task a span of its own, in the same trace.
    assert {record["trace_id"] for record in recorded.records()} == {ids(tracer.span())[0]}


def test_a_fastapi_request_that_fails_carries_the_server_span(instrumented: tuple[FastAPI, Recorded, Tracer]) -> None:
    app, recorded, tracer = instrumented
    response = TestClient(app, raise_server_exceptions=False).post("/broken", json={})
    assert response.status_code == 500
    record = recorded.request()
    assert (record["outcome"], record["error.type"]) == ("error", "ValueError")
    assert ids_of(record) == ids(tracer.span())
