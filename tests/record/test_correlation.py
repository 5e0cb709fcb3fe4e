"""The client's request id on records and answers, and what the application says of its request by `set`."""

from __future__ import annotations

import inspect
import uuid
from typing import Any, Literal

import pytest
from asgi_correlation_id import CorrelationIdMiddleware
from asgi_correlation_id.context import correlation_id
from fastapi import FastAPI
from fastapi.testclient import TestClient

from inference_logging import Config, ConfigError, InferenceLoggingMiddleware, current_request
from inference_logging._native import RequestIds
from tests.kit.identity import BODY, served
from tests.kit.identity import answer as answer_ok
from tests.kit.signatures import App, Configure, Message, Receive, Recording, Send
from tests.kit.support import Client, Recorded, answer, http_scope, raising, replying, serve_one

Order = Literal["outside", "inside"]
KNOWN = uuid.UUID(int=7, version=4).hex


@pytest.fixture(params=["outside", "inside"])
def order(request: pytest.FixtureRequest) -> Order:
    return request.param  # type: ignore[no-any-return] # pytest does not know what it was given


def mount(recorded: Recorded, app: App, order: Order, **options: Any) -> App:
    if order == "outside":
        return CorrelationIdMiddleware(recorded.wrap(app), **options)
    return recorded.wrap(CorrelationIdMiddleware(app, **options))


def serve(app: App, *headers: tuple[bytes, bytes]) -> dict[bytes, list[bytes]]:
    """Serve one request in a context of its own; return the headers of its answer."""
    client = Client()
    serve_one(app, http_scope(headers=headers), client)
    sent: dict[bytes, list[bytes]] = {}
    for name, value in client.sent[0]["headers"]:
        sent.setdefault(name.lower(), []).append(value)
    return sent


@pytest.mark.parametrize("header_name", ["X-Request-ID", "X-Correlation-ID"])
@pytest.mark.parametrize("update_request_header", [True, False])
@pytest.mark.parametrize("value", [KNOWN.encode(), b"not a uuid", b"", None])
def test_the_correlation_id_is_the_clients_id_in_the_record(
    recorded: Recorded, order: Order, header_name: str, update_request_header: bool, value: bytes | None
) -> None:
    seen: list[tuple[str | None, str | None]] = []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        request = current_request()
        assert request is not None
        seen.append((request.client_request_id, correlation_id.get()))
        await replying(*answer(b"x"))(scope, receive, send)

    mounted = mount(recorded, app, order, header_name=header_name, update_request_header=update_request_header)
    sent = serve(mounted, *([(header_name.lower().encode(), value)] if value is not None else []))
    (inside, expected) = seen[0]
    record = recorded.request()
    assert inside == expected == record["client_request_id"]
    assert sent[header_name.lower().encode()] == [record["client_request_id"].encode()]
    assert (record["client_request_id"] == KNOWN) is (value == KNOWN.encode())
    assert record["request_id"] == record["span_id"]


def test_the_correlation_id_is_known_where_the_application_fails(recorded: Recorded, order: Order) -> None:
    with pytest.raises(ValueError, match="no answer"):
        serve(mount(recorded, raising(ValueError("no answer")), order), (b"x-request-id", KNOWN.encode()))
    assert recorded.request()["client_request_id"] == KNOWN


def test_a_correlation_id_that_is_no_id_is_left_out(recorded: Recorded, order: Order) -> None:
    app = mount(
        recorded, replying(*answer(b"x")), order, validator=None, transformer=lambda value: value + "\nforged: 1"
    )
    serve(app, (b"x-request-id", b"good"))
    # Outside of us it puts its id into the request's headers, so that there is no other left.
    assert recorded.request().get("client_request_id") == ("good" if order == "inside" else None)
    assert len(recorded.records()) == 1


def test_with_the_headers_as_source_the_correlation_id_is_not_asked(recording: Recording) -> None:
    recorded = recording(trace_source="header")
    serve(mount(recorded, replying(*answer(b"x")), "inside"), (b"x-request-id", b"as sent"), (b"x", b"y"))
    assert "client_request_id" not in recorded.request()


def start_of(recorded: Recorded, start: Message, *headers: tuple[bytes, bytes]) -> Message:
    sent = recorded.serve(replying(start, {"type": "http.response.body", "body": b"x"}), http_scope(headers=headers))
    assert len(sent) == 2
    return sent[0]


def message(headers: object) -> Message:
    return {"type": "http.response.start", "status": 200, "headers": headers}


ID = b"x-request-id"


@pytest.mark.parametrize(
    "headers", [[(b"a", b"1"), (b"b", b"2")], ((b"a", b"1"), (b"b", b"2")), [[b"a", b"1"], [b"b", b"2"]]]
)
def test_each_answer_carries_the_id_after_the_applications_headers_in_a_message_of_its_own(
    recording: Recording, headers: Any
) -> None:
    recorded = recording(response_header="X-Request-Id")
    original = message(headers)
    before = dict(original)
    sent = start_of(recorded, original)
    record = recorded.request()
    assert [tuple(pair) for pair in sent["headers"]] == [
        (b"a", b"1"),
        (b"b", b"2"),
        (ID, record["request_id"].encode()),
    ]
    assert sent is not original
    assert original == before
    assert original["headers"] is headers
    assert len(headers) == 2


def test_the_clients_valid_id_goes_back_and_a_hostile_one_does_not(recording: Recording) -> None:
    recorded = recording(response_header="x-request-id")
    assert (ID, b"req-1") in start_of(recorded, message([]), (ID, b"req-1"))["headers"]
    for hostile in (b"a\r\nset-cookie: b", b"x" * 1_000_000, b"", b"\xff"):
        headers = start_of(recorded, message([]), (ID, hostile))["headers"]
        assert len(headers) == 1
        assert headers[0][1] == recorded.records("request")[-1]["request_id"].encode()


@pytest.mark.parametrize("name", [b"x-request-id", b"X-Request-ID", b"X-REQUEST-ID"])
def test_an_id_that_the_application_sends_itself_stays_and_is_not_doubled(recording: Recording, name: bytes) -> None:
    recorded = recording(response_header="X-Request-Id")
    original = message([(name, b"its own")])
    assert start_of(recorded, original, (ID, b"req-1")) is original
    assert original["headers"] == [(name, b"its own")]


@pytest.mark.parametrize("odd", [None, "text", 7, b"bytes", {"a": 1}, {(b"a", b"b")}])
def test_headers_of_another_kind_pass_untouched(recording: Recording, odd: object) -> None:
    original = message(odd)
    assert start_of(recording(response_header="X-Request-Id"), original) is original


def test_headers_that_can_only_be_read_once_are_left_to_the_server(recording: Recording) -> None:
    original = message(iter([(b"a", b"1")]))
    sent = start_of(recording(response_header="X-Request-Id"), original)
    assert list(sent["headers"]) == [(b"a", b"1")]


def test_an_answer_without_headers_gets_the_id_as_its_only_one(recording: Recording) -> None:
    sent = start_of(recording(response_header="X-Id"), {"type": "http.response.start", "status": 204}, (ID, b"req-1"))
    assert sent["headers"] == [(b"x-id", b"req-1")]


def test_without_the_option_the_message_is_the_applications(recorded: Recorded) -> None:
    original = message([])
    assert start_of(recorded, original) is original


@pytest.mark.parametrize("header_name", ["X-Request-ID", "X-Correlation-ID"])
@pytest.mark.parametrize("value", [KNOWN.encode(), b"not a uuid", None])
def test_beside_asgi_correlation_id_no_header_is_doubled(
    recording: Recording, order: Order, header_name: str, value: bytes | None
) -> None:
    recorded = recording(response_header="X-Request-Id")
    app = mount(recorded, replying(*answer(b"x")), order, header_name=header_name)
    sent = serve(app, *([(header_name.lower().encode(), value)] if value is not None else []))
    expected = recorded.request()["client_request_id"].encode()
    names = {header_name.lower().encode(), *([ID] if order == "inside" else [])}
    assert {name: sent.get(name) for name in (ID, header_name.lower().encode())} == {
        name: [expected] if name in names else None for name in (ID, header_name.lower().encode())
    }


def test_a_fastapi_application_answers_with_the_id_on_every_route_and_error(recording: Recording) -> None:
    recorded = recording(response_header="X-Request-Id")
    app = FastAPI()
    app.add_middleware(InferenceLoggingMiddleware, config=recorded.config)
    app.get("/a")(lambda: "a")
    client = TestClient(app)
    answered = [client.get(path, headers={"X-Request-Id": path[1:]}) for path in ("/a", "/missing")]
    assert [response.headers.get_list("x-request-id") for response in answered] == [["a"], ["missing"]]


@pytest.mark.parametrize("name", ["X Request", "X-Request-Id:", "x\r\ny", "é", "x" * 65, "(x)"])
def test_a_header_name_that_is_no_token_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="response_header"):
        Config(response_header=name)


def outcome(request: RequestIds, fields: dict[str, Any]) -> object:
    """Return what ``set`` returns, or the words of its error."""
    try:
        return request.set(**fields)
    except (TypeError, ValueError) as error:
        return str(error)


def setting(results: list[Any], *calls: dict[str, Any]) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = current_request()
        assert request is not None
        results.extend(outcome(request, fields) for fields in calls)
        await answer_ok(scope, receive, send)
        results.append(request)

    return app


def test_fields_that_the_application_sets_are_in_the_record_and_its_ids_go_before_headers(keyed: Configure) -> None:
    results: list[Any] = []
    app = setting(
        results,
        {"tenant.id": "own", "enduser.id": "u-1", "queue": "fast", "n": 7, "ratio": 0.5, "cached": False},
        {"n": 2**64 - 1, "gen_ai.conversation.id": "c-1"},
    )
    config = keyed(record_headers=["x-tenant=tenant.id", "x-team"])
    record = served(config, {"x-tenant": "header", "x-team": "search"}, app=app)
    assert results[:2] == [True, True]
    assert results[2].set(late=1) is False, "the record is made"
    assert (record["tenant.id"], record["enduser.id"], record["gen_ai.conversation.id"]) == ("own", "u-1", "c-1")
    assert record["http.request.header.x-team"] == "search"
    assert record["attributes"] == {"queue": "fast", "n": 2**64 - 1, "ratio": 0.5, "cached": False}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"a": None}, "set: a is of type NoneType, must be str, int, float or bool"),
        ({"a": [1]}, "set: a is of type list"),
        ({"tenant.id": 7}, "set: tenant.id is of type int, must be str"),
        ({"a": "x" * 257}, "set: a has 257 bytes, must have at most 256"),
        ({"a": "\ud800"}, "set: a must be UTF-8"),
        ({"a": 2**64}, "set: a is no number of 64 bits"),
        ({"x" * 65: 1}, "has 65 bytes, must have 1 to 64"),
        ({"": 1}, "has 0 bytes"),
        ({f"a{number}": 1 for number in range(31)}, "set: the request has 33 fields, must have at most 32"),
    ],
)
def test_a_field_that_cannot_be_is_refused_and_sets_none_of_its_call(
    configure: Configure, fields: dict[str, Any], why: str
) -> None:
    results: list[Any] = []
    record = served(configure(), {}, app=setting(results, {"kept": 1}, {"also": 1, **fields}))
    assert results[0] is True
    assert why in results[1]
    assert record["attributes"] == {"kept": 1}


def test_set_takes_keywords_alone_of_its_own_class_and_says_so() -> None:
    assert str(inspect.signature(RequestIds.set)) == "(self, /, **fields)"
    assert (RequestIds.set.__doc__ or "").startswith("Set fields of the request's record, by name;")
    with pytest.raises(TypeError, match="RequestIds"):
        RequestIds.set("no request", a=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_fields_are_in_the_record_whenever_they_are_set_beside_headers_and_members_of_the_body(
    keyed: Configure, moment: str
) -> None:
    results: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = current_request()
        assert request is not None
        results.append(outcome(request, {}))
        with pytest.raises(TypeError, match="takes 0 positional arguments but 1 were given"):
            request.set({"a": 1})  # type: ignore[call-arg]
        if moment == "before":
            results.append(outcome(request, {"enduser.id": "u-1", "n": 1}))
        await answer_ok(scope, receive, send)
        results.append(outcome(request, {"enduser.id": "u-2", "m": 2}))

    config = keyed(record_headers=["x-tenant=tenant.id", "x-user=enduser.id"], record_body_fields=["user"])
    record = served(config, {"x-tenant": "acme", "x-user": "header"}, BODY, app)
    assert results == [True] * len(results)
    assert (record["tenant.id"], record["enduser.id"]) == ("acme", "u-2")
    assert record["openai.request.user"] == BODY["user"]
    assert record["attributes"] == ({"n": 1, "m": 2} if moment == "before" else {"m": 2})
