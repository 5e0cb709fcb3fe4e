"""A real OpenTelemetry Collector with a test's configuration, and the records and spans in the file that it writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

from tests.kit.servers import free_port
from tests.kit.support import parse
from tests.ship.programs import Program, listens
from tests.tools.tools import tool

_NANO: Final = 1_000_000_000


class Collector(Program):
    """``otelcol``, or the older ``otelgateway``, with its files in ``directory``; ready once ``port`` is open."""

    def __init__(
        self,
        directory: Path,
        config: Mapping[str, Any],
        *,
        port: int,
        program: str = "otelcol",
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        binary = tool(program)
        directory.mkdir(exist_ok=True)
        file = directory / "collector.yaml"
        file.write_text(yaml.safe_dump(dict(config), sort_keys=False), "utf-8")
        command: list[str | Path] = [binary, f"--config={file}", *arguments]
        super().__init__(command, directory / "log", lambda: listens(port), environment)


class Receiver(Collector):
    """A collector that takes OTLP and writes each record and span to a file before it answers."""

    def __init__(self, directory: Path) -> None:
        port, self._file = free_port(), directory / "out" / "records.json"
        self.url = f"otlp+http://127.0.0.1:{port}"
        directory.mkdir()
        self._file.parent.mkdir()
        config = {
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
            # Only a file that is rotated is written without a buffer.
            "exporters": {"file": {"path": str(self._file), "rotation": {"max_megabytes": 1000}}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {one: {"receivers": ["otlp"], "exporters": ["file"]} for one in ("logs", "traces")},
            },
        }
        super().__init__(directory, config, port=port)

    def received(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield each log record as it stands in the file, with the attributes of its resource and its scope."""
        return self._stand("Logs", "logRecords")

    def spans(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield each span in the same way."""
        return self._stand("Spans", "spans")

    def _stand(self, kind: str, things: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        for line in self._file.read_bytes().splitlines() if self._file.exists() else ():
            # The last line of a life may be torn, and the next life goes on behind it.
            for of_resource in _whole(line).get(f"resource{kind}", ()):
                for of_scope in of_resource[f"scope{kind}"]:
                    resource = {**attributes(of_resource["resource"]), "scope": of_scope["scope"].get("name")}
                    yield from ((thing, resource) for thing in of_scope[things])


def as_record(received: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record that a log record was made of, but for its message, which is in ``body``."""
    flags = received.get("flags")
    apart = {
        "timestamp": stamp(int(received["timeUnixNano"])),
        "severity_text": received.get("severityText"),
        "event_name": received.get("eventName"),
        "trace_id": received.get("traceId"),
        "span_id": received.get("spanId"),
        "trace_flags": f"{flags:02x}" if flags is not None else None,
        "body": received["body"]["stringValue"],
    }
    return {name: value for name, value in apart.items() if value not in (None, "")} | attributes(received)


def with_body(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the message, or else its event's name, as the body."""
    rest = {name: value for name, value in record.items() if name != "message"}
    return {**rest, "body": record.get("message", record["event_name"])}


def attributes(of: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as Python has them."""
    return {pair["key"]: _value(pair["value"]) for pair in of.get("attributes", ())}


def stamp(unix_nano: int) -> str:
    """Return a time as records have it."""
    second, nano = divmod(unix_nano, _NANO)
    return f"{datetime.fromtimestamp(second, timezone.utc):%Y-%m-%dT%H:%M:%S}.{nano:09}Z"


def _value(value: Mapping[str, Any]) -> Any:
    if not value:
        return None
    ((kind, inner),) = value.items()
    match kind:
        case "intValue":
            return int(inner)
        case "arrayValue":
            return [_value(one) for one in inner.get("values", ())]
        case "kvlistValue":
            return {pair["key"]: _value(pair["value"]) for pair in inner.get("values", ())}
    return inner


def _whole(line: bytes) -> dict[str, Any]:
    try:
        return parse(line)
    except json.JSONDecodeError:
        return {}
