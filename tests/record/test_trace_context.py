"""W3C Trace Context, levels 1 and 2: the cases of the public validation suite, written in our own words.

A small application forwards each request: it calls another service as often as it is asked to, with
``current_request().outgoing_headers()``. What arrives there is what the rules are about. Where the propagator of
OpenTelemetry reads the same headers differently, that is asserted too, so that the differences are known.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from inference_logging import current_request
from tests.kit.signatures import Receive, Recording, Send
from tests.kit.support import Recorded, answer, http_scope, replying

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
VALID = f"00-{TRACE}-{SPAN}-01"
FORMAT = re.compile(r"00-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})")

Headers = list[tuple[str, str]]


@pytest.fixture
def recorded(recording: Recording) -> Recorded:
    """Record for callers that are all trusted, whose context is passed on as it came."""
    return recording(trusted_callers="*")


class Call(NamedTuple):
    """What another service receives."""

    trace: str
    span: str
    flags: str
    state: str | None

    def members(self) -> dict[str, str]:
        """Return the list members of ``tracestate``."""
        return dict(member.split("=", 1) for member in self.state.split(",")) if self.state else {}


def forward(recorded: Recorded, headers: Iterable[tuple[str, str]], calls: int = 1) -> list[Call]:
    """Send a request with these headers to the forwarding application; return the calls that it makes."""
    made: list[Call] = []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        request = current_request()
        assert request is not None
        for number in range(calls):
            outgoing = request.outgoing_headers(span_id=secrets.token_hex(8) if number else None)
            match = FORMAT.fullmatch(outgoing["traceparent"])
            assert match is not None, outgoing
            assert set(outgoing) <= {"traceparent", "tracestate"}
            made.append(Call(match["trace"], match["span"], match["flags"], outgoing.get("tracestate")))
        await replying(*answer(b"forwarded"))(scope, receive, send)

    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    recorded.serve(app, http_scope(headers=raw))
    return made


def forward_one(recorded: Recorded, *headers: tuple[str, str]) -> Call:
    return forward(recorded, headers)[0]


def read_by_opentelemetry(headers: Headers) -> trace.SpanContext:
    carrier: dict[str, list[str]] = {}
    for name, value in headers:
        carrier.setdefault(name.lower(), []).append(value)
    return trace.get_current_span(TraceContextTextMapPropagator().extract(carrier)).get_span_context()


# --- traceparent -----------------------------------------------------------------------------------------------------


def test_without_headers_a_trace_begins_whose_id_is_random_and_says_so(recorded: Recorded) -> None:
    call = forward_one(recorded)
    record = recorded.request()
    assert (call.trace, call.span) == (record["trace_id"], record["span_id"])
    assert call.trace != "0" * 32
    assert (call.flags, call.state) == ("03", "ot=th:0")


def test_a_trace_that_begins_here_shows_others_what_the_sampler_decided(recording: Recording) -> None:
    recorded = recording(sample_ratio=0.25)
    calls = [forward_one(recorded) for _ in range(100)]
    kept = {record["trace_id"] for record in recorded.records("request")}
    assert 0 < len(kept) < 100
    assert {call.trace for call in calls if call.flags == "03"} == kept
    assert {(call.flags, call.state) for call in calls} == {("03", "ot=th:c"), ("02", None)}


@pytest.mark.parametrize("trusted", ["", "192.0.2.0/24", "198.51.100.0/24", "*"])
def test_the_decision_of_a_trusted_caller_counts_and_its_threshold_is_the_weight(
    recording: Recording, trusted: str
) -> None:
    recorded = recording(trusted_callers=trusted)
    headers = {
        "not sampled": [("traceparent", VALID[:-2] + "00")],
        "sampled": [("traceparent", VALID)],
        "with threshold": [("traceparent", VALID), ("tracestate", "ot=th:c;rv:ffffffffffffff")],
        "below threshold": [("traceparent", VALID), ("tracestate", "ot=th:c;rv:00000000000000")],
    }
    for lines in headers.values():
        forward(recorded, lines)
    weights = [record.get("adjusted_count") for record in recorded.records("request")]
    assert weights == ([None, 4.0] if trusted in ("192.0.2.0/24", "*") else [1.0] * 4)


@pytest.mark.servers
@pytest.mark.parametrize("sent", ["00", "01", "03"])
@pytest.mark.parametrize("state", [None, "ot=th:0;rv:ffffffffffffff,vendor=1", "vendor=1,ot=th:ffffffffffffff"])
def test_of_a_callers_context_that_is_not_trusted_other_services_get_our_decision_and_the_same_trace(
    recording: Recording, sent: str, state: str | None
) -> None:
    recorded = recording(sample_ratio=0.5)
    lines = [("tracestate", state)] if state is not None else []
    ids = [f"{number:032x}" for number in range(1, 101)]
    calls = {name: forward_one(recorded, ("traceparent", f"00-{name}-{SPAN}-{sent}"), *lines) for name in ids}
    kept = {record["trace_id"] for record in recorded.records("request")}
    assert 20 < len(kept) < 80
    assert {name for name, call in calls.items() if int(call.flags, 16) & 1} == kept
    for name, call in calls.items():
        members = call.members()
        assert call.trace == name
        assert members.pop("ot").startswith("th:8;rv:" if name in kept else "rv:")
        assert members == ({"vendor": "1"} if state is not None else {})
    assert {record["trace_id"] for record in followed(recording, recorded, calls)} == kept


def followed(recording: Recording, first: Recorded, calls: dict[str, Call]) -> list[dict[str, Any]]:
    """Return the records of a service that trusts the one which made these calls, and would keep fewer itself."""
    queues = first.logger.config.resolved_queue_directory.with_name("second")
    second = recording(service_name="second", queue_directory=queues, sample_ratio=0.01, trusted_callers="*")
    for call in calls.values():
        parent = f"00-{call.trace}-{call.span}-{call.flags}"
        forward(second, [("traceparent", parent), ("tracestate", call.state or "")])
    records = second.records("request")
    assert {record["adjusted_count"] for record in records} == {2.0}
    return records


def test_a_trace_is_continued_with_our_own_span_as_the_parent_of_the_calls(recorded: Recorded) -> None:
    call = forward_one(recorded, ("traceparent", VALID))
    record = recorded.request()
    assert (call.trace, call.flags) == (TRACE, "01")
    assert call.span == record["span_id"] != SPAN
    assert record["parent_span_id"] == SPAN


@pytest.mark.parametrize("name", ["traceparent", "TraceParent", "TrAcEpArEnT", "TRACEPARENT"])
def test_the_name_of_the_header_is_known_in_any_case(recorded: Recorded, name: str) -> None:
    assert forward_one(recorded, (name, VALID)).trace == TRACE


@pytest.mark.parametrize("name", ["trace-parent", "trace.parent", "traceparen", "xtraceparent", "trace_parent"])
def test_a_header_of_a_similar_name_is_not_read(recorded: Recorded, name: str) -> None:
    assert forward_one(recorded, (name, VALID)).trace != TRACE


def test_two_parents_are_none(recorded: Recorded) -> None:
    other = VALID.replace("0af7", "0af8")
    for second in (other, VALID):
        call = forward_one(recorded, ("traceparent", VALID), ("traceparent", second), ("tracestate", "a=1"))
        assert call.trace not in (TRACE, other[3:35])
        assert call.state == "ot=th:0"
    # OpenTelemetry takes the first one; the recommendation has one header.
    assert read_by_opentelemetry([("traceparent", VALID), ("traceparent", other)]).trace_id == int(TRACE, 16)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(VALID + ".", id="00 with more"),
        pytest.param(VALID + "-what-comes-later", id="00 with a fifth field"),
        pytest.param(f"cc-{TRACE}-{SPAN}-01.what-comes-later", id="later version, flags not ended by a dash"),
        pytest.param(f"cc-{TRACE}-{SPAN}-0", id="later version, too short"),
        pytest.param(f"ff-{TRACE}-{SPAN}-01", id="version ff"),
        pytest.param(f".0-{TRACE}-{SPAN}-01", id="version, first digit"),
        pytest.param(f"0.-{TRACE}-{SPAN}-01", id="version, second digit"),
        pytest.param(f"0-{TRACE}-{SPAN}-01", id="version of 1 digit"),
        pytest.param(f"000-{TRACE}-{SPAN}-01", id="version of 3 digits"),
        pytest.param(f"0000-{TRACE}-{SPAN}-01", id="version of 4 digits"),
        pytest.param(f"00-{'0' * 32}-{SPAN}-01", id="trace id zero"),
        pytest.param(f"00-.{TRACE[1:]}-{SPAN}-01", id="trace id, first digit"),
        pytest.param(f"00-{TRACE[:-1]}.-{SPAN}-01", id="trace id, last digit"),
        pytest.param(f"00-{TRACE}3-{SPAN}-01", id="trace id of 33 digits"),
        pytest.param(f"00-{TRACE[1:]}-{SPAN}-01", id="trace id of 31 digits"),
        pytest.param(f"00-{TRACE.upper()}-{SPAN}-01", id="trace id in capitals"),
        pytest.param(f"00-{TRACE}-{'0' * 16}-01", id="parent zero"),
        pytest.param(f"00-{TRACE}-.{SPAN[1:]}-01", id="parent, first digit"),
        pytest.param(f"00-{TRACE}-{SPAN[:-1]}.-01", id="parent, last digit"),
        pytest.param(f"00-{TRACE}-{SPAN}3-01", id="parent of 17 digits"),
        pytest.param(f"00-{TRACE}-{SPAN[1:]}-01", id="parent of 15 digits"),
        pytest.param(f"00-{TRACE}-{SPAN}-.0", id="flags, first digit"),
        pytest.param(f"00-{TRACE}-{SPAN}-0.", id="flags, second digit"),
        pytest.param(f"00-{TRACE}-{SPAN}-001", id="flags of 3 digits"),
        pytest.param(f"00-{TRACE}-{SPAN}-1", id="flags of 1 digit"),
        pytest.param("", id="empty"),
        pytest.param("0" * 1_000_000, id="1 MB"),
        pytest.param(f"00-{TRACE}-{SPAN}-01\r\nx: y", id="CRLF"),
    ],
)
def test_a_parent_that_breaks_a_rule_begins_a_new_trace_without_its_state(recorded: Recorded, value: str) -> None:
    call = forward_one(recorded, ("traceparent", value), ("tracestate", "foo=1"))
    assert call.trace not in (TRACE, TRACE[1:], "0" * 32)
    assert (call.flags, call.state) == ("03", "ot=th:0")
    assert not read_by_opentelemetry([("traceparent", value)]).is_valid


@pytest.mark.parametrize("version", ["01", "cc", "fe"])
@pytest.mark.parametrize("rest", ["", "-", "-what-comes-later", "-" + "x" * 400])
def test_a_later_version_is_read_as_far_as_we_know_it_and_sent_on_as_ours(
    recorded: Recorded, version: str, rest: str
) -> None:
    value = f"{version}-{TRACE}-{SPAN}-01{rest}"
    call = forward_one(recorded, ("traceparent", value), ("tracestate", "foo=1"))
    assert (call.trace, call.flags, call.state) == (TRACE, "01", "foo=1")
    assert read_by_opentelemetry([("traceparent", value)]).trace_id == int(TRACE, 16)


@pytest.mark.parametrize("before", ["", " ", "\t", "\t \t"])
@pytest.mark.parametrize("after", ["", " ", "\t", " \t "])
def test_blanks_around_the_parent_do_not_count(recorded: Recorded, before: str, after: str) -> None:
    assert forward_one(recorded, ("traceparent", before + VALID + after)).trace == TRACE


@pytest.mark.parametrize(("received", "sent"), [("00", "00"), ("01", "01"), ("02", "02"), ("03", "03"), ("ff", "03")])
def test_sampled_and_random_are_passed_on_as_they_came_and_unknown_flags_are_not(
    recorded: Recorded, received: str, sent: str
) -> None:
    assert forward_one(recorded, ("traceparent", f"00-{TRACE}-{SPAN}-{received}")).flags == sent


@pytest.mark.parametrize("headers", [[("traceparent", VALID)], [], [("traceparent", VALID.replace(TRACE, "0" * 32))]])
def test_calls_of_one_request_share_its_trace_and_can_have_a_span_each(recorded: Recorded, headers: Headers) -> None:
    calls = forward(recorded, headers, calls=3)
    record = recorded.request()
    assert {call.trace for call in calls} == {record["trace_id"]}
    assert calls[0].span == record["span_id"]
    assert len({call.span for call in calls}) == 3


@pytest.mark.parametrize("span_id", ["", "0" * 16, SPAN.upper(), SPAN[1:], SPAN + "0", "x" * 16, "é" * 8])
def test_a_span_id_that_breaks_the_rule_is_refused_by_name_and_value(recorded: Recorded, span_id: str) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        request = current_request()
        assert request is not None
        with pytest.raises(ValueError, match=r"^span_id=.*: must be 16 lowercase hex digits, not all zero$"):
            request.outgoing_headers(span_id=span_id)

    recorded.serve(app)


# --- tracestate ------------------------------------------------------------------------------------------------------


def state_of(recorded: Recorded, *lines: str, name: str = "tracestate") -> Call:
    call = forward_one(recorded, ("traceparent", VALID), *((name, line) for line in lines))
    assert call.trace == TRACE, "a tracestate must not harm its traceparent"
    return call


@pytest.mark.parametrize("state", ["foo=1", "foo=1,bar=2"])
def test_a_state_without_a_parent_is_not_passed_on(recorded: Recorded, state: str) -> None:
    assert forward_one(recorded, ("tracestate", state)).state == "ot=th:0"


@pytest.mark.parametrize("name", ["tracestate", "TraceState", "TrAcEsTaTe", "TRACESTATE"])
def test_the_state_is_passed_on_under_its_name_in_any_case(recorded: Recorded, name: str) -> None:
    assert state_of(recorded, "foo=1,bar=2", name=name).state == "foo=1,bar=2"


@pytest.mark.parametrize("name", ["trace-state", "trace.state", "tracestates"])
def test_a_state_of_a_similar_name_is_not_read(recorded: Recorded, name: str) -> None:
    assert state_of(recorded, "foo=1", name=name).state is None


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        ([""], None),
        (["foo=1", ""], "foo=1"),
        (["", "foo=1"], "foo=1"),
        (["foo=1,,", "\t,bar=2"], "foo=1,bar=2"),
        (["foo=1,bar=2", "rojo=1,congo=2", "baz=3"], "foo=1,bar=2,rojo=1,congo=2,baz=3"),
        (["foo=1 \t , \t bar=2, \t baz=3"], "foo=1,bar=2,baz=3"),
        (["foo=1\t \t,\t \tbar=2,\t \tbaz=3"], "foo=1,bar=2,baz=3"),
        ([" foo=1"], "foo=1"),
        (["\tfoo=1"], "foo=1"),
        (["foo=1 "], "foo=1"),
        (["foo=1\t"], "foo=1"),
        (["\t foo=1 \t"], "foo=1"),
    ],
)
def test_lines_are_joined_in_their_order_and_blanks_and_empty_members_are_left_out(
    recorded: Recorded, lines: list[str], state: str | None
) -> None:
    assert state_of(recorded, *lines).state == state


@pytest.mark.parametrize("lines", [["foo=1,foo=1"], ["foo=1", "foo=1"], ["foo=1,foo=2"], ["foo=1", "foo=2"]])
def test_of_members_with_the_same_key_the_first_one_is_passed_on(recorded: Recorded, lines: list[str]) -> None:
    assert state_of(recorded, *lines).state == "foo=1"
    # OpenTelemetry drops the whole list; the recommendation leaves the choice.
    headers = [("traceparent", VALID), *(("tracestate", line) for line in lines)]
    assert not read_by_opentelemetry(headers).trace_state


def test_every_character_that_keys_and_values_may_have_is_passed_on(recorded: Recorded) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789_-*/"
    value = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in ",=")
    for key in (letters, f"{letters}@a-z0-9_-*/", "0", "foo@", "foo@@bar", "foo@bar@baz"):
        assert state_of(recorded, f"{key}={value}").members() == {key: value}


@pytest.mark.parametrize(
    "member",
    ["foo =1", "FOO=1", "foo.bar=1", "@foo=1", "_foo=1", "foo=bar=baz", "foo=", "foo", "=1", "foo=1\t2", "foo=\xe9"],
)
def test_a_member_that_breaks_a_rule_drops_the_whole_state(recorded: Recorded, member: str) -> None:
    assert state_of(recorded, f"{member},bar=3").state is None
    assert state_of(recorded, "bar=3", member).state is None


def test_a_state_has_at_most_32_members_over_all_its_lines(recorded: Recorded) -> None:
    members = [f"bar{number:02}={number}" for number in range(1, 34)]
    lines = [",".join(members[start : start + 10]) for start in (0, 10, 20)]
    assert len(state_of(recorded, *lines, ",".join(members[30:32])).members()) == 32
    assert state_of(recorded, *lines, ",".join(members[30:33])).state is None
    assert state_of(recorded, *members[:32]).state == ",".join(members[:32])
    too_many = [("traceparent", VALID), ("tracestate", ",".join(members))]
    assert not read_by_opentelemetry(too_many).trace_state


@pytest.mark.parametrize("key", ["z" * 256, "t" * 241 + "@" + "v" * 14, "t" * 242 + "@v", "t@" + "v" * 15])
def test_a_key_may_have_256_characters_wherever_its_at_signs_stand(recorded: Recorded, key: str) -> None:
    assert state_of(recorded, "foo=1", f"{key}=1").members() == {"foo": "1", key: "1"}


def test_longer_keys_and_values_drop_the_state(recorded: Recorded) -> None:
    assert state_of(recorded, "foo=1", "z" * 257 + "=1").state is None
    assert state_of(recorded, "foo=1", "z=" + "v" * 257).state is None
    assert state_of(recorded, "z=" + "v" * 256).state == "z=" + "v" * 256


def test_a_long_state_is_passed_on_up_to_2048_characters_in_whole_members(recorded: Recorded) -> None:
    members = [f"key{number:02}=" + "v" * 90 for number in range(32)]
    state = state_of(recorded, ",".join(members)).state
    assert state == ",".join(members[:21])
    assert 512 <= len(state) <= 2048


def test_a_state_of_a_megabyte_costs_no_memory_and_no_trace(recorded: Recorded) -> None:
    assert state_of(recorded, "a=" + "b" * 1_000_000).state is None
