"""The sampler in the middleware: whose decision counts, what is kept regardless, what is never recorded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.signatures import Message, Receive, Recording, Send
from tests.kit.support import Recorded, answer, http_scope, raising, replying, sampler, sampler_of

LOW, HIGH = "4bf92f3577b34da60000000000000001", "4bf92f3577b34da6ffffffffffffffff"
HALF = "4bf92f3577b34da60080000000000000"
TRACE_ID_HALF = "4bf92f3577b34da6"
PARENT_ID = "00f067aa0ba902b7"
JAVA = json.loads((Path(__file__).parents[1] / "vectors" / "java.json").read_text())


def scope(
    trace_id: str, path: str = "/", flags: str = "01", ot: str = "", client: Any = ("10.1.2.3", 1)
) -> dict[str, Any]:
    headers = [(b"traceparent", f"00-{trace_id}-{PARENT_ID}-{flags}".encode())]
    headers += [(b"tracestate", f"ot={ot}".encode())] if ot else []
    return {**http_scope(path, headers=headers), "client": client}


def sampled(record: dict[str, Any]) -> tuple[Any, Any]:
    return record["sampled_by"], record.get("adjusted_count")


def left_out(recorded: Recorded) -> dict[str, int]:
    found = recorded.logger.stats()["sampled_out"]
    assert isinstance(found, dict)
    return found


OK = replying(*answer(b"x"))


@pytest.mark.parametrize("case", JAVA["parents"][::5], ids=lambda case: f"{case['ot']}-{case['traceparent'][19:]}")
def test_a_trusted_callers_headers_are_followed_as_by_the_java_sdk(recording: Recording, case: dict[str, Any]) -> None:
    recorded = recording(trusted_callers="10.0.0.0/8", sample_ratio=0.5)
    _, trace_id, _, flags = case["traceparent"].split("-")
    recorded.serve(OK, scope(trace_id, flags=flags, ot=case["ot"]))
    records = recorded.records("request")
    assert len(records) == case["kept"]
    assert left_out(recorded) == ({} if case["kept"] else {"parent": 1})
    for record in records:
        reported = dict(member.split(":") for member in case["ot"].split(";") if member)
        count = 2**56 / (2**56 - int(reported["th"].ljust(14, "0"), 16)) if "th" in reported else None
        assert sampled(record) == ("head", count)


@pytest.mark.parametrize("client", [("11.0.0.1", 1), ("::1", 1), None])
def test_the_decision_of_a_caller_that_is_not_trusted_does_not_count(recording: Recording, client: Any) -> None:
    recorded = recording(trusted_callers="10.0.0.0/8", sample_ratio=0.5)
    traces = [f"{number:032x}" for number in range(1, 51)]
    for trace in traces:
        recorded.serve(OK, scope(trace, ot="th:0;rv:ffffffffffffff", client=client))
        recorded.serve(OK, scope(trace, flags="00", ot="th:8;rv:00000000000000", client=client))
    decide = sampler(recorded.logger.config).head
    kept = [trace for trace in traces for _ in range(2) if decide(trace, stranger=True)[0]]
    records = recorded.records("request")
    assert [record["trace_id"] for record in records] == kept
    assert {sampled(record) for record in records} == {("head", 2.0)}
    assert left_out(recorded) == {"head": 100 - len(kept)}


def test_nobody_is_trusted_by_default_and_everybody_by_a_star(recording: Recording) -> None:
    recorded = recording(sample_ratio=0)
    recorded.serve(OK, scope(HIGH, ot="th:0"))
    assert recorded.records("request") == []
    recorded.close()
    recorded = recording(sample_ratio=0, trusted_callers="*")
    assert sampled(recorded.request_of(OK, scope(HIGH, ot="th:0", client=None))) == ("head", 1.0)


def test_probability_asks_no_caller(recording: Recording) -> None:
    recorded = recording(sampler="probability", trusted_callers="*", sample_ratio=0.25)
    recorded.serve(OK, scope(HALF, ot="th:0"))
    assert sampled(recorded.request_of(OK, scope(HIGH, flags="00"))) == ("head", 4.0)


def test_the_precision_of_the_threshold_is_a_setting(recording: Recording) -> None:
    recorded = recording(sampler="probability", trusted_callers="*", sample_ratio=1 / 3, sample_precision=1)
    assert sampled(recorded.request_of(OK, scope(HIGH))) == ("head", 16 / 5)


@pytest.mark.parametrize("kind", ["probability", "otel-legacy-python", "otel-legacy-java"])
def test_where_no_caller_is_asked_the_trace_id_alone_decides(recording: Recording, kind: str) -> None:
    recorded = recording(sampler=kind, trusted_callers="*", sample_ratio=0.25)
    decide = sampler_of(kind, ratio=0.25).head
    traces = [f"{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}" for number in range(1, 101)]
    for trace in traces:
        recorded.serve(OK, scope(trace, ot="th:0"))
    records = recorded.records("request")
    kept = [trace for trace in traces if decide(trace)[0]]
    assert 0 < len(kept) < 100
    assert [record["trace_id"] for record in records] == kept
    assert {sampled(record) for record in records} == {("head", 4.0)}
    assert left_out(recorded) == {"head": 100 - len(kept)}


def test_a_route_has_its_own_ratio(recording: Recording) -> None:
    ratios = {"/v1/models": 1, "/v1/*": 0.25}
    recorded = recording(sampler="probability", trusted_callers="*", sample_ratio=0, sample_routes=ratios)
    for path in ("/v1/models", "/v1/chat", "/other"):
        for trace_id in (HALF, HIGH):
            recorded.serve(OK, scope(trace_id, path))
    found = [
        (record["url.path"], record["trace_id"], record["adjusted_count"]) for record in recorded.records("request")
    ]
    assert found == [("/v1/models", HALF, 1.0), ("/v1/models", HIGH, 1.0), ("/v1/chat", HIGH, 4.0)]
    assert left_out(recorded) == {"head": 3}


@pytest.mark.parametrize("path", ["/health", "/readyz", "/metrics", "/v2/health/live"])
def test_a_probe_is_recorded_only_where_it_fails(recording: Recording, path: str) -> None:
    recorded = recording(trusted_callers="*", slow_s=1e-9)
    recorded.serve(OK, scope(HIGH, path))
    record = recorded.request_of(replying(*answer(b"", status=503)), scope(HIGH, path))
    assert (record["http.response.status_code"], sampled(record)) == (503, ("error", 1.0))
    assert left_out(recorded) == {"skipped": 1}


def test_without_skip_paths_probes_are_recorded_as_any_request(recording: Recording) -> None:
    recorded = recording(skip_paths="")
    assert sampled(recorded.request_of(OK, http_scope("/health"))) == ("head", 1.0)


def test_slow_requests_are_kept_where_a_duration_is_set(recording: Recording) -> None:
    recorded = recording(sample_ratio=0, slow_s=1e-6)
    assert sampled(recorded.request_of(OK, scope(LOW))) == ("slow", 1.0)


def test_aborted_requests_are_kept(recording: Recording) -> None:
    recorded = recording(sample_ratio=0)

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    leaving: list[Message] = [{"type": "http.request", "body": b""}, {"type": "http.disconnect"}]
    recorded.serve(app, scope(LOW), leaving)
    with pytest.raises(asyncio.CancelledError):
        recorded.serve(raising(asyncio.CancelledError), scope(LOW))
    records = recorded.records("request")
    assert [record["outcome"] for record in records] == ["client_disconnect", "server_shutdown"]
    assert {sampled(record) for record in records} == {("abort", 1.0)}


def test_an_error_counts_once_also_where_the_head_kept_it(recording: Recording) -> None:
    recorded = recording(sampler="probability", trusted_callers="*", sample_ratio=0.25)
    for trace_id in (LOW, HIGH):
        recorded.serve(replying(*answer(b"", status=500)), scope(trace_id))
    records = recorded.records("request")
    assert [sampled(record) for record in records] == [("error", 1.0), ("head", 1.0)]


def test_a_wrong_sampler_setting_stops_at_start_not_at_the_first_request(configure: Callable[..., Any]) -> None:
    # What the configuration lets pass, the native sampler takes.
    config = configure(
        sample_routes={"/a/{b}/*": 0, "/": 2.0**-56, "/é": 1},
        skip_paths=["/*"],
        trusted_callers=["fd00::/8", "::1", "0.0.0.0/0"],
    )
    assert sampler(config).trusts("203.0.113.1")
    assert sampler(config).head(HIGH, "/x") == (False, 0.0, "skipped")


def test_a_client_chooses_by_its_ids_neither_that_it_is_recorded_nor_that_it_is_not(recording: Recording) -> None:
    recorded = recording(sample_ratio=0.25)
    for number in range(200):
        high, low = f"{TRACE_ID_HALF}{2**64 - 1 - number:016x}", f"{TRACE_ID_HALF}{number + 1:016x}"
        recorded.serve(OK, scope(high, "/high", ot="th:0;rv:ffffffffffffff"))
        recorded.serve(OK, scope(low, "/low", flags="00", ot="rv:00000000000000"))
    records = recorded.records("request")
    for path in ("/high", "/low"):
        kept = [record for record in records if record["url.path"] == path]
        assert 20 <= len(kept) <= 80, "about a quarter of 200"
        assert {sampled(record) for record in kept} == {("head", 4.0)}
    assert {record["parent_span_id"] for record in records} == {PARENT_ID}, "the client's ids stay on the record"


def test_all_processes_with_one_key_decide_alike_about_a_strangers_trace(
    configure: Callable[..., Any], tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    traces = [f"{TRACE_ID_HALF}{number:016x}" for number in range(1, 200)]

    def kept(**settings: Any) -> list[bool]:
        decide = sampler(configure(sample_ratio=0.5, **settings)).head
        return [decide(trace, stranger=True)[0] for trace in traces]

    assert kept(capture_hash_key_file=key) == kept(capture_hash_key_file=key) != kept()
    assert kept() == kept(), "without a key file the processes of a host share one"
