"""The logging itself: whether its account balances, what was lost, how its sinks are, and what it costs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from inference_logging.read.table.table import Table
from inference_logging.read.view import lanes
from inference_logging.read.view.books import Verified
from inference_logging.read.view.paging import records_of, rows_of
from inference_logging.read.view.workers import GoneError

HEALTH_EVENTS: Final = (
    "server.started", "process.ended", "sink.failed", "sink.fallback", "sink.recovered", "sink.dropped",
    "segment.repaired", "segments.removed", "control.changed",
)  # fmt: skip
"""What the logging says of itself in the segments, but for ``log.dropped``."""
_MOST_RECORDS: Final = 500
_FIRST_WAIT_S: Final = 2.0
_TIMED_EVERY: Final = 64
"""The core times one request of so many."""


class Itself:
    """Answers about the logging of some directories."""

    def __init__(
        self, index: Table, directories: Sequence[Path], prefixes: Sequence[str] | None, verified: Verified
    ) -> None:
        """Answer with the account that ``verified`` makes."""
        self._index, self._directories, self._prefixes = index, directories, prefixes
        self._verified = verified
        self._lanes = lanes.Lanes()

    def answer(self, given_up: threading.Event) -> dict[str, Any]:
        """Return everything. Raises ``GoneError``."""
        account = self._verified.look(_FIRST_WAIT_S)
        if given_up.is_set():
            raise GoneError
        found = self._lanes.states(lanes.queue_directories(self._directories, self._prefixes))
        return {
            **account,
            "processes": (account["books"] or {}).get("processes", []),
            "lanes": found,
            "sinks": [{"queue_directory": lane["queue_directory"], **sink} for lane in found for sink in lane["sinks"]],
            "drops": self._records(("log.dropped",)),
            "health": self._records(HEALTH_EVENTS),
            "cost": _cost(found),
        }

    def _records(self, events: Sequence[str]) -> list[dict[str, Any]]:
        """Return the newest records of some events, the newest first."""
        rows = rows_of(self._index, {"events": list(events), "order": "newest"}, _MOST_RECORDS)
        return records_of(self._index, rows)


def _cost(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what the request path has spent in the middleware, as it has measured itself: every 64th request.

    The requests since the last that was timed are in no sum.
    """
    spent_s = sum(lane["totals"]["hot_path_s"] for lane in found)
    requests = sum(lane["requests"] for lane in found)
    timed = sum(lane["requests"] // _TIMED_EVERY for lane in found) * _TIMED_EVERY
    return {
        "hot_path_s": spent_s,
        "requests": requests,
        "hot_path_s_per_request": spent_s / timed if spent_s and timed else None,
    }
