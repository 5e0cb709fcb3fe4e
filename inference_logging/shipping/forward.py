"""Fluent's forward protocol as a destination: packed entries, compressed, each chunk acknowledged; TLS, shared key.

An entry's map is the record, with the segment's resource as one more member, ``resource``.

Source: Fluentd's wiki, "Forward Protocol Specification v1". The encoding, MessagePack, is a library's; there is no
maintained Python client that has TLS, shared key and acknowledgement.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
from collections.abc import Sequence
from typing import Any, Final

from inference_logging.errors import ConfigError, MissingExtraError
from inference_logging.shipping.line import Line, Sent

PORT: Final = 24224
_BLOCK: Final = 64 << 10
_NANO: Final = 1_000_000_000
_EVENT_TIME: Final = 0
"""The extension type of MessagePack that is a time: seconds and nanoseconds, 32 bits each."""


class RefusedError(OSError):
    """The other side does not accept this client, or is not the expected one."""


class ForwardDestination:
    """The server at ``host`` and ``port``. ``shared_key``: both sides have to prove that they know it."""

    def __init__(
        self,
        address: tuple[str, int],
        tag: str,
        *,
        timeout_s: float,
        shared_key: bytes | None = None,
        tls: bool = False,
        ca_file: str | None = None,
    ) -> None:
        """Keep the parameters of the connection, which is made when there is something to send."""
        try:
            import msgpack
        except ImportError:
            raise MissingExtraError("shipping by Fluent's forward protocol", "msgpack", "ship") from None
        self._msgpack = msgpack
        self._address, self._tag, self._timeout_s, self._shared_key = address, tag, timeout_s, shared_key
        try:
            self._tls = ssl.create_default_context(cafile=ca_file) if tls else None
        except OSError as error:
            raise ConfigError([f"ship_ca_file={ca_file!r}: {error}"]) from None
        self._socket: socket.socket | None = None
        self._unpacker: Any = None

    def send(self, lines: Sequence[Line]) -> Sent:
        """Send all of them as one chunk and wait for its acknowledgement."""
        chunk = base64.b64encode(secrets.token_bytes(16)).decode()
        entries = b"".join(self._entry(line) for line in lines)
        option = {"chunk": chunk, "size": len(lines), "compressed": "gzip"}
        message = self._msgpack.packb([self._tag, gzip.compress(entries, compresslevel=1), option])
        try:
            connection = self._connected()
            connection.sendall(message)
            answer = self._receive(connection)
            if not isinstance(answer, dict) or answer.get("ack") != chunk:
                raise RefusedError(f"acknowledged something else: {str(answer)[:100]}")
        except (OSError, ValueError) as error:
            self.close()
            return Sent(lines, f"{type(error).__name__}: {error}", type(error).__name__)
        return Sent()

    def _entry(self, line: Line) -> bytes:
        seconds, nano = divmod(line.unix_nano(), _NANO)
        time = self._msgpack.ExtType(_EVENT_TIME, struct.pack(">II", seconds & 0xFFFFFFFF, nano))
        # A line that has its resource already says the same.
        entry: bytes = self._msgpack.packb([time, {"resource": line.resource, **line.record}], default=str)
        return entry

    def _connected(self) -> socket.socket:
        if self._socket is None:
            connection = socket.create_connection(self._address, self._timeout_s)
            try:
                if self._tls is not None:
                    connection = self._tls.wrap_socket(connection, server_hostname=self._address[0])
                self._unpacker = self._msgpack.Unpacker(raw=False, max_buffer_size=_BLOCK)
                if self._shared_key is not None:
                    self._shake_hands(connection, self._shared_key)
            except BaseException:
                connection.close()
                raise
            self._socket = connection
        return self._socket

    def _shake_hands(self, connection: socket.socket, key: bytes) -> None:
        greeting = self._receive(connection)
        if not isinstance(greeting, list) or greeting[:1] != ["HELO"] or len(greeting) != 2:
            raise RefusedError("did not begin with HELO; does it ask for a shared key?")
        nonce = _bytes(greeting[1].get("nonce", b""))
        if _bytes(greeting[1].get("auth", b"")):
            raise RefusedError("asks for a user name, which is not supported: only a shared key is")
        salt, name = secrets.token_bytes(16), socket.gethostname()
        digest = hashlib.sha512(salt + name.encode() + nonce + key).hexdigest()
        connection.sendall(self._msgpack.packb(["PING", name, salt, digest, "", ""]))
        answer = self._receive(connection)
        if not isinstance(answer, list) or answer[:1] != ["PONG"] or len(answer) != 5:
            raise RefusedError("did not answer PONG")
        _, accepted, reason, server, proof = answer
        if not accepted:
            raise RefusedError(f"refuses: {reason}")
        expected = hashlib.sha512(salt + _bytes(server) + nonce + key).hexdigest()
        if not hmac.compare_digest(expected.encode(), _bytes(proof)):
            raise RefusedError("does not know the shared key")

    def _receive(self, connection: socket.socket) -> Any:
        while True:
            for message in self._unpacker:
                return message
            block = connection.recv(_BLOCK)
            if not block:
                raise ConnectionResetError("the connection was closed before an answer came")
            self._unpacker.feed(block)

    def close(self) -> None:
        """Close the connection; the next sending opens another one."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket = None


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
