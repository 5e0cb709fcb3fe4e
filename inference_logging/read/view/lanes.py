"""The queue directories behind the segments, where they still exist: who listens, how the sinks are, what is lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from inference_logging import _native
from inference_logging.read.segments import segments
from inference_logging.read.segments.reading import header_of
from inference_logging.record.config import Config

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
        """Begin without any."""
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
