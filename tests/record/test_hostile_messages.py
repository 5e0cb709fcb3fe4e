"""Messages and scopes made to hurt: wrong types, foreign code in keys and values, texts made to forge lines.

Each is served with and without the middleware: both sides see the same, and there is exactly one terminal record.
"""

from __future__ import annotations

import collections
import os
import re
import subprocess
import sys
import types
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, ConfigError
from tests.kit.signatures import Recording
from tests.kit.support import Recorded, http_scope
from tests.record.hostile import Action, Raise, Receive, Script, Send, Tail, drive

JSON = [(b"content-type", b"application/json")]
START: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": JSON}
END: dict[str, Any] = {"type": "http.response.body", "body": b"{}"}


class LyingDict(dict[str, Any]):
    """What it holds can only be had behind its back."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("not through here")

    def get(self, key: str, default: Any = None) -> Any:
        raise RuntimeError("not through here either")


class SameHash:
    """A key that stands in the way of ``name`` and raises when it is compared, once it lies in its dictionary."""

    def __init__(self, name: str) -> None:
        self._hash = hash(name)
        self.is_armed = False

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self.is_armed:
            raise RuntimeError("compared")
        return self is other


def in_the_way(names: Sequence[str], message: dict[str, Any]) -> dict[Any, Any]:
    keys = [SameHash(name) for name in names]
    damaged: dict[Any, Any] = {**dict.fromkeys(keys, 1), **message}
    for key in keys:
        key.is_armed = True
    return damaged


class RaisingBool:
    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")


class RaisingIndex:
    def __index__(self) -> int:
        raise RuntimeError("no number")


class OddBytes(bytes):
    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __getitem__(self, key: Any) -> Any:
        raise RuntimeError("no item")


class OddText(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    def __hash__(self) -> int:
        raise RuntimeError("not hashable")


class Endless(list[Any]):
    def __len__(self) -> int:
        return 1 << 62

    def __iter__(self) -> Any:
        raise RuntimeError("not iterable")


def body(content: object, **more: object) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, **more}


def start(**values: object) -> dict[str, Any]:
    return {**START, **values}


OTHER_MAPPINGS: list[object] = [collections.UserDict(START), types.MappingProxyType(START), collections.ChainMap(START)]
ODD_TYPES: list[object] = [None, 7, b"http.response.start", OddText("http.response.body"), []]
ODD_STATES: list[object] = ["200", None, 2.5, -1, 10**30, True, RaisingIndex(), []]
ODD_TRUTHS: list[object] = ["", "no", None, 0, 2.5, [], RaisingBool()]

SENT: dict[str, list[object]] = {
    "not a dictionary": [None, 7, "http.response.start", [("type", "http.response.start")], b"", object()],
    "other mappings": OTHER_MAPPINGS,
    "subclasses of dictionaries": [LyingDict(START), collections.OrderedDict(END), collections.defaultdict(list, END)],
    "keys that raise": [in_the_way(("type",), START), in_the_way(("body",), END), in_the_way(("more_body",), END)],
    "no type": [{}, {"status": 200}, {"body": b"x"}],
    "odd types": [{"type": kind} for kind in ODD_TYPES],
    "unknown types": [
        {"type": "http.response.no_such"},
        {"type": "websocket.send", "text": "x"},
        {"type": "x" * 10**6},
    ],
    "a second start": [START, start(status=503), END],
    "a start after the end": [START, END, start(status=503), END],
    "a body before the start": [END, START],
    "odd states": [start(status=status) for status in ODD_STATES],
    "an enum as status": [start(status=HTTPStatus.OK), END],
    "no status": [{"type": "http.response.start"}, END],
    "odd headers": [
        start(headers=headers)
        for headers in (None, 7, "text", (pair for pair in [(b"a", b"b")]), {b"a": b"b"}, Endless([(b"a", b"b")]))
    ],
    "odd pairs": [
        start(headers=headers)
        for headers in (
            ((b"content-type", b"application/json"),),
            [[b"content-type", b"application/json"]],
            [(b"content-type",), (), None, 7, (b"a", b"b", b"c")],
            [("content-type", "application/json"), (None, None), (b"content-type", bytearray(b"x"))],
            [(OddBytes(b"content-type"), OddBytes(b"application/json")), Endless([b"content-type", b"x"])],
        )
    ],
    "odd bodies": [START, *(body(content) for content in ("text", None, 7, [b"x"], memoryview(b"abc"), object()))],
    "bodies like bytes": [START, body(bytearray(b"abc"), more_body=True), body(OddBytes(b"abc")), END],
    "a released memoryview": [START, body(memoryview(b"")), END],
    "odd more_body": [START, *(body(b"x", more_body=more) for more in ODD_TRUTHS)],
    "a body of 8 MiB": [START, body(b"x" * (8 << 20))],
    "extensions": [
        {"type": "http.response.early_hint", "links": [b"</a>"]},
        {"type": "http.response.debug", "info": object()},
        START,
        {"type": "http.response.trailers", "headers": None, "more_trailers": RaisingBool()},
        {"type": "http.response.zerocopysend", "file": None, "count": "7"},
        {"type": "http.response.pathsend", "path": 7},
    ],
}

RECEIVED: dict[str, list[object]] = {
    "not a dictionary": [None, 7, "http.request"],
    "other mappings": [collections.UserDict({"type": "http.request", "body": b"x"}), LyingDict(type="http.request")],
    "keys that raise": [in_the_way((name,), {"type": "http.request", "body": b"x"}) for name in ("type", "body")],
    "odd bodies": [{"type": "http.request", "body": content} for content in ("text", None, 7, memoryview(b"abc"))],
    "unknown types": [{"type": "http.no_such"}, {"type": b"http.disconnect"}, {}],
}

SCOPES: dict[str, dict[Any, Any]] = {
    "no path": {key: value for key, value in http_scope().items() if key != "path"},
    "nothing but the type": {"type": "http"},
    "odd path": {**http_scope(), "path": 7},
    "path as bytes": {**http_scope(), "path": b"/x"},
    "a text with its own comparison": {**http_scope(), "method": OddText("GET"), "http_version": OddText("1.1")},
    "surrogates": {**http_scope(), "path": "/\udcff\ud800", "method": "\udcff", "http_version": "\ud800"},
    "keys that raise": in_the_way(
        ("headers", "method", "client", "route", "root_path", "app_root_path", "http_version", "fastapi"), http_scope()
    ),
    "a client that is no pair": {**http_scope(), "client": RaisingBool()},
    "an empty client": {**http_scope(), "client": ()},
    "a route that raises": {**http_scope(), "route": property(lambda self: 1 / 0)},
    "headers as a generator": {**http_scope(), "headers": (pair for pair in [(b"traceparent", b"x")])},
    "headers that lie": {**http_scope(), "headers": Endless([(b"x-request-id", b"x")])},
}


@pytest.fixture
def tail(recorded: Recorded) -> Tail:
    return Tail(recorded.config.directory)


def serve_both(recorded: Recorded, tail: Tail, script: Script) -> dict[str, Any]:
    """Serve with and without, compare, and return the one terminal record."""
    plain, ours = drive(script), drive(script, recorded.wrap)
    assert ours == plain
    assert recorded.logger.flush()
    (record,) = (found for found in tail.read() if found["event_name"] != "request.chunk")
    assert record["event_name"] == "request"
    return record


@pytest.mark.parametrize("chunks", ["off", "summary", "timeline", "events"])
@pytest.mark.parametrize("name", SENT)
def test_whatever_is_sent_reaches_the_server_as_it_is(recording: Recording, name: str, chunks: str) -> None:
    recorded = recording(chunks=chunks)
    tail = Tail(recorded.config.directory)
    serve_both(recorded, tail, Script(http_scope(), [Send(message) for message in SENT[name]]))
    for message in SENT[name]:
        serve_both(recorded, tail, Script(http_scope(), [Send(message), Send(END), Raise(ValueError())]))


@pytest.mark.parametrize("name", RECEIVED)
def test_whatever_is_received_reaches_the_application_as_it_is(recorded: Recorded, tail: Tail, name: str) -> None:
    actions: list[Action] = [Receive() for _ in RECEIVED[name]]
    serve_both(recorded, tail, Script(http_scope(), [*actions, Send(START), Send(END)], list(RECEIVED[name])))


@pytest.mark.parametrize("name", SCOPES)
def test_whatever_scope_comes_the_application_is_served(recorded: Recorded, tail: Tail, name: str) -> None:
    record = serve_both(recorded, tail, Script(SCOPES[name], [Receive(), Send(START), Send(END)], [{}]))
    assert record["outcome"] == "ok"


def test_a_scope_that_is_a_mapping_but_no_dictionary_is_served_and_recorded(recorded: Recorded, tail: Tail) -> None:
    record = serve_both(recorded, tail, Script(collections.UserDict(http_scope("/user")), [Send(START), Send(END)]))
    assert (record["outcome"], record["url.path"]) == ("ok", "/user")


def test_the_first_start_is_the_one_that_counts(recorded: Recorded, tail: Tail) -> None:
    refusals: dict[int, BaseException] = {1: RuntimeError("Unexpected ASGI message")}
    script = Script(http_scope(), [Send(START), Send(start(status=503))], refusals=refusals)
    assert serve_both(recorded, tail, script)["http.response.status_code"] == 200


def test_what_is_sent_after_the_end_is_not_counted(recorded: Recorded, tail: Tail) -> None:
    refusals: dict[int, BaseException] = {2: RuntimeError("Response already completed")}
    script = Script(http_scope(), [Send(START), Send(END), Send(body(b"more"))], refusals=refusals, is_tolerant=True)
    assert serve_both(recorded, tail, script)["http.response.body.size"] == 2


def test_a_memoryview_is_a_body_that_servers_write(recorded: Recorded, tail: Tail) -> None:
    script = Script(http_scope(), [Send(START), Send(body(memoryview(b"abcd")))])
    assert serve_both(recorded, tail, script)["http.response.body.size"] == 4


FORGED = '"}\n{"event_name":"request","outcome":"ok"}\r\n\x0b\x0c\x1c\x85\u2028\u2029\x00\x1b[2J\x7f'


def test_no_text_of_a_client_forges_a_line(recorded: Recorded, tail: Tail) -> None:
    scope = {
        **http_scope(f"/{FORGED}"),
        "method": FORGED,
        "http_version": FORGED,
        "client": (FORGED, 1),
        "headers": [(name, FORGED.encode()) for name in (b"x-request-id", b"traceparent", b"tracestate", b"baggage")],
    }
    error = type(FORGED.replace("\x00", ""), (Exception,), {})()
    record = serve_both(recorded, tail, Script(scope, [Send(START), Raise(error)]))
    assert (record["url.path"], record["http.request.method"], record["client.address"]) == (
        f"/{FORGED}",
        FORGED,
        FORGED,
    )
    assert record["outcome"] == "error"
    (segment,) = (path for path in recorded.config.directory.glob("*.jsonl") if not path.is_symlink())
    # A reader that also breaks lines elsewhere (as str.splitlines does) sees the same lines; only \\u2028 and its like
    # stand in JSON unescaped, and no parser of lines of bytes breaks there.
    assert segment.read_bytes().count(b'"event_name":"request"') == 1
    assert b"\x1b" not in segment.read_bytes()


HUGE = 3 << 20


@pytest.mark.parametrize("field", ["path", "method", "http_version", "client", "route", "error"])
def test_a_request_with_a_huge_text_leaves_its_record_all_the_same(recorded: Recorded, tail: Tail, field: str) -> None:
    text = "é" * HUGE
    route = types.SimpleNamespace(path=text)
    damage: dict[str, object] = {"route": route, "client": (text, 1)}
    scope = {**http_scope(), field: damage.get(field, text)}
    error = type("E" * HUGE, (Exception,), {})() if field == "error" else ValueError()
    record = serve_both(recorded, tail, Script(scope, [Send(START), Raise(error)]))
    assert record["outcome"] == "error"
    assert len(str(record)) < 64 << 10


def test_a_hundred_thousand_headers_leave_one_record(recorded: Recorded, tail: Tail) -> None:
    headers = [(b"x-%d" % number, b"v" * 100) for number in range(100_000)]
    script = Script({**http_scope(), "headers": headers}, [Send(start(headers=headers)), Send(END)])
    assert len(str(serve_both(recorded, tail, script))) < 2000


def test_the_largest_record_that_the_configuration_allows_holds_the_longest_texts(recording: Recording) -> None:
    limits = {"capture_head_bytes": 1 << 20, "capture_tail_bytes": 1 << 20, "chunk_timeline_limit": 1000}
    # Exactly what the configuration asks for at least, so that what it sets aside for texts must be enough.
    with pytest.raises(ConfigError) as refused:
        Config(**limits, max_record_bytes="1MiB")
    (smallest,) = map(int, re.findall(r"max_record_bytes=1048576: must be at least (\d+) ", str(refused.value)))
    recorded = recording(**limits, max_record_bytes=smallest, queue_bytes=64 << 20)
    text = "é" * HUGE
    headers = [(b"content-type", b"application/json"), (b"x-request-id", b"i" * 128)]
    scope = {**http_scope(f"/{text}/chat/completions", "POST", headers), "http_version": text, "client": (text, 1)}
    scope |= {"route": types.SimpleNamespace(path=text), "app_root_path": "", "root_path": text}
    whole = "x" * (8 << 20)
    parts = [Send(body(b"x", more_body=True)) for _ in range(1500)]
    incoming: list[object] = [{"type": "http.request", "body": whole.encode()}]
    error = type("E" * HUGE, (Exception,), {})()
    actions: list[Action] = [Receive(), Send(START), *parts, Send(body(whole.encode(), more_body=True)), Raise(error)]
    drive(Script(scope, actions, incoming), recorded.wrap, most_suspensions=5000)
    record = recorded.request()
    assert (record["outcome"], record["chunks"]) == ("error", 1501)
    assert len(record["chunk_gaps_us"]) == 1000


def test_foreign_code_that_changes_a_message_while_it_is_looked_at_crashes_nothing(tmp_path: Path) -> None:
    # In a process of its own whose allocator overwrites what is freed: a read after that is a crash, not luck.
    script = Path(__file__).with_name("changing_messages.py")
    environment = {**os.environ, "PYTHONMALLOC": "debug", "PYTHONFAULTHANDLER": "1"}
    served = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert (served.returncode, served.stdout) == (0, "done\n"), served.stderr
