"""Segments that grow while they are followed, and a `Stop` that does a step at each wait."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from inference_logging.segments import follow_records


class Steps:
    """A ``Stop`` that does one thing at each wait, and is set with the last."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = list(steps)

    def wait(self, timeout: float, /) -> bool:
        """Do the next step."""
        if self._steps:
            self._steps.pop(0)()
        return not self._steps


def until_set(directory: Path, *steps: Callable[[], object], **options: Any) -> Iterator[dict[str, Any]]:
    return follow_records(directory, stop=Steps(*steps), **options)


class Writer:
    """A live segment, locked as the listener does it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path.open("ab", buffering=0)
        fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def append(self, content: bytes) -> Callable[[], object]:
        return lambda: self.file.write(content)

    def die(self) -> None:
        self.file.close()
