"""Points in time on the command line: `2026-11-21T05:00:00Z`, `2026-11-21`, `15m`."""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone
from typing import Final

import click

FORMS: Final = "RFC 3339 (2026-11-21T05:00:00Z; UTC unless it names a zone), or an age: 90s, 15m, 2h, 7d"

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])", re.ASCII)


def point_in_time(text: str, now_unix_s: float) -> float:
    """Return seconds since the Unix epoch. Raises ``ValueError`` naming ``text`` if it is neither a time nor an age."""
    if _AGE.fullmatch(text.strip()):
        return now_unix_s - duration_s(text)
    try:
        # Python 3.10's fromisoformat knows neither Z nor a fraction that has not six digits.
        written = re.sub(r"\.(\d+)", lambda found: f".{found[1]:0<6.6}", text.strip().upper())
        at = datetime.fromisoformat(written.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"{text!r}: must be {FORMS}") from None
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()


def duration_s(text: str) -> float:
    """Return the seconds of ``90s``, ``15m``, ``2h`` or ``7d``. Raises ``ValueError`` naming ``text`` otherwise."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r}: must be a time such as 90s, 15m, 2h or 7d")
    return float(match[1]) * _SECONDS[match[2]]


def from_option(_context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Read the value of an option; a wrong value is a usage error."""
    if value is None:
        return None
    try:
        return point_in_time(value, time.time())
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from None
