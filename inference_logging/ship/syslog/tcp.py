"""Syslog over TCP and TLS, each message with its length before it (RFC 6587, RFC 5425).

The protocol has no acknowledgements. A batch is a connection of its own, and counts as arrived once the server has
ended the connection after us: it has read all of it then. What a server had read and not yet stored when it was killed
is lost.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Sequence
from typing import Final

from inference_logging.ship.connections import connect, wait_until_taken
from inference_logging.ship.line import Line, Sent
from inference_logging.ship.syslog.sized import Sized

_BLOCK: Final = 4096


class TcpDestination:
    """The server at host and port; ``context``: by TLS."""

    def __init__(
        self, address: tuple[str, int], sized: Sized, *, timeout_s: float, context: ssl.SSLContext | None
    ) -> None:
        """Keep the parameters of the connections."""
        self._address, self._sized, self._timeout_s, self._context = address, sized, timeout_s, context

    def convert(self, line: Line) -> bytes:
        """Return the message of a line."""
        return self._sized.convert(line)

    def send(self, lines: Sequence[Line]) -> Sent:
        """Send all of them, and wait until the server has read them."""
        messages, sent = self._sized.messages(lines)
        if not messages:
            return sent
        try:
            with connect(self._address, self._timeout_s, self._context) as connection:
                connection.sendall(b"".join(framed(message) for _, message in messages))
                self._end(connection)
        except OSError as error:
            sent.failed = [line for line, _ in messages]
            sent.error, sent.error_type = f"{type(error).__name__}: {error}", type(error).__name__
        return sent

    def _end(self, connection: socket.socket) -> None:
        """Say that nothing more comes, and wait until the server ends the connection too, with all of it read."""
        # A server with GnuTLS ends it without close_notify.
        with contextlib.suppress(ssl.SSLEOFError):
            if isinstance(connection, ssl.SSLSocket):
                connection = connection.unwrap()
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(_BLOCK):
                pass
        # One that had ended it before all came has reset it since.
        wait_until_taken(connection, self._timeout_s)

    def close(self) -> None:
        """Do nothing: no connection outlives its batch."""


def framed(message: bytes) -> bytes:
    """Return a message with its length before it."""
    return b"%d %b" % (len(message), message)
