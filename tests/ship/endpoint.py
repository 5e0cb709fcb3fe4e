"""An HTTP server of the test in the place of an OpenTelemetry Collector: it keeps what comes and answers by turns."""

from __future__ import annotations

import base64
import gzip
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.ship.otelcol import attributes


class HttpServer(ABC):
    """Gives each request, unpacked, to ``respond``; one that came in part, as its sender was killed, is left alone."""

    def __init__(self, address: str = "127.0.0.1", context: ssl.SSLContext | None = None) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                expected_bytes = int(self.headers.get("Content-Length", 0))
                content = self.rfile.read(expected_bytes)
                if len(content) < expected_bytes:
                    return
                if self.headers.get("Content-Encoding") == "gzip":
                    content = gzip.decompress(content)
                status, body, headers = server.respond(self.command, self.path, dict(self.headers.items()), content)
                if status == 0:
                    return  # as a server that died
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_POST  # noqa: N815 - the base class's names

            def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class's name
                """Say nothing."""

        self.server = ThreadingHTTPServer((address, 0), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @abstractmethod
    def respond(
        self, method: str, path: str, headers: dict[str, str], content: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        """Return status, content and headers of the answer; the status 0: none."""

    def close(self) -> None:
        """Serve no more."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Collector(HttpServer):
    """``answers`` are given first come first served, then successes; what ``refuses`` finds is answered with 413."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.address = address
        self.answers: list[tuple[int, bytes, dict[str, str]]] = []
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        """Path, headers and content."""
        self.accepted: list[bytes] = []
        """The contents of those that are answered with 200."""
        self.refuses: Callable[[bytes], bool] = lambda _: False
        super().__init__(address)

    def respond(
        self, method: str, path: str, headers: dict[str, str], content: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        self.requests.append((path, headers, content))
        status, body, more = self.answers.pop(0) if self.answers else (200, b"", {})
        status = 413 if self.refuses(content) else status
        if status == 200:
            self.accepted.append(content)
        return status, body, more

    @property
    def url(self) -> str:
        """What ``ship_to`` says."""
        return f"otlp+http://{self.address}:{self.server.server_port}"

    def logs(self) -> list[tuple[str, dict[str, str], ExportLogsServiceRequest]]:
        """Return the requests whose path is that of logs, with their content as it is read."""
        found = [one for one in self.requests if one[0].endswith("/v1/logs")]
        return [(path, headers, ExportLogsServiceRequest.FromString(content)) for path, headers, content in found]

    def messages(self) -> list[str]:
        """Return the bodies of the log records that were accepted or refused, request by request."""
        exports = [MessageToDict(export) for _, _, export in self.logs()]
        scopes = [resource["scopeLogs"][0] for export in exports for resource in export["resourceLogs"]]
        return [record["body"]["stringValue"] for scope in scopes for record in scope["logRecords"]]

    def received(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield each log record as OTLP's JSON has it, with the attributes of its resource."""
        for _, _, export in self.logs():
            for of_resource in MessageToDict(export)["resourceLogs"]:
                resource = attributes(of_resource["resource"])
                for record in of_resource["scopeLogs"][0]["logRecords"]:
                    ids = {name: _hex(record[name]) for name in ("traceId", "spanId") if name in record}
                    yield {**record, **ids}, resource

    def records(self) -> list[dict[str, Any]]:
        """Return the fields of each record that came, with the attributes of its resource in ``resource``."""
        return [
            {"event_name": record.get("eventName"), **attributes(record), "resource": resource}
            for record, resource in self.received()
        ]

    def span_names(self) -> list[list[str]]:
        """Return the names of the spans of each request to the path of traces."""
        found = [content for path, _, content in self.requests if path.endswith("/v1/traces")]
        exports = [ExportTraceServiceRequest.FromString(content) for content in found]
        return [
            [span.name for resource in export.resource_spans for scope in resource.scope_spans for span in scope.spans]
            for export in exports
        ]


def _hex(text: str) -> str:
    return base64.b64decode(text).hex()


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Serve OTLP."""
    served = Collector()
    yield served
    served.close()
