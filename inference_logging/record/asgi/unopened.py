"""A log that cannot be opened, though nothing is configured wrongly: the server serves, says so, and tries again.

Either nobody said where it is to be, or ``open_failure`` says so, or its queue has no room: dead processes' queues may
wait for a listener.
"""

from __future__ import annotations

import errno
import json
import sys
import time
from typing import TYPE_CHECKING, Final

from inference_logging.record.application import get_logger

if TYPE_CHECKING:
    from inference_logging.errors import OpenError
    from inference_logging.record.config import Config
    from inference_logging.record.health import Answer

_PLACES: Final = frozenset({"directory", "queue_directory"})
_NO_ROOM: Final = f"(os error {errno.ENOSPC})"
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 32.0


def may_serve(config: Config, error: OpenError) -> bool:
    """Return whether a server may start without its log: by default places, a full queue or ``open_failure``."""
    is_place = str(error).partition("=")[0] in _PLACES
    may_fail = config.open_failure == "serve" or not _PLACES & config.model_fields_set
    return config.audit == "off" and ((is_place and may_fail) or _NO_ROOM in str(error))


class Unopened:
    """What is said, counted and answered until the log can be opened."""

    state: Final = "degraded"

    def __init__(self, error: OpenError) -> None:
        """Say on stderr why requests are not recorded."""
        self.requests = 0
        self._why = str(error)
        self._pause_s, self._due = _FIRST_PAUSE_S, time.monotonic() + _FIRST_PAUSE_S
        sys.stderr.write(f"inference_logging: requests are NOT recorded until this is repaired: {error}\n")

    def is_due(self) -> bool:
        """Return whether to try again."""
        return time.monotonic() >= self._due

    def failed(self, error: OpenError) -> None:
        """Wait longer for the next try."""
        self._why = str(error)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._due = time.monotonic() + self._pause_s

    def opened(self) -> None:
        """Say and record how many requests are missing."""
        sys.stderr.write(f"inference_logging: requests are recorded again; {self.requests} were not\n")
        get_logger("inference_logging").warning("requests were not recorded", requests=self.requests, reason=self._why)

    def readiness(self) -> Answer:
        """Return the answer of the readiness route."""
        return 503, json.dumps({"status": self.state, "reasons": [f"no log: {self._why}"]}).encode(), 1

    def liveness(self) -> Answer:
        """Return the answer of the liveness route: a restart would not surely repair it."""
        return 200, *self.readiness()[1:]

    def render(self, _accept: str) -> tuple[bytes, str]:
        """Return the metrics page and its type, as the native one does."""
        text = (
            "# TYPE inference_logging_state gauge\n"
            f'inference_logging_state{{state="{self.state}"}} 1\n'
            "# TYPE inference_logging_requests_unrecorded_total counter\n"
            f"inference_logging_requests_unrecorded_total {self.requests}\n"
        )
        return text.encode(), "text/plain; version=0.0.4; charset=utf-8"
