"""Points in time in the form of records."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def timestamp(unix_s: float) -> str:
    """Return a time in the form of records, so that it can be compared with theirs as text."""
    return datetime.fromtimestamp(unix_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def stamp(unix_nano: int) -> str:
    """Return Unix nanoseconds as records have a time."""
    seconds, nano = divmod(unix_nano, 1_000_000_000)
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}.{nano:09}Z"


def unix_nano(timestamp: str) -> int:
    """Return Unix nanoseconds of a record's ``timestamp``, which has nine decimals; 0 if it is none.

    Also 0 before 1970 and after 2262, which OTLP has no number for.
    """
    whole, _, rest = timestamp.partition(".")
    try:
        begun = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
        nano = int(rest.rstrip("Z").ljust(9, "0")[:9] or 0)
    except ValueError:
        return 0
    since_epoch = round((begun - _EPOCH).total_seconds()) * 1_000_000_000 + nano
    return since_epoch if 0 <= since_epoch < 2**63 else 0
