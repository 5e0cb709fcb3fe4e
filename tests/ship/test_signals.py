"""Logs, traces or both: which records go where by OTLP, and that each signal is asked again only for what it lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from inference_logging.errors import ConfigError
from inference_logging.ship.line import Destination, Line
from tests.kit.segment_files import log, request
from tests.kit.servers import free_port
from tests.ship.endpoint import Collector

Open = Callable[..., Destination]
RESOURCE = {"service.name": "svc", "k8s.pod.name": "pod-1"}
BOTH = "?signal=both"


def line(record: dict[str, Any], offset: int) -> Line:
    return Line("svc", "svc-1.jsonl", offset, orjson.dumps(record), record, RESOURCE)


def asked(second: float, route: str, **fields: Any) -> Line:
    return line(request(second, http__route=route, **fields), int(second))


LINES = [line(log(0, "m0"), 0), asked(1, "/a"), line(log(2, "m2"), 2), asked(3, "/b", engine__queued_s=0.1)]


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ("", ["/v1/logs"]),
        ("?signal=logs", ["/v1/logs"]),
        ("?signal=traces", ["/v1/traces"]),
        (BOTH, ["/v1/logs", "/v1/traces"]),
        ("/own/v1/logs?signal=logs", ["/own/v1/logs"]),
        ("/own/v1/traces?signal=traces", ["/own/v1/traces"]),
        (f"/own{BOTH}", ["/own/v1/logs", "/own/v1/traces"]),
        (f"/own/{BOTH}", ["/own/v1/logs", "/own/v1/traces"]),
    ],
)
def test_a_signal_has_its_path_and_the_query_is_not_sent(
    collector: Collector, opened: Open, given: str, paths: list[str]
) -> None:
    sent = opened(ship_to=f"{collector.url}{given}").send(LINES)
    assert (list(sent.failed), sent.refused) == ([], {})
    assert [path for path, _, _ in collector.requests] == paths


@pytest.mark.parametrize("query", ["?signal=metrics", "?signal=", "?signal", "?", "?token=1", "/p?signal=logs&a=b"])
def test_another_query_is_refused_by_parameter_and_value(configure: Callable[..., Any], query: str) -> None:
    with pytest.raises(ConfigError, match="ship_to=") as refused:
        configure(ship_to=f"otlp+https://a{query}")
    assert f"otlp+https://a{query}" in str(refused.value)
    assert "?signal=" in str(refused.value)


def test_spans_alone_leave_all_else_out(collector: Collector, opened: Open) -> None:
    destination = opened(ship_to=f"{collector.url}?signal=traces")
    sent = destination.send(LINES)
    assert (list(sent.failed), sent.refused, sent.left_out) == ([], {}, 2)
    assert collector.span_names() == [["POST /a", "POST /b", "queue"]]
    (_, headers, content) = collector.requests[0]
    assert headers["Content-Type"] == "application/x-protobuf"
    (of_resource,) = ExportTraceServiceRequest.FromString(content).resource_spans
    assert {one.key: one.value.string_value for one in of_resource.resource.attributes} == RESOURCE
    assert destination.send(LINES[::2]).left_out == 2
    assert len(collector.requests) == 1, "nothing is posted without a request"


def test_by_both_signals_every_record_is_a_log_record_and_requests_are_spans_too(
    collector: Collector, opened: Open
) -> None:
    sent = opened(ship_to=collector.url + BOTH).send(LINES)
    assert (list(sent.failed), sent.refused, sent.left_out) == ([], {}, 0)
    assert collector.messages() == ["m0", "request", "m2", "request"]
    assert collector.span_names() == [["POST /a", "POST /b", "queue"]]


def test_only_the_signal_that_failed_gets_the_lines_again(collector: Collector, opened: Open) -> None:
    destination = opened(ship_to=collector.url + BOTH)
    collector.answers = [(200, b"", {}), (503, b"later", {"Retry-After": "7"})]
    sent = destination.send(LINES)
    assert [line.offset for line in sent.failed] == [1, 3], "log lines have arrived"
    assert (sent.error, sent.error_type, sent.retry_after_s) == ("status 503: later", "503", 7.0)
    assert not destination.send(sent.failed).failed
    assert collector.messages() == ["m0", "request", "m2", "request"], "logs once"
    assert collector.span_names() == [["POST /a", "POST /b", "queue"]] * 2
    collector.answers = [(503, b"", {})]
    sent = destination.send(LINES)
    assert list(sent.failed) == LINES
    assert not destination.send(LINES).failed
    assert len(collector.span_names()) == 3, "spans once"
    assert not destination.send(LINES).failed
    assert len(collector.span_names()) == 4, "what has arrived is no longer known"


def test_where_both_fail_all_of_it_waits(opened: Open) -> None:
    sent = opened(ship_to=f"otlp+http://127.0.0.1:{free_port()}{BOTH}", ship_timeout_s=0.5).send(LINES)
    assert (list(sent.failed), sent.refused, bool(sent.error)) == (LINES, {}, True)


def test_a_request_that_is_refused_as_a_span_is_alone_in_that(collector: Collector, opened: Open) -> None:
    collector.refuses = lambda content: b"POST /a" in content
    sent = opened(ship_to=f"{collector.url}?signal=traces").send(LINES)
    assert (list(sent.failed), sent.refused, sent.left_out) == ([], {"413": 1}, 2)
    assert collector.span_names()[-1] == ["POST /b", "queue"]


def test_what_a_collector_rejects_of_spans_is_counted(collector: Collector, opened: Open) -> None:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 2
    collector.answers = [(200, answer.SerializeToString(), {})]
    assert opened(ship_to=f"{collector.url}?signal=traces").send(LINES).refused == {"partial_success": 2}


def test_a_resource_that_stands_in_the_line_too_is_sent_once(collector: Collector, opened: Open) -> None:
    same, other = log(0, "m0", resource=RESOURCE), log(1, "m1", resource="of its own")
    assert not opened(ship_to=collector.url).send([line(same, 0), line(other, 1)]).failed
    (scope,) = collector.logs()[0][2].resource_logs[0].scope_logs
    assert [[one.key for one in record.attributes].count("resource") for record in scope.log_records] == [0, 1]
