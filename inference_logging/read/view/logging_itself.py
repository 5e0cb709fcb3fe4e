"""The logging itself: whether its account balances, what was lost, how its sinks are, and what it costs.

The account is what `verify` proves of the directories, made in a process of its own, now and then. Who listens and how
sinks are comes from the queue directories behind the segments, where they still exist.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from inference_logging import _native
from inference_logging.read import verify
from inference_logging.read.segments import segments
from inference_logging.read.segments.reading import header_of
from inference_logging.read.table.table import Table
from inference_logging.read.view.queries import records_of, rows_of
from inference_logging.read.view.workers import GoneError
from inference_logging.record.config import Config

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
        self._index, self._directories, self._prefixes = index, directories, prefixes
        self._verified = verified
        self._lanes = Lanes()

    def answer(self, given_up: threading.Event) -> dict[str, Any]:
        """Return everything. Raises ``GoneError``."""
        account = self._verified.look(_FIRST_WAIT_S)
        if given_up.is_set():
            raise GoneError
        found = self._lanes.states(queue_directories(self._directories, self._prefixes))
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


_MOST_SEGMENTS: Final = 20
"""The newest of a directory whose headers are read."""
_UNKNOWN: Final[dict[str, Any]] = {
    "state": None, "reasons": [], "listener": None, "sinks": [], "queues": [], "totals": {"hot_path_s": 0.0},
    "requests": 0,
}  # fmt: skip


def queue_directories(directories: Iterable[Path], prefixes: Sequence[str] | None) -> list[Path]:
    """Return the queue directories that the newest segments name and that are this user's."""
    found: dict[Path, None] = {}
    for directory in directories:
        for path in _named(directory, prefixes):
            if _is_own(path):
                found.setdefault(path)
    return list(found)


def _named(directory: Path, prefixes: Sequence[str] | None) -> Iterator[Path]:
    try:
        listed = segments(directory, prefixes)
    except OSError:
        return
    for segment in [one for one in listed if not one.compressed][-_MOST_SEGMENTS:]:
        named = header_of(segment).get("queue_directory")
        if isinstance(named, str) and named.startswith("/"):
            yield Path(named)


def _is_own(path: Path) -> bool:
    """Return whether a path is a queue directory of this user: a segment can name any path."""
    try:
        facts = path.lstat()
    except (OSError, ValueError):
        return False
    return facts.st_uid == os.getuid() and path.is_dir() and _native.configuration_of(path) is not None


class Lanes:
    """The lanes that have been looked at: a look at one needs what the look before it saw."""

    def __init__(self) -> None:
        self._watches: dict[Path, _native.DirectoryWatch] = {}
        self._lock = threading.Lock()

    def states(self, queue_directories: Iterable[Path]) -> list[dict[str, Any]]:
        """Return the state of each queue directory as its processes publish it; one that can't be read has an error."""
        with self._lock:
            return [self._state(path) for path in queue_directories]

    def _state(self, path: Path) -> dict[str, Any]:
        try:
            if path not in self._watches:
                self._watches[path] = _native.DirectoryWatch(path, **_limits())
            watch = self._watches[path]
            health, queues = watch.look(), watch.queues()
            if not queues and any(one.kind == "no_listener" for one in health.reasons):
                return {"queue_directory": str(path), **_UNKNOWN, "state": "ended"}
            found: dict[str, Any] = {
                "state": health.state,
                "reasons": [{"state": one.state, "kind": one.kind, "text": _seen(one.text)} for one in health.reasons],
                "listener": watch.listener_stats(),
                "sinks": watch.sinks(),
                "queues": queues,
                "totals": watch.totals(),
                "requests": sum(watch.requests()["outcomes"].values()),
            }
        except OSError as error:
            found = {**_UNKNOWN, "error": str(error)}
        return {"queue_directory": str(path), **found}


def _seen(reason: str) -> str:
    """Return a reason of a server's health as it is seen from outside, where the parameter `listener` is not known."""
    return reason.removeprefix("listener is external and ")


@cache
def _limits() -> dict[str, float]:
    """Return the thresholds of health, as they are where a service configures no others."""
    defaults = {name: field.default for name, field in Config.model_fields.items()}
    return {
        "backlog_records": defaults["health_backlog_records"],
        "backlog_ratio": defaults["health_backlog_ratio"],
        "pressured_ratio": defaults["health_pressured_ratio"],
        "clear_ratio": defaults["health_clear_ratio"],
        "oldest_age_s": defaults["flush_interval_s"] + defaults["health_oldest_age_s"],
        "stuck_after_s": defaults["stuck_after_s"],
    }


_LEAST_AGE_S: Final = 10.0
_SHARE: Final = 10
"""`verify` reads everything: it rests this many times as long as it took."""
_LONGEST_S: Final = 300.0
_MOST: Final = 500
"""Processes, problems, and gaps of a process, that are shown."""


class Verified:
    """The last answer of `verify`, which is made anew where somebody asks and it is old."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """Prepare; ``arguments`` are those of `verify`."""
        self._arguments = arguments
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._process: subprocess.Popen[str] | None = None
        self._closed = False
        self._found: dict[str, Any] | None = None
        self._error = ""
        self._ended_s = -float("inf")
        self._took_s = 0.0

    def look(self, wait_s: float) -> dict[str, Any]:
        """Return the account, its age, and whether a newer one is under way; wait so long for the first one."""
        with self._lock:
            if self._process is None and not self._closed and self._is_old():
                self._start()
            if self._found is None and not self._error:
                self._ready.wait_for(lambda: self._process is None, wait_s)
            is_known = self._found is not None or bool(self._error)
            return {
                "books": self._found,
                "books_error": self._error or None,
                "books_age_s": round(time.monotonic() - self._ended_s, 3) if is_known else None,
                "books_took_s": round(self._took_s, 3) if is_known else None,
                "books_running": self._process is not None,
            }

    def close(self) -> None:
        """End what is under way."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()

    def _is_old(self) -> bool:
        return time.monotonic() - self._ended_s > max(_LEAST_AGE_S, _SHARE * self._took_s)

    def _start(self) -> None:
        self._process = verify.start(self._arguments)
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        begun_s = time.monotonic()
        found, error = verify.answer(process, _LONGEST_S)
        with self._ready:
            self._found, self._error, self._process = None if error else _bounded(found), error, None
            self._ended_s = time.monotonic()
            self._took_s = self._ended_s - begun_s
            self._ready.notify_all()


def _bounded(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the account with lists of a bounded length; ``left_out`` counts what they had more."""
    processes = [{**one, "gaps": one.get("gaps", [])[:_MOST]} for one in found.get("processes", ())]
    problems = found.get("problems", [])
    gaps = sum(max(0, len(one.get("gaps", ())) - _MOST) for one in found.get("processes", ()))
    left_out = {"processes": max(0, len(processes) - _MOST), "problems": max(0, len(problems) - _MOST), "gaps": gaps}
    return {**found, "processes": processes[:_MOST], "problems": problems[:_MOST], "left_out": left_out}
