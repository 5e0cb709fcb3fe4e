"""The HTTP endpoint of `listen`: metrics and health, for servers that have none of ours (Triton) or serve no HTTP.

``/metrics``; ``/health`` (ready?), ``/live`` and ``/producers`` (has a process died that has a name, such as a model
instance of Triton, and not come back?), which answer 200 or 503.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from inference_logging._native import Health, Service
from inference_logging.asgi import bounded_server
from inference_logging.config import Config
from inference_logging.errors import OpenError
from inference_logging.health import Watch
from inference_logging.metrics import metrics_of

Reply = tuple[int, str, bytes]
_PHRASES = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@dataclass(eq=False)
class Listening:
    """The listeners of this process, as the metrics look at them."""

    config: Config
    service: Service
    audit_service: Service | None


class Endpoint:
    """Serve until ``close``.

    Raises ``OpenError`` where the port cannot be had.
    """

    def __init__(self, listening: Listening, address: str, port: int) -> None:
        """Listen on ``address`` and ``port``."""
        self._watch = Watch(listening.config, listening.service, audit=listening.audit_service)
        self._metrics = metrics_of(listening, self._watch)
        try:
            self._server = bounded_server.serve(address, port, self._answer)
        except OSError as error:
            raise OpenError(f"metrics_port={port}: {error.strerror or error}") from error

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
        probes = {"/health": Health.readiness, "/live": Health.liveness, "/producers": Health.producers}
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            return 405, "text/plain; charset=utf-8", b"Method Not Allowed"
        if path == "/metrics":
            content, kind = self._metrics.render(environ.get("HTTP_ACCEPT", ""))
            return 200, kind, content
        if path in probes:
            status, body, _ = probes[path](self._watch.recent())
            return status, "application/json", body
        return 404, "text/plain; charset=utf-8", b"Not Found"
