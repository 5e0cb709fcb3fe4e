"""The place ``clickhouse+http(s)://user@host:port/database?ttl_days=…``."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

_PORTS = {"http": 8123, "https": 8443}


class Place(NamedTuple):
    """Where a server is asked, as whom, and for what."""

    url: str
    user: str | None
    database: str
    ttl_days: int | None
    """After so many days records are removed; None: never."""

    @classmethod
    def parse(cls, to: str) -> Place:
        """Read a ``ship_to`` of ClickHouse, whose form the configuration has checked."""
        parts = urlsplit(to.partition("+")[2])
        user, _, host = parts.netloc.rpartition("@")
        host = host if parts.port else f"{host}:{_PORTS[parts.scheme]}"
        days = parse_qs(parts.query).get("ttl_days")
        return cls(f"{parts.scheme}://{host}/", user or None, parts.path.strip("/"), int(days[0]) if days else None)
