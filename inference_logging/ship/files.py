"""Files of names and values: headers of requests, and properties of librdkafka."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from inference_logging.errors import ConfigError

_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header (RFC 9110, section 5.6.2)."""


def pairs(path: Path | None, parameter: str, sign: str) -> list[tuple[str, str]]:
    """Return the lines of a file as names and values; empty ones and comments are left out.

    ``sign`` is between both: a colon for headers, whose form is checked. Raises ``ConfigError`` naming ``parameter``.
    """
    if path is None:
        return []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{parameter}={str(path)!r}: {error}"]) from None
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        name, found, value = (part.strip() for part in line.partition(sign))
        if line.strip() and not line.lstrip().startswith("#"):
            if not (name and found) or (sign == ":" and _HEADER.fullmatch(name) is None):
                # Its text may be a secret.
                raise ConfigError([f"{parameter}={str(path)!r}: line {number} is not name{sign}value"])
            if sign == ":" and not (line.strip().isascii() and line.strip().isprintable()):
                raise ConfigError([f"{parameter}={str(path)!r}: line {number} must be printable ASCII"])
            pairs.append((name, value))
    return pairs
