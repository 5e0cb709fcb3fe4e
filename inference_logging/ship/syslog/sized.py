"""Messages that are no longer than what the server takes: it would cut a longer one, and say so only to itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from inference_logging.ship.line import Line, Sent
from inference_logging.ship.syslog.message import Format

MAX_BYTES: Final = 8192
"""What each server should take by RFC 5425, and what rsyslog takes unless its maxMessageSize says more."""
LEAST_MAX_BYTES: Final = 2048
"""By RFC 5425 each server takes as much; the fields before the record need several hundred."""


class Sized:
    """Makes messages of at most ``max_bytes`` bytes."""

    def __init__(self, form: Format, max_bytes: int) -> None:
        """Keep them."""
        self._form, self._max_bytes = form, max_bytes

    def messages(self, lines: Sequence[Line]) -> tuple[list[tuple[Line, bytes]], Sent]:
        """Return the messages of those lines that are not too long, and a result that counts the others as refused."""
        made, sent = [], Sent()
        for line in lines:
            message = self.convert(line)
            if len(message) <= self._max_bytes:
                made.append((line, message))
            else:
                sent.refuse(line, f"longer_than_{self._max_bytes}_bytes", f"its message has {len(message)} bytes")
        return made, sent

    def convert(self, line: Line) -> bytes:
        """Return the message of a line, of any length."""
        return self._form.message(line)
