"""Another project's distribution that installs into the same import package, and may replace files of this one.

`inferlog` is this project's distribution. Another project's, `inference-logging`, has the same import name: whichever
is installed last wins, file by file.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

OWN: Final = "inferlog"
FOREIGN: Final = "inference-logging"

_METADATA: Final = re.compile(r"inference[-_.]+logging-(?P<version>[^-]+?)(?:-.*)?\.(?:dist|egg)-info", re.IGNORECASE)
_OWN_COMMAND: Final = "inference_logging.cli.main:main"
"""In the entry points of this project's builds of before it was called inferlog."""


@functools.cache
def report_foreign() -> None:
    """Name the other distribution on stderr, once per process."""
    found = foreign()
    if found is not None and sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"inference-logging: {found}\n")


def foreign(path: Iterable[str] | None = None) -> str | None:
    """Return a sentence that names the other distribution and the way out; None where there is none on ``path``."""
    for place in _metadata(sys.path if path is None else path):
        match = _METADATA.fullmatch(place.name)
        if match is not None and not _is_own(place):
            return (
                f"{place}: another project's distribution, {FOREIGN} {match['version']}, installs the import package "
                f"inference_logging too and may have replaced files of {OWN}. Run: pip uninstall {FOREIGN}, "
                f"then: pip install --force-reinstall {OWN}"
            )
    return None


def _metadata(path: Iterable[str]) -> Iterator[Path]:
    # One listing for each directory: importlib.metadata would take longer than the command.
    for directory in path:
        try:
            names = os.listdir(directory or ".")  # noqa: PTH208 - names only, and empty means here
        except OSError:
            continue
        yield from (Path(directory, name) for name in sorted(names) if name[:9].lower() == "inference")


def _is_own(place: Path) -> bool:
    try:
        return _OWN_COMMAND in (place / "entry_points.txt").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
