"""OTLP's messages, one class per signal: lines as log records, and requests as spans.

As a log record, a record has its time, severity, event name and trace context in their places; everything else are
attributes of the same names. The body is the message of a log record, else the event's name. ``spans`` makes the spans.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from inference_logging.read.table.columns import SEVERITIES
from inference_logging.ship.line import Line
from inference_logging.ship.spans import Event, Span, is_request, spans_of

SCOPE: Final = "inference_logging"
_Message = TypeVar("_Message", bound=Message)
_APART: Final = frozenset({"timestamp", "severity_text", "event_name", "trace_id", "span_id", "trace_flags", "message"})


class Logs:
    """Every line is a log record."""

    path = "/v1/logs"

    @staticmethod
    def takes(_line: Line) -> bool:
        """Return whether the line is shipped."""
        return True

    @staticmethod
    def request(lines: Sequence[Line]) -> bytes:
        """Return what is posted."""
        request = logs_service_pb2.ExportLogsServiceRequest()
        observed = time.time_ns()
        for resource, of_resource in groupby(lines, key=lambda line: line.resource):
            made = request.resource_logs.add()
            made.resource.attributes.extend(_key_values(resource))
            scope = made.scope_logs.add()
            scope.scope.name = SCOPE
            scope.log_records.extend(_log_record(line, observed) for line in of_resource)
        return request.SerializeToString()

    @staticmethod
    def rejected(answer: bytes) -> int:
        """Return how many records a successful answer rejects."""
        response = _read(logs_service_pb2.ExportLogsServiceResponse(), answer)
        return response.partial_success.rejected_log_records


class Traces:
    """The line of a request is a span, with others below it; other lines are not shipped."""

    path = "/v1/traces"
    takes = staticmethod(is_request)

    @staticmethod
    def request(lines: Sequence[Line]) -> bytes:
        """Return what is posted."""
        request = trace_service_pb2.ExportTraceServiceRequest()
        for resource, of_resource in groupby(lines, key=lambda line: line.resource):
            made = request.resource_spans.add()
            made.resource.attributes.extend(_key_values(resource))
            scope = made.scope_spans.add()
            scope.scope.name = SCOPE
            scope.spans.extend(_span(span) for line in of_resource for span in spans_of(line))
        return request.SerializeToString()

    @staticmethod
    def rejected(answer: bytes) -> int:
        """Return how many spans a successful answer rejects."""
        response = _read(trace_service_pb2.ExportTraceServiceResponse(), answer)
        return response.partial_success.rejected_spans


def _read(into: _Message, answer: bytes) -> _Message:
    try:
        into.ParseFromString(answer)
    except DecodeError as error:
        raise ValueError(str(error)) from None
    return into


def _log_record(line: Line, observed: int) -> logs_pb2.LogRecord:
    record = line.record
    severity = str(record.get("severity_text", ""))
    event_name = str(record.get("event_name", ""))
    made = logs_pb2.LogRecord(
        time_unix_nano=line.unix_nano(),
        observed_time_unix_nano=observed,
        severity_text=severity,
        severity_number=logs_pb2.SeverityNumber.ValueType(SEVERITIES.get(severity, 0)),
        event_name=event_name,
        trace_id=_from_hex(record.get("trace_id")),
        span_id=_from_hex(record.get("span_id")),
        flags=int.from_bytes(_from_hex(record.get("trace_flags")), "big"),
    )
    made.body.string_value = str(record.get("message", event_name))
    # A line may have its resource too, which stands above.
    has_resource = record.get("resource") == line.resource
    rest = {name: value for name, value in record.items() if name not in _APART}
    if has_resource:
        del rest["resource"]
    made.attributes.extend(_key_values(rest))
    return made


def _span(span: Span) -> trace_pb2.Span:
    made = trace_pb2.Span(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_span_id,
        trace_state=span.trace_state,
        flags=span.flags,
        name=span.name,
        kind=trace_pb2.Span.SpanKind.ValueType(span.kind),
        start_time_unix_nano=span.start,
        end_time_unix_nano=span.end,
        attributes=_key_values(span.attributes),
        events=map(_event, span.events),
    )
    if span.status:
        made.status.code = trace_pb2.Status.StatusCode.ValueType(span.status)
        made.status.message = span.message
    return made


def _event(event: Event) -> trace_pb2.Span.Event:
    return trace_pb2.Span.Event(
        name=event.name, time_unix_nano=event.unix_nano, attributes=_key_values(event.attributes)
    )


def _key_values(values: Mapping[str, Any]) -> list[common_pb2.KeyValue]:
    return [common_pb2.KeyValue(key=name, value=_value(value)) for name, value in values.items()]


def _value(value: Any) -> common_pb2.AnyValue:
    match value:
        case bool():
            return common_pb2.AnyValue(bool_value=value)
        case int() if -(2**63) <= value < 2**63:
            return common_pb2.AnyValue(int_value=value)
        case float():
            return common_pb2.AnyValue(double_value=value)
        case str() | int():
            # So OpenTelemetry maps what int64 does not hold.
            return common_pb2.AnyValue(string_value=str(value))
        case list():
            return common_pb2.AnyValue(array_value=common_pb2.ArrayValue(values=map(_value, value)))
        case dict():
            return common_pb2.AnyValue(kvlist_value=common_pb2.KeyValueList(values=_key_values(value)))
    return common_pb2.AnyValue()


def _from_hex(value: Any) -> bytes:
    try:
        return bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        return b""
