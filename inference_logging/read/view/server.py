"""The server: a socket of this machine's loopback, and an end that waits for nothing."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from inference_logging.read.view.app import View
from inference_logging.read.view.security import HEADERS, Guard, hosts, new_token

_WAIT_S: Final = 0.3
"""For the end of threads that still search."""
_INVALID: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n"
    + b"".join(name + b": " + value + b"\r\n" for name, value in HEADERS)
    + b"\r\n"
)


class HostError(ValueError):
    """A host that is not this machine's loopback."""


def loopback(host: str) -> str:
    """Return the address of a host, if that is this machine alone. Raises ``HostError`` with a sentence."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        address = None
    if address is None or not address.is_loopback:
        raise HostError(
            f"host={host!r}: must be a loopback address (127.0.0.1, ::1, localhost), since records are shown without "
            "encryption and login. From another machine use ssh -L, as the command prints it"
        )
    return str(address)


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; the system chooses the port for 0. Raises OSError with a sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise OSError(f"port={port}: another program uses it; omit --port to take a free one") from None
        raise OSError(f"host={host!r}, port={port}: {error.strerror}") from None
    return made


class _Protocol(H11Protocol):
    """HTTP by h11, strictly; what is no HTTP gets the headers of every answer too."""

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's signature
        self.transport.write(_INVALID)
        self.transport.close()


class _Server(uvicorn.Server):
    """A server that says when it has started, and that a signal ends at once with its streams."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], object], ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started, self._ending = on_started, ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self.end()

    def end(self) -> None:
        """End with all streams; from the event loop, or a signal's handler."""
        self.should_exit = self.force_exit = True
        self._ending()


class Serving:
    """One server of a view, under an address of its own."""

    def __init__(self, view: View, listening: socket.socket) -> None:
        """Serve on a socket; ``run`` begins."""
        self._view, self._socket = view, listening
        self.host, self.port = listening.getsockname()[:2]
        self._token = new_token()
        self._server: _Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        """The address, with the token."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.port}/{self._token}/"

    def run(self, started: Callable[[], object] = lambda: None) -> bool:
        """Serve until a signal or ``stop``; return whether all threads have ended.

        ``started`` is called once requests are answered.
        """
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn has ended, and passes the signal on
            asyncio.run(self._serve(started))
        return self._view.close(_WAIT_S)

    def stop(self) -> None:
        """End; from any thread."""
        if self._server is not None and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._server.end)

    async def _serve(self, started: Callable[[], object]) -> None:
        name = f"[{self.host}]" if ":" in self.host else self.host
        guarded: Any = Guard(self._view.app(), self._token, hosts(self.port, name))
        config = uvicorn.Config(
            guarded, http=_Protocol, ws="none", lifespan="off", access_log=False, log_config=None,
            log_level="critical", server_header=False, proxy_headers=False, timeout_keep_alive=30,
            # From Python 3.12.1 on its end waits for each connection, also of a client that reads nothing.
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server, self._loop = _Server(config, started, self._view.live.close), asyncio.get_running_loop()
        self._view.start()
        await self._server.serve(sockets=[self._socket])
