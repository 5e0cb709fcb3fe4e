"""The HTTP endpoint of `listen`: metrics and health, for servers that have none of ours (Triton) or serve no HTTP.

``/metrics``; ``/health`` (ready?), ``/live`` and ``/producers`` (has a process died that has a name, such as a model
instance of Triton, and not come back?), which answer 200 or 503.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from inference_logging import metrics
from inference_logging._native import Service
from inference_logging.config import Config
from inference_logging.errors import OpenError
from inference_logging.health import Watch
from inference_logging.probes import Answer, liveness, producers, readiness

Reply = tuple[int, str, bytes]
_PHRASES = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@dataclass(eq=False)
class Listening:
    """The listeners of this process, as the collector of metrics looks at them."""

    config: Config
    service: Service
    audit_service: Service | None


class Endpoint:
    """Serve until ``close``.

    Raises ``OpenError`` where the port cannot be had, ``MissingExtraError`` without prometheus_client.
    """

    def __init__(self, listening: Listening, address: str, port: int) -> None:
        """Listen on ``address`` and ``port``."""
        self._collector = metrics.InferenceLoggingCollector(listening)
        self._watch = Watch(listening.config, listening.service, audit=listening.audit_service)
        self._looking = threading.Lock()
        try:
            self._server = make_server(address, port, self._answer, server_class=_Server, handler_class=_Handler)
        except OSError as error:
            raise OpenError(f"metrics_port={port}: {error.strerror or error}") from error
        threading.Thread(target=self._server.serve_forever, name="inference-logging-http", daemon=True).start()

    @property
    def port(self) -> int:
        """The port, which the system has chosen for 0."""
        return self._server.server_port

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        status, kind, content = self._reply(environ)
        headers = [("Content-Type", kind), ("Content-Length", str(len(content))), ("Cache-Control", "no-store")]
        start_response(f"{status} {_PHRASES[status]}", headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else content]

    def _reply(self, environ: dict[str, Any]) -> Reply:
        path = environ.get("PATH_INFO", "")
        probes: dict[str, Callable[[], Answer]] = {
            "/health": lambda: readiness(self._watch.look()),
            "/live": lambda: liveness(self._watch.look()),
            "/producers": lambda: producers(self._watch.look()),
        }
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            return 405, "text/plain; charset=utf-8", b"Method Not Allowed"
        with self._looking:  # what a look remembers is for one thread at a time
            if path == "/metrics":
                content, kind = metrics.render(self._collector, environ.get("HTTP_ACCEPT", ""))
                return 200, kind, content
            if path in probes:
                status, body, _ = probes[path]()
                return status, "application/json", json.dumps(body).encode()
        return 404, "text/plain; charset=utf-8", b"Not Found"


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = 10

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing: a scrape is no news."""
