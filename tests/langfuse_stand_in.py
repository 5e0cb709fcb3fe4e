"""Stands where a Langfuse server would: it takes what Langfuse's SDK sends, and answers once it may go on."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@contextmanager
def langfuse_stand_in(out: Path) -> Iterator[str]:
    """Serve; give the address. Each span that arrives is a line of ``out``, once however often it is sent.

    Spans are answered after a POST to ``/go``.
    """
    seen: set[bytes] = set()
    lock, go = threading.Lock(), threading.Event()

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.path == "/go":
                go.set()
            elif self.path == "/api/public/otel/v1/traces":
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                with lock, out.open("a", encoding="utf-8") as file:
                    new = spans(body) - seen
                    seen.update(new)
                    file.writelines("record\n" for _ in new)
                go.wait()
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        go.set()
        server.shutdown()
        thread.join()
        server.server_close()


def spans(body: bytes) -> set[bytes]:
    """Return the ids of the spans of an OTLP request."""
    sent = ExportTraceServiceRequest.FromString(body)
    return {span.span_id for of in sent.resource_spans for scope in of.scope_spans for span in scope.spans}
