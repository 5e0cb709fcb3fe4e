"""Sockets of destinations that are no HTTP: connections with TLS or without, and what the other side has not taken."""

from __future__ import annotations

import fcntl
import os
import socket
import ssl
import struct
import termios
import time
from collections.abc import Mapping
from typing import Final

from inference_logging.errors import ConfigError

_STEP_S: Final = 0.002


def client_context(ca_file: str | None, options: Mapping[str, str]) -> ssl.SSLContext:
    """Return what a client of TLS checks and shows: ``cert`` and ``key`` of ``options`` are PEM files of its own.

    Raises ``ConfigError`` for a file that is wrong.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError([f"ship_ca_file={ca_file!r}: {error}"]) from None
    if "key" in options and "cert" not in options:
        raise ConfigError([f"ship_to: key={options['key']!r}: needs cert, the certificate of this key"])
    if "cert" in options:
        try:
            context.load_cert_chain(options["cert"], options.get("key"))
        except OSError as error:
            raise ConfigError([f"ship_to: cert={options['cert']!r}: {error}"]) from None
    return context


def connect(address: tuple[str, int], timeout_s: float, context: ssl.SSLContext | None) -> socket.socket:
    """Return a connection, each step of which takes ``timeout_s`` at most. Raises OSError."""
    connection = socket.create_connection(address, timeout_s)
    if context is None:
        return connection
    try:
        return context.wrap_socket(connection, server_hostname=address[0])
    except BaseException:
        connection.close()
        raise


def wait_until_taken(connection: socket.socket, timeout_s: float) -> None:
    """Wait until the other side has taken all bytes: by TCP into its own buffers, from a Unix socket out of its buffer.

    Raises OSError for a connection that was reset, and ``TimeoutError``.
    """
    end_s = time.monotonic() + timeout_s
    while True:
        waiting = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]
        if code := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, os.strerror(code))
        if not waiting:
            return
        if time.monotonic() > end_s:
            raise TimeoutError(f"the server has not accepted {waiting} bytes")
        time.sleep(_STEP_S)
