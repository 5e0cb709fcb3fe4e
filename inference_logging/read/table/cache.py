"""The cache directory: a Parquet file for each sealed segment, only for this user, written whole or not at all.

Beside each lie its facts, as JSON: of which file it was made, and which file was written. What does not fit to them is
made anew: another segment of the same name, a changed, cut or foreign file, one of another version.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import stat
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from inference_logging.read.segments import Segment
from inference_logging.read.table.columns import FINGERPRINT
from inference_logging.read.table.lines import Identity

VERSION: Final = 2
"""The version of the files; their columns have a fingerprint."""
_FOLDER: Final = "inference-logging"
TABLE: Final = ".parquet"
_FACTS: Final = ".json"
_TEMPORARY: Final = ".tmp"
_OLD_INDEX: Final = ".index"
"""Files of earlier versions, which nobody reads any more."""
_LEFT_OVER_S: Final = 3600
"""A file that is still unfinished then was left by a process that died."""
_LONGEST_FACTS: Final = 16 << 20
_NUMBERS = itertools.count()


class Facts(NamedTuple):
    """What was read from a segment."""

    segment: str
    identity: Identity
    content_bytes: int
    """Where its last whole line ends."""
    rows: int
    odd: int
    unreadable: int
    """Lines that are no records."""
    resource: dict[str, str]
    first_ns: int
    last_ns: int
    dropped: list[tuple[str, str, str, str, int]]
    """By a footer: its time, a process, and how many records that has dropped, for which reason and of which level."""


def default_root() -> Path | None:
    """Return ``$XDG_CACHE_HOME/inference-logging``, or ``~/.cache/inference-logging``; None if neither is absolute."""
    for name, *rest in (("XDG_CACHE_HOME",), ("HOME", ".cache")):
        if (given := os.environ.get(name)) and Path(given).is_absolute():
            return Path(given, *rest, _FOLDER)
    return None


def real(directory: Path) -> Path:
    """Return the real path of a directory that can be read, or is not there yet. Raises OSError."""
    try:
        with os.scandir(directory):
            return directory.resolve()
    except FileNotFoundError:
        return directory.absolute()


class Cache:
    """The files of one directory of segments."""

    def __init__(self, root: Path, segments: Path) -> None:
        """Open its place below ``root``, and create it. Raises OSError if it is a link or another user's."""
        digest = hashlib.blake2b(os.fsencode(real(segments)), digest_size=16).hexdigest()
        self.directory = root / digest
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.mkdir(mode=0o700, exist_ok=True)
        facts = self.directory.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
            raise PermissionError(f"{self.directory}: must be a directory of this user, and no link")
        if facts.st_mode & 0o077:
            self.directory.chmod(0o700)

    def path(self, segment: str) -> Path:
        """Return where the table of a segment is."""
        return self.directory / f"{segment}{TABLE}"

    def load(self, segment: str) -> Facts | None:
        """Return the facts of a segment's table; None if there is none that can be used."""
        try:
            found: dict[str, Any] = orjson.loads(self._read(self.directory / f"{segment}{_FACTS}"))
            if found["version"] != [VERSION, FINGERPRINT] or found["table"] != _stamp(self.path(segment)):
                return None
            facts = Facts(**{**found["facts"], "identity": Identity(*found["facts"]["identity"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return facts if facts.segment == segment else None

    def store(self, facts: Facts, write: Callable[[Path], None]) -> None:
        """Have the table written, and keep it with its facts. Raises what ``write`` does, OSError."""
        table = self._temporary(facts.segment)
        try:
            write(table)
            table.chmod(0o600)
            content = {
                "version": [VERSION, FINGERPRINT],
                "facts": {**facts._asdict(), "identity": [*facts.identity]},
                "table": _stamp(table),
            }
            table.rename(self.path(facts.segment))
        except BaseException:
            table.unlink(missing_ok=True)
            raise
        self._write(self.directory / f"{facts.segment}{_FACTS}", orjson.dumps(content))

    def remove(self, segment: str) -> None:
        """Remove the table of a segment."""
        for suffix in (_FACTS, TABLE):
            with contextlib.suppress(OSError):
                (self.directory / f"{segment}{suffix}").unlink()

    def clean(self, present: Collection[str]) -> None:
        """Remove the files of segments that are gone, and those that a dead process left unfinished."""
        with contextlib.suppress(OSError):
            for path in list(self.directory.iterdir()):
                segment = path.name.removesuffix(path.suffix)
                is_gone = path.suffix in (TABLE, _FACTS) and segment not in present and Segment.parse(segment)
                is_left = path.name.startswith(".") and path.suffix == _TEMPORARY and _is_old(path)
                if is_gone or is_left or path.suffix == _OLD_INDEX:
                    path.unlink()

    def _temporary(self, segment: str) -> Path:
        return self.directory / f".{segment}.{os.getpid()}.{next(_NUMBERS)}{_TEMPORARY}"

    def _write(self, path: Path, content: bytes) -> None:
        temporary = self._temporary(path.name)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        temporary.rename(path)

    @staticmethod
    def _read(path: Path) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            _own(os.fstat(descriptor))
            return file.read(_LONGEST_FACTS)


def _own(facts: os.stat_result) -> os.stat_result:
    if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
        raise PermissionError("must be a file of this user, and no link")
    return facts


def _stamp(path: Path) -> list[int]:
    """Return what a file is known by: a change of any byte changes its time."""
    facts = _own(path.lstat())
    return [facts.st_ino, facts.st_size, facts.st_mtime_ns]


def _is_old(path: Path) -> bool:
    return time.time() - path.lstat().st_mtime > _LEFT_OVER_S
