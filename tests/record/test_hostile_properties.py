"""Properties over arbitrary scopes and message sequences, legal and not, with exceptions and cancellation at any point.

With the middleware the server sees the same messages and the same exception as without, the application too, nothing
else is waited for, and there is exactly one terminal record, in one strictly valid line. HYPOTHESIS_EXAMPLES sets how
many examples are tried.
"""

from __future__ import annotations

import asyncio
import collections
import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from inference_logging import Config
from tests.kit.support import Recorded, http_scope
from tests.record.hostile import Action, Pause, Raise, Receive, Return, Script, Send, Tail, drive

EXAMPLES = int(os.environ.get("HYPOTHESIS_EXAMPLES", "400"))
settings.register_profile("hostile", settings(), max_examples=EXAMPLES)

_names = st.sampled_from(
    [b"content-type", b"Content-Type", b"traceparent", b"x-request-id", b"tracestate", b"\xff\r\n"]
)
_values = st.sampled_from([b"application/json", b"text/event-stream", b"a\r\nb", b"\xff" * 200]) | st.binary(
    max_size=60
)
_pair = st.tuples(_names, _values)
_headers = st.lists(_pair, max_size=4)
_body = st.sampled_from([b"", b"x", b'{"model": "m"}', b"data: [DONE]\n\n"]) | st.binary(max_size=50)

_start = st.fixed_dictionaries(
    {"type": st.just("http.response.start"), "status": st.integers(100, 599)},
    optional={"headers": _headers, "trailers": st.booleans()},
)
_part = st.fixed_dictionaries(
    {"type": st.just("http.response.body")}, optional={"body": _body, "more_body": st.booleans()}
)
_extension = st.one_of(
    st.fixed_dictionaries({"type": st.just("http.response.pathsend"), "path": st.just("/dev/null")}),
    st.fixed_dictionaries(
        {"type": st.just("http.response.zerocopysend"), "file": st.just(0)},
        optional={"count": st.integers(0, 99), "offset": st.integers(0, 99), "more_body": st.booleans()},
    ),
    st.fixed_dictionaries(
        {"type": st.just("http.response.trailers"), "headers": _headers}, optional={"more_trailers": st.booleans()}
    ),
    st.fixed_dictionaries({"type": st.just("http.response.early_hint"), "links": st.lists(_body, max_size=2)}),
    st.fixed_dictionaries({"type": st.just("http.response.debug"), "info": st.just({"template": "t"})}),
    st.fixed_dictionaries({"type": st.just("http.response.push"), "path": st.just("/"), "headers": _headers}),
)
_anything: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=20) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=4,
) | _body.map(lambda body: memoryview(body))  # noqa: PLW0108 - mypy cannot infer the class itself

_keys = st.sampled_from(["type", "status", "headers", "body", "more_body", "trailers", "count", "more_trailers"])
_types = st.sampled_from(["http.response.start", "http.response.body", "http.request", "http.disconnect", "no.such"])
_illegal = st.one_of(
    st.dictionaries(_keys, _anything, max_size=5),
    st.builds(lambda message, kind: {**message, "type": kind}, st.dictionaries(_keys, _anything, max_size=5), _types),
    st.builds(collections.UserDict, _start),
    st.builds(collections.OrderedDict, _part),
    _anything,
)
_message = st.one_of(_start, _part, _part, _extension, _illegal)
_incoming_message = st.one_of(
    st.fixed_dictionaries({"type": st.just("http.request")}, optional={"body": _body, "more_body": st.booleans()}),
    st.just({"type": "http.disconnect"}),
    _illegal,
)


class OddError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text to be had")


_errors = st.sampled_from(
    [
        OSError,
        RuntimeError,
        OddError,
        TimeoutError,
        asyncio.CancelledError,
        KeyboardInterrupt,
        SystemExit,
        GeneratorExit,
    ]
).map(lambda kind: kind())
_actions: st.SearchStrategy[list[Action]] = st.lists(
    st.one_of(
        st.just(Receive()),
        st.builds(Send, _message),
        st.builds(Send, _message),
        st.just(Pause()),
        st.builds(Raise, _errors),
        st.builds(Return, _anything),
    ),
    max_size=10,
)
_legal_actions: st.SearchStrategy[list[Action]] = st.builds(
    lambda start, parts, end: [Receive(), Send(start), *map(Send, parts), Send(end)],
    st.fixed_dictionaries(
        {"type": st.just("http.response.start"), "status": st.integers(200, 599), "headers": _headers}
    ),
    st.lists(st.fixed_dictionaries({"type": st.just("http.response.body"), "body": _body, "more_body": st.just(True)})),
    st.fixed_dictionaries(
        {"type": st.just("http.response.body")}, optional={"body": _body, "more_body": st.just(False)}
    ),
)
_text = st.text(max_size=40)
_scopes = st.builds(
    lambda damage, missing: {name: value for name, value in {**http_scope(), **damage}.items() if name not in missing},
    st.fixed_dictionaries(
        {},
        optional={
            "method": st.sampled_from(["POST", "GET"]) | _text | _anything,
            "path": _text | st.text(st.characters(codec=None), max_size=9) | _anything,
            "raw_path": _body,
            "query_string": _body,
            "root_path": _text | _anything,
            "app_root_path": _text | _anything,
            "headers": _headers | st.lists(_pair.map(list)) | _headers.map(tuple) | _headers.map(iter) | _anything,
            "client": st.tuples(_text, st.integers()) | st.lists(_text, max_size=2) | _anything,
            "http_version": _text | _anything,
            "route": _anything,
            "fastapi": _anything,
            "extensions": st.just({"http.response.pathsend": {}}),
        },
    ),
    st.sets(st.sampled_from(["path", "method", "headers", "client", "http_version", "root_path"]), max_size=2),
)
_scripts = st.builds(
    Script,
    scope=_scopes,
    actions=_actions,
    incoming=st.lists(st.one_of(_incoming_message, _errors), max_size=4),
    refusals=st.dictionaries(st.integers(0, 4), _errors, max_size=2),
    refuses_at_once=st.booleans(),
    is_tolerant=st.booleans(),
    throw_at=st.none() | st.integers(0, 12),
    throw=_errors,
)


@pytest.fixture(scope="module", params=["timeline", "events"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """One logger for all examples: its segments are read on from where the last example ended."""
    path: Path = tmp_path_factory.mktemp("hostile")
    for name in [name for name in os.environ if name.startswith("INFERENCE_LOGGING_")]:
        del os.environ[name]
    # No path is special: hypothesis also tries the texts that it finds in the source.
    routes: dict[str, Any] = {"health_path": "", "liveness_path": "", "skip_paths": []}
    where = {"directory": path / "segments", "queue_directory": path / "queues", "queue_bytes": 1 << 20}
    config = Config(**where, **routes, chunks=request.param)
    recorded = Recorded(config)
    yield recorded
    recorded.close()


@pytest.fixture(scope="module")
def tail(recorded: Recorded) -> Tail:
    return Tail(recorded.config.directory)


def remaining(headers: Any) -> object:
    """Return what an iterator would still give, without taking it."""
    return list(copy.copy(headers)) if hasattr(headers, "__next__") else None


@pytest.mark.servers
@settings(settings.get_profile("hostile"), suppress_health_check=list(HealthCheck))
@given(script=_scripts)
def test_with_and_without_the_middleware_everyone_sees_the_same(recorded: Recorded, tail: Tail, script: Script) -> None:
    tail.read()
    before, unread = list(script.scope.items()), remaining(script.scope.get("headers"))
    plain = drive(script)
    ours = drive(script, recorded.wrap)
    note(f"without: {plain}\nwith:    {ours}")
    assert ours == plain
    assert list(map(id, script.scope.values())) == [id(value) for _, value in before]
    assert list(script.scope) == [name for name, _ in before]
    assert remaining(script.scope.get("headers")) == unread
    assert recorded.logger.flush()
    events = [record["event_name"] for record in tail.read()]
    assert events.count("request") == 1
    assert set(events) <= {"request", "request.chunk", "server.started"}


@pytest.mark.servers
@settings(settings.get_profile("hostile"), suppress_health_check=list(HealthCheck))
@given(
    actions=_legal_actions,
    texts=st.fixed_dictionaries({}, optional={"path": _text, "method": _text, "http_version": _text}),
    client=_text,
    incoming=st.lists(_body, min_size=1, max_size=1),
)
def test_texts_and_sizes_of_a_legal_request_are_read_back_as_they_were(
    recorded: Recorded, tail: Tail, actions: list[Action], texts: dict[str, str], client: str, incoming: list[bytes]
) -> None:
    scope = {**http_scope(), "client": (client, 1), **texts}
    messages: list[object] = [{"type": "http.request", "body": body} for body in incoming]
    tail.read()
    drive(Script(scope, actions, messages), recorded.wrap)
    assert recorded.logger.flush()
    records = tail.read()
    (record,) = [record for record in records if record["event_name"] == "request"]
    sent: list[Any] = [action.message for action in actions if isinstance(action, Send)]
    parts = [message.get("body", b"") for message in sent[1:]]
    assert record["http.response.status_code"] == sent[0]["status"]
    assert record["http.response.body.size"] == sum(map(len, parts))
    assert record["http.request.body.size"] == sum(map(len, incoming))
    assert record["url.path"] == scope["path"]
    # An empty text says nothing and is left out.
    assert record.get("http.request.method", "") == scope["method"]
    assert record.get("network.protocol.version", "") == scope["http_version"]
    assert record.get("client.address", "") == client
    first = next(filter(None, parts), b"").lstrip()
    # What begins like events or JSON is read as such: tests/truth says how many chunks it has.
    if len(sent) > 2 and not first.startswith(
        (b"data:", b"event:", b"error:", b"id:", b"retry:", b":", b"{", b"[", b"\xef")
    ):
        assert record.get("chunks", 0) == sum(part != b"" for part in parts)
