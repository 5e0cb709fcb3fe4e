"""The HTTP server of a side process's port: its clients cost a bounded number of threads.

If all connections are taken, a new one ends the oldest: a client that opens many and sends nothing keeps neither probes
nor scrapes out.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

MOST_CONNECTIONS: Final = 32
"""Open at one time, each with a thread."""
IDLE_S: Final = 10.0
"""How long a client may take to send its request."""


class BoundedServer(ThreadingMixIn, WSGIServer):
    """Serve each connection in a thread of its own, at most `MOST_CONNECTIONS` at one time."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self._open: dict[socket.socket, None] = {}
        """In the order in which they came."""
        self._changing = threading.Lock()
        self._free = threading.Semaphore(MOST_CONNECTIONS)
        super().__init__(*arguments, **keywords)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a thread for a connection, once there is room."""
        if not self._free.acquire(blocking=False):
            self._end_oldest()
            self._free.acquire()
        with self._changing:
            self._open[request] = None
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be had
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that has gone or was disconnected."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def _end_oldest(self) -> None:
        with self._changing:
            oldest = next(iter(self._open), None)
            if oldest is not None:
                self._open.pop(oldest)
        if oldest is not None:
            with contextlib.suppress(OSError):  # it has ended by itself
                oldest.shutdown(socket.SHUT_RDWR)

    def _forget(self, request: socket.socket) -> None:
        with self._changing:
            self._open.pop(request, None)
        self._free.release()


class _Handler(WSGIRequestHandler):
    timeout = IDLE_S

    def parse_request(self) -> bool:
        """Refuse a request without a version, of HTTP/0.9 or cut off: in CPython 3.14 `wsgiref` fails on one."""
        if not super().parse_request():
            return False
        if self.request_version == "HTTP/0.9":
            self.send_error(HTTPStatus.BAD_REQUEST, "the request has no version of HTTP")
            return False
        return True

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class's name
        """Write nothing: a scrape is not news."""


def serve(address: str, port: int, application: Any) -> BoundedServer:
    """Serve a WSGI application in the background. Raises ``OSError`` if the port is not available."""
    server = make_server(address, port, application, server_class=BoundedServer, handler_class=_Handler)
    threading.Thread(target=server.serve_forever, name="inference-logging-http", daemon=True).start()
    return server
