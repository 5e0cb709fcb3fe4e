"""Syslog servers as destinations: messages of RFC 5424 over TCP and TLS.

A message has its length before it (RFC 6587, RFC 5425), ids and the resource as structured data, and the whole record
as JSON behind them. JSON escapes control characters, so that a message has no line break, and none that a server would
change. There is no byte order mark before it: RFC 8259 forbids one before JSON. A message is no longer than what the
server takes: it would cut a longer one, and say so only to itself.

The protocol has no acknowledgements. A batch is a connection of its own, and counts as arrived once the server has
ended the connection after us: it has read all of it then. What a server had read and not yet stored when it was killed
is lost.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from inference_logging.errors import ConfigError
from inference_logging.ship.connections import client_context, connect, wait_until_taken
from inference_logging.ship.line import Destination, Line, Sent

PORTS: Final = {"syslog+tcp": 601, "syslog+tls": 6514}
MAX_BYTES: Final = 8192
"""What each server should take by RFC 5425, and what rsyslog takes unless its maxMessageSize says more."""
LEAST_MAX_BYTES: Final = 2048
"""By RFC 5425 each server takes as much; the fields before the record need several hundred."""
_BLOCK: Final = 4096


def open_syslog(to: str, *, timeout_s: float, ca_file: str | None) -> Destination:
    """Return the destination of a ``ship_to`` of syslog. Raises ``ConfigError``."""
    parts = urlsplit(to)
    options = dict(parse_qsl(parts.query))
    max_bytes = int(options.get("max_bytes", MAX_BYTES))
    if max_bytes < LEAST_MAX_BYTES:
        raise ConfigError([f"ship_to={to!r}: max_bytes must be {LEAST_MAX_BYTES} or more"])
    form = Format(options.get("facility", FACILITY), int(options.get("enterprise", ENTERPRISE)))
    address = (parts.hostname or "", parts.port or PORTS[parts.scheme])
    context = client_context(ca_file, options) if parts.scheme.endswith("+tls") else None
    return TcpDestination(address, form, max_bytes, timeout_s=timeout_s, context=context)


FACILITIES: Final = {"user": 1, "daemon": 3} | {f"local{number}": 16 + number for number in range(8)}
FACILITY: Final = "local0"
ENTERPRISE: Final = 32473
"""The number that RFC 5612 sets aside for documents: no company has it, and this project has none of its own."""

SEVERITIES: Final = {"FATAL": 2, "ERROR": 3, "WARN": 4, "INFO": 6, "DEBUG": 7, "TRACE": 7}
"""By severity_text: critical, error, warning, informational, debug."""
_NOTICE: Final = 5
_IDS: Final = ("boot_id", "pid", "seq", "trace_id", "span_id", "request_id")
_NIL: Final = "-"
_OTHER: Final = re.compile(r"[^!-~]")
_OTHER_IN_NAME: Final = re.compile(r'[^!-~]|[=\]"]')
_ESCAPED: Final = re.compile(r'(["\\\]])')
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_HOSTNAME_LETTERS: Final = 255
_APP_NAME_LETTERS: Final = 48
_PROCID_LETTERS: Final = 128
_MSGID_LETTERS: Final = 32
_NAME_LETTERS: Final = 32
_MICROSECONDS_END: Final = 26


def severity_of(record: Mapping[str, Any]) -> int:
    """Return RFC 5424's severity of a record: WARN2 is a WARN; notice, if there is none."""
    return SEVERITIES.get(str(record.get("severity_text")).rstrip("234"), _NOTICE)


class Format:
    """How messages are made: their facility, and the enterprise number of their structured data."""

    def __init__(self, facility: str = FACILITY, enterprise: int = ENTERPRISE) -> None:
        self._facility, self._enterprise = FACILITIES[facility], enterprise

    def message(self, line: Line) -> bytes:
        """Return the message of a line, without framing."""
        record, resource = line.record, line.resource
        severity = severity_of(record)
        host = resource.get("k8s.pod.name", resource.get("host.name"))
        fields = (
            f"<{self._facility * 8 + severity}>1",
            _time(record.get("timestamp")),
            _word(host, _HOSTNAME_LETTERS),
            _word(line.service_name, _APP_NAME_LETTERS),
            _word(record.get("pid"), _PROCID_LETTERS),
            _word(record.get("event_name"), _MSGID_LETTERS),
            self._structured(record, resource),
        )
        return b"%b %b" % (" ".join(fields).encode(), line.raw)

    def _structured(self, record: Mapping[str, Any], resource: Mapping[str, Any]) -> str:
        ids = {name: record[name] for name in _IDS if record.get(name) is not None}
        return self._element("inference_logging", ids) + self._element("resource", resource) or _NIL

    def _element(self, name: str, values: Mapping[str, Any]) -> str:
        parameters = "".join(f' {_name(key)}="{_value(value)}"' for key, value in values.items() if _name(key))
        return f"[{name}@{self._enterprise}{parameters}]" if parameters else ""


def _time(timestamp: Any) -> str:
    """Return a timestamp with microseconds, which is as many digits as the format has."""
    text = str(timestamp)
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", text):
        return _NIL
    return f"{text.removesuffix('Z')[:_MICROSECONDS_END]}Z"


def _word(value: Any, letters: int) -> str:
    return _OTHER.sub("_", str(value))[:letters] or _NIL if value is not None else _NIL


def _name(name: str) -> str:
    return _OTHER_IN_NAME.sub("_", name)[:_NAME_LETTERS]


def _value(value: Any) -> str:
    """Return a value, its quotes escaped. A control character, for which servers have ways of their own, is U+FFFD."""
    return _ESCAPED.sub(r"\\\1", _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", str(value)))


class TcpDestination:
    """The server at host and port, with messages of at most ``max_bytes``; ``context``: by TLS."""

    def __init__(
        self,
        address: tuple[str, int],
        form: Format,
        max_bytes: int,
        *,
        timeout_s: float,
        context: ssl.SSLContext | None,
    ) -> None:
        self._address, self._form, self._max_bytes = address, form, max_bytes
        self._timeout_s, self._context = timeout_s, context

    def convert(self, line: Line) -> bytes:
        """Return the message of a line, of any length."""
        return self._form.message(line)

    def send(self, lines: Sequence[Line]) -> Sent:
        """Send those that are not too long, and wait until the server has read them; refuse the others."""
        taken, messages, sent = [], [], Sent()
        for line in lines:
            message = self.convert(line)
            if len(message) > self._max_bytes:
                sent.refuse(line, f"longer_than_{self._max_bytes}_bytes", f"its message has {len(message)} bytes")
                continue
            taken.append(line)
            messages.append(framed(message))
        if not taken:
            return sent
        try:
            with connect(self._address, self._timeout_s, self._context) as connection:
                connection.sendall(b"".join(messages))
                self._end(connection)
        except OSError as error:
            sent.failed = taken
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
