"""Syslog servers as destinations: messages of RFC 5424 over TCP and TLS."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, urlsplit

from inference_logging.errors import ConfigError
from inference_logging.ship.connections import client_context
from inference_logging.ship.line import Destination
from inference_logging.ship.syslog.message import ENTERPRISE, FACILITY, Format
from inference_logging.ship.syslog.sized import LEAST_MAX_BYTES, MAX_BYTES, Sized
from inference_logging.ship.syslog.tcp import TcpDestination

PORTS: Final = {"syslog+tcp": 601, "syslog+tls": 6514}


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
    return TcpDestination(address, Sized(form, max_bytes), timeout_s=timeout_s, context=context)
