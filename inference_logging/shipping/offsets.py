"""The progress of a shipper, across its own death: a small file per shipper, and a mark per finished segment.

The file is replaced in one step, after the destination has acknowledged: every record that it lists as sent was sent. A
record that was sent and is not listed yet is sent again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from inference_logging.errors import OpenError

VERSION: Final = 1


def marker(directory: Path, segment: str, name: str) -> Path:
    """Return the path of the mark of shipper ``name`` on ``segment``; retention reads the same name."""
    return directory / f"{segment}.shipped-{name}"


class Offsets:
    """The offsets of one shipper in ``directory``, used by one process at a time.

    Raises ``OpenError`` if another shipper of this name runs, or the saved offsets cannot be read.
    """

    def __init__(self, directory: Path, name: str) -> None:
        """Take the lock and read what was saved."""
        self._directory, self._name = directory, name
        self._path = directory / f".{name}.offsets"
        self.of: dict[str, int] = {}
        self.sending: dict[str, int] = {}
        """Where the batch that is being sent ends in each segment; empty: none is, or nobody asks for it."""
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(directory / f".{name}.shipping.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OpenError(f"directory={os.fspath(directory)!r}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.of, self.sending = self._read()
        except BlockingIOError:
            os.close(self._lock)
            raise OpenError(f"ship_name={name!r}: another shipper of this name runs in {directory}") from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            os.close(self._lock)
            raise OpenError(f"{self._path}: cannot be read: {error}; without it everything is sent again") from error

    def _read(self) -> tuple[dict[str, int], dict[str, int]]:
        try:
            content = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}, {}
        if content["version"] != VERSION:
            raise ValueError(f"version={content['version']!r}: must be {VERSION}")
        return _offsets(content["segments"]), _offsets(content.get("sending", {}))

    def save(self) -> None:
        """Put the offsets on the device. Raises OSError."""
        temporary = self._path.with_name(f"{self._path.name}.tmp")
        with temporary.open("w", encoding="utf-8") as file:
            sending = {"sending": self.sending} if self.sending else {}
            json.dump({"version": VERSION, "segments": self.of, **sending}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        self._sync()

    def is_done(self, segment: str) -> bool:
        """Return whether the mark is there."""
        return marker(self._directory, segment, self._name).exists()

    def mark(self, segment: str) -> None:
        """Leave the mark. Raises OSError."""
        path = marker(self._directory, segment, self._name)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self._sync()

    def _sync(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Let another shipper have them. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


def _offsets(content: Mapping[str, Any]) -> dict[str, int]:
    return {str(segment): int(offset) for segment, offset in content.items()}
