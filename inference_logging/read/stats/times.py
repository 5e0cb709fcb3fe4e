"""Points in time in the form of records."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import lru_cache


def timestamp(unix_s: float) -> str:
    """Return a time in the form of records, so that it can be compared with theirs as text."""
    return datetime.fromtimestamp(unix_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def unix_s(stamp: str) -> float:
    """Return a record's timestamp as seconds since the Unix epoch. Raises ``ValueError`` if it is not one."""
    return _minute(stamp[:16]) + float(stamp[17:-1])


@lru_cache(maxsize=64)
def _minute(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y-%m-%dT%H:%M").replace(tzinfo=timezone.utc).timestamp()
