"""An OpenTelemetry endpoint as a destination: OTLP over HTTP, binary, compressed.

A record becomes a log record of OpenTelemetry's data model: time, severity, event name, trace context; everything else
are attributes of the same names. The body is the message of a log record, else the event's name.

If a batch is answered with 400, 413 or 422, it is halved until the record that is the cause is alone: that one is
refused, and counted. After any other failure the batch is sent again.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from inference_logging.errors import ConfigError, MissingExtraError
from inference_logging.shipping.line import Line, Sent

REFUSED: Final = (400, 413, 422)
SCOPE: Final = "inference_logging"
_SEVERITY: Final = {"TRACE": 1, "DEBUG": 5, "INFO": 9, "WARN": 13, "ERROR": 17, "FATAL": 21}
_APART: Final = frozenset({"timestamp", "severity_text", "event_name", "trace_id", "span_id", "trace_flags"})


class OtlpDestination:
    """The endpoint at ``url``; ``ca_file``: certificates to check it against, in place of the system's."""

    def __init__(self, url: str, *, timeout_s: float, headers: Mapping[str, str], ca_file: str | None) -> None:
        """Prepare a client; it connects when it has something to send."""
        try:
            import httpx
            from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
            from opentelemetry.proto.common.v1 import common_pb2
            from opentelemetry.proto.logs.v1 import logs_pb2
        except ImportError as error:
            package = "httpx" if error.name == "httpx" else "opentelemetry-proto"
            raise MissingExtraError("shipping by OTLP", package, "ship") from None
        self._httpx, self._service, self._logs, self._common = httpx, logs_service_pb2, logs_pb2, common_pb2
        self._url = url
        try:
            verify = _context(ca_file) if ca_file else True
        except OSError as error:
            raise ConfigError([f"ship_ca_file={ca_file!r}: {error}"]) from None
        ours = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        self._client = httpx.Client(timeout=timeout_s, headers={**headers, **ours}, verify=verify)

    def send(self, lines: Sequence[Line]) -> Sent:
        """Send all of them in one request."""
        content = gzip.compress(self._request(lines), compresslevel=1)
        try:
            answer = self._client.post(self._url, content=content)
        except (self._httpx.HTTPError, OSError) as error:
            return Sent(lines, f"{type(error).__name__}: {error}", type(error).__name__)
        if answer.is_success:
            return self._accepted(answer.content)
        status = answer.status_code
        if status not in REFUSED:
            return Sent(lines, f"status {status}: {answer.text[:200]}", str(status), _retry_after_s(answer))
        if len(lines) == 1:
            return Sent(refused={str(status): 1})
        half = len(lines) // 2
        return _both(self.send(lines[:half]), self.send(lines[half:]))

    def _accepted(self, content: bytes) -> Sent:
        response = self._service.ExportLogsServiceResponse()
        try:
            response.ParseFromString(content)
        except Exception:  # noqa: BLE001 - what a success is answered with is not ours to judge
            return Sent()
        rejected = response.partial_success.rejected_log_records
        return Sent(refused={"partial_success": rejected} if rejected else {})

    def _request(self, lines: Sequence[Line]) -> bytes:
        request = self._service.ExportLogsServiceRequest()
        observed = time.time_ns()
        for service_name, of_service in groupby(lines, key=lambda line: line.service_name):
            resource = request.resource_logs.add()
            self._attributes(resource.resource.attributes, {"service.name": service_name})
            scope = resource.scope_logs.add()
            scope.scope.name = SCOPE
            scope.log_records.extend(self._log_record(line, observed) for line in of_service)
        content: bytes = request.SerializeToString()
        return content

    def _log_record(self, line: Line, observed: int) -> Any:
        record = line.record
        severity = str(record.get("severity_text", ""))
        event_name = str(record.get("event_name", ""))
        made = self._logs.LogRecord(
            time_unix_nano=line.unix_nano(),
            observed_time_unix_nano=observed,
            severity_text=severity,
            severity_number=self._logs.SeverityNumber.ValueType(_SEVERITY.get(severity, 0)),
            event_name=event_name,
            trace_id=_from_hex(record.get("trace_id")),
            span_id=_from_hex(record.get("span_id")),
            flags=int.from_bytes(_from_hex(record.get("trace_flags")), "big"),
        )
        made.body.string_value = str(record.get("message", event_name))
        rest = {name: value for name, value in record.items() if name not in _APART and name != "message"}
        self._attributes(made.attributes, rest)
        return made

    def _attributes(self, into: Any, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            into.append(self._common.KeyValue(key=name, value=self._value(value)))

    def _value(self, value: Any) -> Any:
        any_value = self._common.AnyValue
        match value:
            case bool():
                return any_value(bool_value=value)
            case int() if -(2**63) <= value < 2**63:
                return any_value(int_value=value)
            case float() | int():
                return any_value(double_value=float(value))
            case str():
                return any_value(string_value=value)
            case list():
                return any_value(array_value=self._common.ArrayValue(values=map(self._value, value)))
            case dict():
                inner = self._common.KeyValueList()
                self._attributes(inner.values, value)
                return any_value(kvlist_value=inner)
        return any_value()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _context(ca_file: str) -> Any:
    import ssl

    return ssl.create_default_context(cafile=ca_file)


def _retry_after_s(answer: Any) -> float:
    try:
        return float(answer.headers.get("Retry-After", 0))
    except ValueError:
        return 0.0  # a date: the usual pause does


def _both(one: Sent, other: Sent) -> Sent:
    refused = {name: one.refused.get(name, 0) + other.refused.get(name, 0) for name in one.refused | other.refused}
    worse = other if other.failed else one
    return Sent([*one.failed, *other.failed], worse.error, worse.error_type, worse.retry_after_s, refused)


def _from_hex(value: Any) -> bytes:
    try:
        return bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        return b""
