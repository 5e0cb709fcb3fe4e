"""The segments of a directory that is looked at again and again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from inference_logging.read.segments.reading import Segment, segments

_SETTLED_NS: Final = 2_000_000_000
"""A change that is younger may bear the same time as the next one: file systems count in steps, up to two seconds."""


class Listing:
    """The segments of ``directory``, listed again once it has changed: it was created anew, or something in it was."""

    def __init__(self, directory: Path) -> None:
        """Keep it; it need not be there yet."""
        self._directory = directory
        self._listed: tuple[tuple[int, int, int] | None, list[Segment]] = (None, [])

    def segments(self) -> list[Segment]:
        """Return them as ``segments``; the list is not the caller's. Raises as ``segments``. For several threads."""
        facts = self._directory.stat()
        version = (facts.st_dev, facts.st_ino, facts.st_ctime_ns)
        known, listed = self._listed
        if version != known:
            is_settled = time.time_ns() - facts.st_ctime_ns > _SETTLED_NS
            listed = segments(self._directory)
            self._listed = (version if is_settled else None, listed)
        return listed
