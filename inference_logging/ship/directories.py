"""The directories of many servers: those of a pattern, such as ``/logs/{k8s.namespace.name}/{k8s.pod.name}``.

`inference-logging listen --each` has the same patterns (``native/listener/src/each/pattern.rs``) and writes the
segments of each queue directory into a directory of its own; these are found here, as they come and go.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from inference_logging.record.config.parameters.audit import AUDIT_SUFFIX
from inference_logging.ship.offsets import State

AUDIT_DIRECTORY: Final = "audit"
"""Where the audit lane of a directory has its segments, unless ``audit_directory`` says otherwise."""

_NAME: Final = re.compile(r"\{[A-Za-z0-9._-]+\}")


@dataclass(frozen=True)
class Pattern:
    """The form of directories: an absolute path in which ``{name}`` stands for any one part."""

    root: Path
    """What stands before the first name."""
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Read a pattern. Raises ValueError, with a sentence, if it is none."""
        if not text.startswith("/"):
            raise ValueError("must be an absolute path")
        parts = [part for part in text.split("/") if part]
        for part in parts:
            if part in (".", ".."):
                raise ValueError("must not have . or .. as a part")
            if ("{" in part or "}" in part) and not _NAME.fullmatch(part):
                raise ValueError(f"{part!r} must be {{name}}, of letters, digits, '.', '_' and '-'")
        names = [part for part in parts if part.startswith("{")]
        if not names:
            raise ValueError("must have a {name}")
        if len(set(names)) < len(names):
            raise ValueError("must have each name once")
        first = parts.index(names[0])
        return cls(Path("/", *parts[:first]), tuple(parts[first:]))

    def find(self) -> list[Path]:
        """Return the directories that there are, in the order of their names; no link is followed below ``root``."""
        found = [self.root]
        for part in self.parts:
            found = [below for directory in found for below in _below(directory, part)]
        return found


def _below(directory: Path, part: str) -> list[Path]:
    """Return the directories in ``directory`` that ``part`` names: all, or one. Gone, or not for us: none."""
    try:
        if not part.startswith("{"):
            return [directory / part] if stat.S_ISDIR(os.lstat(f"{directory}/{part}").st_mode) else []
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
    return [directory / name for name in names]


class Member(Protocol):
    """What is opened for a directory."""

    def is_over(self) -> bool:
        """Return whether the directory is gone, and nothing of it is left to do."""

    def close(self) -> None:
        """Let go of it."""


T = TypeVar("T", bound=Member)


class Fixed(Generic[T]):
    """Those that are there from the start."""

    def __init__(self, members: Sequence[T]) -> None:
        """Take them; closing is theirs from here on."""
        self._members = members

    def look(self) -> Sequence[T]:
        """Return them."""
        return self._members

    def close(self) -> None:
        """Let another shipper go on. Idempotent."""
        for member in self._members:
            member.close()


class Directories(Generic[T]):
    """What ``open_one`` returns for each directory of ``pattern`` and its suffix: that of the audit lane, or none."""

    def __init__(self, pattern: Pattern, state: State, open_one: Callable[[Path, str], T]) -> None:
        self._pattern, self._state, self._open_one = pattern, state, open_one
        self._members: dict[Path, T] = {}

    def look(self) -> list[T]:
        """Open what has come, close what is over, and return what is open."""
        found = dict(self._lanes())
        for directory in [one for one, member in self._members.items() if one not in found and member.is_over()]:
            self._members.pop(directory).close()
        self._state.keep({str(directory) for directory in (*found, *self._members)})
        for directory, suffix in found.items():
            if directory not in self._members:
                self._members[directory] = self._open_one(directory, suffix)
        return list(self._members.values())

    def close(self) -> None:
        """Let another shipper go on. Idempotent."""
        for member in self._members.values():
            member.close()
        self._state.close()

    def _lanes(self) -> Iterator[tuple[Path, str]]:
        for directory in self._pattern.find():
            yield directory, ""
            for audit in _below(directory, AUDIT_DIRECTORY):
                yield audit, AUDIT_SUFFIX
