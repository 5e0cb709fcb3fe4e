"""The fields of a request's record: route, sizes, times, chunks, ids, sampling."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from inference_logging import InferenceLoggingMiddleware, current_request
from tests.kit.signatures import Message, Receive, Recording, Send
from tests.kit.support import Recorded, answer, body_messages, http_scope, replying

HEAD = ["timestamp", "severity_text", "event_name", "boot_id", "pid", "seq", "trace_id", "span_id"]
CHUNK_KEYS = ["chunks", "gen_ai.response.time_to_first_chunk"]
CHUNK_KEYS += ["chunk_gap_min_us", "chunk_gap_mean_us", "chunk_gap_max_us"]
FIELDS = ["trace_flags", "request_id", "outcome", "http.request.method", "url.path", "network.protocol.version"]
FIELDS += ["client.address", "http.response.status_code", "http.request.body.size", "http.response.body.size"]
FIELDS += ["duration_s", "after_response_s", *CHUNK_KEYS, "chunk_gaps_us", "time_to_first_byte_s"]
FIELDS += ["sampled_by", "adjusted_count"]
OK = replying(*answer(b"x"))


def text(request: Request) -> PlainTextResponse:
    return PlainTextResponse("text")


def make_application() -> FastAPI:
    def index(name: str = "") -> str:
        return name

    nested, router, sub, app = APIRouter(prefix="/nested"), APIRouter(prefix="/v1"), FastAPI(), FastAPI()
    app.get("/items/{name}")(index)
    nested.get("/{name}")(index)
    router.get("/models/{name}")(index)
    router.include_router(nested)
    app.include_router(router, prefix="/api")
    sub.get("/inside/{name}")(index)
    sub.include_router(router)
    app.mount("/sub", sub)
    app.mount("/plain", Starlette(routes=[Route("/a/{b}", text), Mount("/deep", routes=[Route("/c/{d}", text)])]))
    return app


@pytest.mark.parametrize(
    ("path", "route"),
    [
        *((f"{path}/m", f"{path}/{{name}}") for path in ("/items", "/api/v1/models", "/api/v1/nested", "/sub/inside")),
        *[("/sub/v1/models/m", "/sub/v1/models/{name}"), ("/plain/a/1", "/plain/a/{b}")],
        *[("/plain/deep/c/1", "/plain/deep/c/{d}"), ("/missing", None), ("/sub/missing", None)],
    ],
)
@pytest.mark.parametrize("root_path", ["", "/behind/a/proxy"])
def test_the_route_is_the_template_with_all_its_prefixes(
    recorded: Recorded, path: str, route: str | None, root_path: str
) -> None:
    app = make_application()
    app.add_middleware(InferenceLoggingMiddleware, config=recorded.config)
    # As ASGI servers do it: the path begins with the root path.
    response = TestClient(app, root_path=root_path).get(root_path + path)
    record = recorded.request()
    assert record["http.response.status_code"] == response.status_code == (200 if route else 404)
    assert record.get("http.route") == route


@pytest.mark.parametrize(
    ("mount", "inner", "path", "route"),
    [
        ("/users/{user}", "/{item}", "/users/ada/1", "/users/{user}/{item}"),
        ("/users/{users}", "/x", "/users/users/x", "/users/{users}/x"),
        ("/{one}/{two}", "/{three}", "/same/same/same", "/{one}/{two}/{three}"),
        ("/v{version:int}", "/x", "/v2/x", "/v{version}/x"),
        ("/n/{number:int}", "/x", "/n/007/x", "/n/00{number}/x"),
        ("/by/{id:uuid}", "/x", "/by/6F9619FF-8B86-D011-B42D-00CF4FC964FF/x", "/{id}/x"),
        ("/plain", "/{item}", "/plain/plain", "/plain/{item}"),
    ],
)
def test_the_route_of_a_mount_has_the_names_of_its_parameters_not_their_values(
    recorded: Recorded, mount: str, inner: str, path: str, route: str
) -> None:
    app = Starlette(routes=[Mount(mount, routes=[Route(inner, text)])])
    app.add_middleware(InferenceLoggingMiddleware, config=recorded.config)
    assert TestClient(app).get(path).status_code == 200
    assert recorded.request()["http.route"] == route


def test_the_route_of_litestar_is_what_it_leaves_in_the_scope(recorded: Recorded) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        scope["path_template"] = "/items/{item_id}"
        await OK(scope, receive, send)

    assert recorded.request_of(app, http_scope("/items/3"))["http.route"] == "/items/{item_id}"


def test_a_record_has_the_standard_head_and_its_fields_in_a_fixed_order(recorded: Recorded) -> None:
    parts = [b"data: 1\n\n", b"data: 22\n\n", b"data: 333\n\n"]
    app = replying(*answer(*parts, content_type=b"text/event-stream"))
    record = recorded.request_of(app, http_scope("/v1/x", "POST"), body_messages(b"12345", b"678"))
    assert list(record) == [*HEAD, *FIELDS]
    assert (record["http.request.method"], record["url.path"]) == ("POST", "/v1/x")
    assert (record["network.protocol.version"], record["client.address"]) == ("1.1", "192.0.2.7")
    assert (record["http.request.body.size"], record["http.response.body.size"]) == (8, sum(map(len, parts)))
    assert 0 <= record["gen_ai.response.time_to_first_chunk"] <= record["duration_s"]
    low, mean, high = (record[f"chunk_gap_{what}_us"] for what in ("min", "mean", "max"))
    assert 0 <= low <= mean <= high
    assert (record["chunks"], len(record["chunk_gaps_us"])) == (3, 2)
    assert (min(record["chunk_gaps_us"]), max(record["chunk_gaps_us"])) == (low, high)


def test_a_bytearray_body_counts_like_bytes(recorded: Recorded) -> None:
    start, body = answer(b"")
    body["body"] = bytearray(b"12345")
    incoming: list[Message] = [{"type": "http.request", "body": bytearray(b"123")}]
    record = recorded.request_of(replying(start, body), incoming=incoming)
    assert (record["http.request.body.size"], record["http.response.body.size"]) == (3, 5)


def test_bytes_are_counted_past_every_cap(recorded: Recorded) -> None:
    headers = [(b"content-type", b"application/json")]
    parts = [b"x" * 100_000] * 20
    app = replying(*answer(*parts, content_type=b"application/json"))
    record = recorded.request_of(app, http_scope(method="POST", headers=headers), body_messages(*parts))
    assert record["http.request.body.size"] == record["http.response.body.size"] == 2_000_000


def test_an_answer_in_one_piece_has_no_chunk_fields(recorded: Recorded) -> None:
    assert not [key for key in recorded.request_of(replying(*answer(b"whole"))) if "chunk" in key]


@pytest.mark.parametrize(
    ("mode", "keys"),
    [("off", []), ("summary", CHUNK_KEYS), ("timeline", [*CHUNK_KEYS, "chunk_gaps_us"]), ("events", CHUNK_KEYS)],
)
def test_the_chunk_mode_decides_which_chunk_fields_there_are(recording: Recording, mode: str, keys: list[str]) -> None:
    recorded = recording(chunks=mode)
    assert [key for key in recorded.request_of(replying(*answer(*[b"x"] * 5))) if "chunk" in key] == keys
    assert len(recorded.records("request.chunk")) == (5 if mode == "events" else 0)


def test_the_timeline_ends_at_its_cap_and_says_how_much_is_missing(recording: Recording) -> None:
    recorded = recording(chunk_timeline_limit=10)
    record = recorded.request_of(replying(*answer(*[b"x"] * 100)))
    assert (record["chunks"], len(record["chunk_gaps_us"]), record["chunk_gaps_truncated"]) == (100, 10, 89)


class Kind(str):
    """A text that is not exactly a ``str``."""

    __slots__ = ()


def test_the_kind_of_a_message_is_its_text_whatever_the_object(recorded: Recorded) -> None:
    kinds = ["http.response.body", b"http.response.body".decode(), Kind("http.response.body"), "http.response.debug"]
    for turn in range(12):
        start, *parts, end = answer(b"a", b"bc", b"def", b"g")
        for position, part in enumerate(parts):
            part["type"] = kinds[(turn + position) % 4]
        recorded.serve(replying(start, *parts, end))
        sent = [part["body"] for part in parts if part["type"] == "http.response.body"]
        record = recorded.records("request")[-1]
        assert (record["chunks"], record["http.response.body.size"]) == (3, len(b"".join(sent)))


@pytest.mark.parametrize("last", [b"", b"last"], ids=["empty_end", "end_with_content"])
def test_in_events_mode_each_chunk_has_its_record_with_the_requests_ids(recording: Recording, last: bytes) -> None:
    recorded = recording(chunks="events")
    messages = answer(b"1", b"", b"333")
    messages[-1] = {"type": "http.response.body", "body": last}
    recorded.serve(replying(*messages))
    request, chunks = recorded.request(), recorded.records("request.chunk")
    assert [chunk["bytes"] for chunk in chunks] == [1, 3] + ([4] if last else [])
    assert [chunk["chunk"] for chunk in chunks] == list(range(1, len(chunks) + 1))
    assert request["chunks"] == len(chunks)
    for chunk in chunks:
        assert all(chunk[key] == request[key] for key in ("trace_id", "span_id", "request_id"))
        assert 0 <= chunk["since_start_s"] <= request["duration_s"]


@pytest.mark.parametrize("request_id", [b"a", b"req-1_2.3:4/5", b"x" * 128, b'"quoted\\"'])
def test_a_valid_request_id_of_the_client_stands_beside_ours(recorded: Recorded, request_id: bytes) -> None:
    record = recorded.request_of(OK, http_scope(headers=[(b"x-request-id", request_id)]))
    assert (record["client_request_id"], record["request_id"]) == (request_id.decode(), record["span_id"])


@pytest.mark.parametrize(
    "request_id",
    [b"", b"x" * 129, b"x" * 1_000_000, b"a\r\nb: c", b"a b", b"a\x00b", b"a\x1bb", b"\x7f", b"\xff\xfe", "ä".encode()],
    ids=["empty", "129", "1MB", "CRLF", "space", "NUL", "ESC", "DEL", "no_utf8", "not_ascii"],
)
def test_a_hostile_request_id_is_left_out_and_ours_stands(recorded: Recorded, request_id: bytes) -> None:
    record = recorded.request_of(OK, http_scope(headers=[(b"x-request-id", request_id)]))
    assert record["request_id"] == record["span_id"]
    assert "client_request_id" not in record


def test_of_several_request_ids_the_first_one_counts_as_frameworks_have_it(recorded: Recorded) -> None:
    headers = [(b"x-request-id", b"first"), (b"X-Request-Id", b"second")]
    assert recorded.request_of(OK, http_scope(headers=headers))["client_request_id"] == "first"


def test_a_path_that_is_no_unicode_is_recorded_and_served(recorded: Recorded) -> None:
    sent = recorded.serve(OK, http_scope("/caf\udce9\x01/\N{BELL}"))
    assert len(sent) == 2
    assert isinstance(recorded.request()["url.path"], str)


def test_the_path_is_the_clients_whatever_the_application_makes_of_its_scope(recorded: Recorded) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        scope["path"], scope["root_path"] = "/rewritten", "/elsewhere"
        await OK(scope, receive, send)

    assert recorded.request_of(app, http_scope("/original"))["url.path"] == "/original"


@pytest.mark.parametrize("messages", [answer(b"", status=500), answer(b"", status=504), answer(b"")[:1]])
def test_errors_are_kept_whatever_the_sampler_says(recording: Recording, messages: list[Message]) -> None:
    recorded = recording(sample_ratio=0)
    recorded.serve(replying(*answer(b"ok")))
    record = recorded.request_of(replying(*messages))
    assert (record["sampled_by"], record["adjusted_count"]) == ("error", 1.0)


def test_an_application_can_keep_the_record_of_a_request(recording: Recording) -> None:
    recorded = recording(sample_ratio=0)

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        request = current_request()
        assert request is not None
        if scope["path"] == "/kept":
            request.keep()
        await OK(scope, receive, send)

    for path in ("/a", "/kept", "/b"):
        recorded.serve(app, http_scope(path))
    record = recorded.request()
    assert (record["url.path"], record["sampled_by"], record["adjusted_count"]) == ("/kept", "forced", 1.0)


def test_a_request_that_is_sampled_out_leaves_no_chunk_records(recording: Recording) -> None:
    recorded = recording(sample_ratio=0, chunks="events")
    recorded.serve(replying(*answer(b"a", b"b")))
    assert recorded.records() == []


def test_without_sampling_every_request_stands_for_itself(recorded: Recorded) -> None:
    record = recorded.request_of(OK)
    assert (record["sampled_by"], record["adjusted_count"]) == ("head", 1.0)


@pytest.mark.parametrize("client", [None, [], ["192.0.2.9", 1], ("2001:db8::1", 2)])
def test_the_clients_address_is_recorded_where_the_server_knows_it(recorded: Recorded, client: Any) -> None:
    record = recorded.request_of(OK, {**http_scope(), "client": client})
    assert record.get("client.address") == (client[0] if client else None)
