"""The progress of a shipper, across its own death: a small file per shipper, and a mark per finished segment.

The file is replaced in one step, after the destination has acknowledged: every record that it lists as sent was sent. A
record that was sent and is not listed yet is sent again. It lies beside the segments, or, for the shipper of many
directories, in a directory of its own, with the marks in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from inference_logging.errors import OpenError
from inference_logging.ship.letters import DeadLetters

VERSION: Final = 1


def marker(directory: Path, segment: str, name: str) -> Path:
    """Return the path of the mark of shipper ``name`` on ``segment``; retention reads the same name."""
    return directory / f"{segment}.shipped-{name}"


class Progress(Protocol):
    """How far a shipper has come in a directory."""

    of: dict[str, int]
    """The offset in each segment that is not finished."""
    sending: dict[str, int]
    """Where the batch that is being sent ends in each segment; empty: none is, or nobody asks for it."""
    letters: DeadLetters
    """The records that were given up."""

    def save(self) -> None:
        """Put them on the device. Raises OSError."""

    def is_done(self, segment: str) -> bool:
        """Return whether a segment is finished."""

    def mark(self, segment: str) -> None:
        """Note that a segment is finished. Raises OSError."""

    def keep(self, segments: set[str]) -> None:
        """Forget what was noted of other segments: they are no longer there."""

    def close(self) -> None:
        """Let another shipper have them. Idempotent."""


class TakenError(OpenError):
    """Another shipper of the same name runs."""


class _File:
    """The file of the shipper ``name`` in ``directory``, used by one process at a time. Raises ``OpenError``."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self.path = directory / f".{name}.offsets"
        self.letters = DeadLetters(directory / f".{name}.dead-letters")
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(directory / f".{name}.shipping.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OpenError(f"directory={os.fspath(directory)!r}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise TakenError(f"ship_name={name!r}: another shipper of this name runs in {directory}") from None

    @contextlib.contextmanager
    def reading(self) -> Iterator[Mapping[str, Any]]:
        """Give its content, empty if there is none; ``OpenError`` for what cannot be read, or not be understood."""
        try:
            yield self._content()
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            self.close()
            raise OpenError(f"{self.path}: cannot be read: {error}; without it everything is sent again") from error

    def _content(self) -> Mapping[str, Any]:
        try:
            content: Mapping[str, Any] = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        if content["version"] != VERSION:
            raise ValueError(f"version={content['version']!r}: must be {VERSION}")
        return content

    def replace(self, content: Mapping[str, Any]) -> None:
        """Put ``content`` on the device. Raises OSError."""
        temporary = self.path.with_name(f"{self.path.name}.tmp")
        with temporary.open("w", encoding="ascii") as file:
            # `json.dump` would make each name in Python.
            file.write(json.dumps({"version": VERSION, **content}))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        self.sync()

    def sync(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


class Offsets:
    """The offsets of one shipper in ``directory``, used by one process at a time.

    Raises ``TakenError`` if another shipper of this name runs, ``OpenError`` if the saved offsets cannot be read.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name = directory, name
        self._file = _File(directory, name)
        self.letters = self._file.letters
        with self._file.reading() as content:
            self.of = _offsets(content["segments"]) if content else {}
            self.sending = _offsets(content.get("sending", {}))

    def save(self) -> None:
        """Put the offsets on the device. Raises OSError."""
        self._file.replace({"segments": self.of, **({"sending": self.sending} if self.sending else {})})

    def is_done(self, segment: str) -> bool:
        """Return whether the mark is there."""
        return marker(self._directory, segment, self._name).exists()

    def mark(self, segment: str) -> None:
        """Leave the mark. Raises OSError."""
        path = marker(self._directory, segment, self._name)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self._file.sync()

    def keep(self, segments: set[str]) -> None:
        """Leave marks to the listener, which removes them with their segments."""

    def close(self) -> None:
        """Let another shipper have them. Idempotent."""
        self._file.close()


class State:
    """The offsets and marks of one shipper in many directories, as one file in ``directory``.

    It is saved once for each batch, whatever the number of directories that its lines are from. Raises as ``Offsets``.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._file = _File(directory, name)
        self.letters = self._file.letters
        self._parts: dict[str, _Part] = {}
        self._batching = self._waits = False
        with self._file.reading() as content:
            for of, saved in content["directories"].items() if content else ():
                part = self._parts[of] = _Part(self)
                part.of, part.sending = _offsets(saved["segments"]), _offsets(saved.get("sending", {}))
                part.done = {str(segment) for segment in saved.get("done", ())}

    def part(self, directory: str) -> Progress:
        """Return what is known of a directory, which is nothing at first."""
        return self._parts.setdefault(directory, _Part(self))

    def keep(self, directories: set[str]) -> None:
        """Forget other directories, which are gone; they are off the device with the next save."""
        self._parts = {of: part for of, part in self._parts.items() if of in directories}

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Save at the end what the parts save within. Raises OSError."""
        self._batching = True
        try:
            yield
        finally:
            self._batching = False
        if self._waits:
            self.save()

    def save(self) -> None:
        """Put everything on the device. Raises OSError."""
        self._waits = self._batching
        if not self._batching:
            self._file.replace({"directories": {of: part.content() for of, part in self._parts.items()}})

    def close(self) -> None:
        """Let another shipper have it. Idempotent."""
        self._file.close()


class _Part:
    """What is known of one directory."""

    def __init__(self, state: State) -> None:
        self._state, self.letters = state, state.letters
        self.of: dict[str, int] = {}
        self.sending: dict[str, int] = {}
        self.done: set[str] = set()

    def save(self) -> None:
        self._state.save()

    def is_done(self, segment: str) -> bool:
        return segment in self.done

    def mark(self, segment: str) -> None:
        self.done.add(segment)
        self.save()

    def keep(self, segments: set[str]) -> None:
        self.done &= segments

    def content(self) -> Mapping[str, Any]:
        sending = {"sending": self.sending} if self.sending else {}
        return {"segments": self.of, **sending, "done": sorted(self.done)}

    def close(self) -> None:
        """Leave the lock to the state."""


def _offsets(content: Mapping[str, Any]) -> dict[str, int]:
    return {str(segment): int(offset) for segment, offset in content.items()}
