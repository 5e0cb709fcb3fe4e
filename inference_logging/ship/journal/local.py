"""The journal of this machine, by the native protocol: a datagram each entry, a sealed memory file for a large one.

journald acknowledges nothing. A batch counts as arrived once journald has read all of its datagrams and its socket is
still there. What it had read and not yet stored when it was killed is lost, and so is what it leaves out by its own
limit of a rate (``RateLimitBurst``).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from inference_logging.ship.connections import wait_until_taken
from inference_logging.ship.journal.fields import fields, serialized
from inference_logging.ship.line import Line, Sent

_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class LocalJournal:
    """The journald that listens at ``path``."""

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        """Keep the parameters of the socket."""
        self._path, self._timeout_s = path, timeout_s
        self._socket: socket.socket | None = None

    def send(self, lines: Sequence[Line]) -> Sent:
        """Send all of them, and wait until journald has read them."""
        entries = [self.convert(line) for line in lines]
        try:
            connected = self._connected()
            for entry in entries:
                _send(connected, entry)
            wait_until_taken(connected, self._timeout_s)
            # A socket that is gone has nothing unread either. journald passes an empty datagram over.
            connected.send(b"")
        except OSError as error:
            self.close()
            return Sent(lines, f"{self._path}: {error.strerror or error}", type(error).__name__)
        return Sent()

    @staticmethod
    def convert(line: Line) -> bytes:
        """Return the entry of a line."""
        return serialized(fields(line))

    def _connected(self) -> socket.socket:
        if self._socket is None:
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                connected.settimeout(self._timeout_s)
                connected.connect(str(self._path))
            except BaseException:
                connected.close()
                raise
            self._socket = connected
        return self._socket

    def close(self) -> None:
        """Close the socket; the next sending opens another one."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket = None


def _send(connected: socket.socket, entry: bytes) -> None:
    try:
        connected.send(entry)
    except OSError as error:
        if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
            raise
        descriptor = os.memfd_create("journal-entry", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - it has no path
            file.write(entry)
            file.flush()
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            socket.send_fds(connected, [b""], [descriptor])
