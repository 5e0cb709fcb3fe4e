"""Connections to a host, with TLS or without, for destinations that are no HTTP."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping

from inference_logging.errors import ConfigError


def client_context(ca_file: str | None, options: Mapping[str, str]) -> ssl.SSLContext:
    """Return what a client of TLS checks and shows: ``cert`` and ``key`` of ``options`` are PEM files of its own.

    Raises ``ConfigError`` for a file that is wrong.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError([f"ship_ca_file={ca_file!r}: {error}"]) from None
    if "key" in options and "cert" not in options:
        raise ConfigError([f"ship_to: key={options['key']!r}: needs cert, whose key it is"])
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
