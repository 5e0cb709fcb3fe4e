"""Unused queue directories: no process has a queue there, and no queue waits for a listener.

Internal: users import nothing from here.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_OWN: Final = re.compile(
    r"control-\d+|runtime-\d+|metrics(-\d+)?|(leader|totals|runtime|configuration)\.lock|configuration\.yaml|dead-.+"
)
"""What stands in a queue directory beside the queues."""


def kept_for(directory: Path) -> str | None:
    """Return why a queue directory has to stay; None: it is unused.

    Every process that produces or listens has a queue file there as long as it lives.
    """
    names = sorted(path.name for path in directory.iterdir())
    queues = [name for name in names if name.endswith((".queue", ".new"))]
    if queues:
        what = "1 queue is in use or waits" if len(queues) == 1 else f"{len(queues)} queues are in use or wait"
        return f"{what} for a listener"
    return _foreign(names)


def _foreign(names: Sequence[str]) -> str | None:
    foreign = [name for name in names if not _OWN.fullmatch(name)]
    return f"{foreign[0]!r} is no file of a queue directory" if foreign else None


def remove(directory: Path) -> str | None:
    """Remove a queue directory, or return why it has to stay. Raises OSError.

    A process that begins at this moment is either seen, or creates the directory again.
    """
    if (why := kept_for(directory)) is not None:
        return why
    aside = directory.with_name(f".{directory.name}.removed")
    directory.rename(aside)
    if (why := kept_for(aside)) is not None:
        # Another process was quicker. If it has created the directory again, it does not need this one.
        with contextlib.suppress(OSError):
            aside.rename(directory)
        return why
    shutil.rmtree(aside)
    return None
