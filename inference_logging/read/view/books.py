"""The account of the logging: what `verify` proves of the directories, read in a process of its own, now and then."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from inference_logging.read import verify

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
