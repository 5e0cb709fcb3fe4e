"""The journal of this machine, by the native protocol: a datagram each entry, a sealed memory file for a large one.

``MESSAGE`` is what a person reads; ``INFERENCE_LOGGING_RECORD`` is the record as JSON, unchanged. Each member that is
text or a number is a field of its own too, ``INFERENCE_LOGGING_…``, by which ``journalctl`` finds entries.

journald acknowledges nothing. A batch counts as arrived once journald has read all of its datagrams and its socket is
still there. What it had read and not yet stored when it was killed is lost, and so is what it leaves out by its own
limit of a rate (``RateLimitBurst``).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from inference_logging.ship.connections import wait_until_taken
from inference_logging.ship.line import Line, Sent
from inference_logging.ship.syslog import severity_of

PREFIX: Final = "INFERENCE_LOGGING_"
RECORD: Final = f"{PREFIX}RECORD"
RESOURCE: Final = f"{PREFIX}RESOURCE_"
NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "inference_logging")
"""``MESSAGE_ID`` of an event is the UUID of version 5 of its name in this namespace."""

NAME_LETTERS: Final = 64
_LONGEST_BYTES: Final = 1024
"""A longer text is in the record alone: a journal keeps an index of each value."""
_OTHER: Final = re.compile(r"[^A-Z0-9_]")
_CONTROLS: Final = re.compile(rb"[\x00-\x08\x0a-\x1f]")

Field = tuple[str, bytes]


def fields(line: Line) -> list[Field]:
    """Return the fields of a line's entry."""
    record, event = line.record, str(line.record.get("event_name", ""))
    return [
        ("MESSAGE", _text(record.get("message", event))),
        ("PRIORITY", b"%d" % severity_of(record)),
        ("SYSLOG_IDENTIFIER", _text(line.service_name)),
        ("SYSLOG_PID", _text(record.get("pid", 0))),
        ("MESSAGE_ID", stable_id(event).encode()),
        (RECORD, line.raw),
        *_members(PREFIX, {name: value for name, value in record.items() if name not in ("message", "record")}),
        *_members(RESOURCE, line.resource),
    ]


@lru_cache
def stable_id(name: str) -> str:
    """Return the 32 hexadecimal digits that stand for a name."""
    return uuid.uuid5(NAMESPACE, name).hex


def _members(prefix: str, values: Mapping[str, Any]) -> Iterable[Field]:
    for name, value in values.items():
        text = _text(value) if isinstance(value, str | int | float) else b""
        if text and len(text) <= _LONGEST_BYTES:
            yield f"{prefix}{_OTHER.sub('_', name.upper())}"[:NAME_LETTERS], text


def _text(value: Any) -> bytes:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.encode("utf-8", "replace")


def serialized(found: Iterable[Field]) -> bytes:
    """Return fields as journald's socket takes them: a value with control characters has its length before it."""
    return b"".join(_serialized(name.encode(), value) for name, value in found)


def _serialized(name: bytes, value: bytes) -> bytes:
    if _CONTROLS.search(value):
        return b"%b\n%b%b\n" % (name, struct.pack("<Q", len(value)), value)
    return b"%b=%b\n" % (name, value)


_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class LocalJournal:
    """The journald that listens at ``path``."""

    def __init__(self, path: Path, *, timeout_s: float) -> None:
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
