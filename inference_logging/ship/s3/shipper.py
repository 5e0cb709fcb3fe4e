"""The rounds of a shipper to object storage: find what is sealed, deliver it, mark it.

A segment is an object once nobody writes to it any more: rotation (``rotate_bytes``, ``rotate_interval_s``) bounds how
long its records wait. A bucket that fails is tried again for as long as it takes. A segment that can never be delivered
stays where it is, unmarked, so that retention does not take it: another content lies under its key, or it is damaged.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from inference_logging.errors import CorruptLineError
from inference_logging.read.segments import Segment, segments
from inference_logging.read.segments.following import is_locked
from inference_logging.read.table.engine import TableError
from inference_logging.ship.directories import Directories, Fixed
from inference_logging.ship.offsets import Offsets, Progress
from inference_logging.ship.pauses import FIRST_PAUSE_S, Limits, Rounds, Waiting
from inference_logging.ship.s3.delivery import ConflictError, Delivery
from inference_logging.ship.s3.staging import Staged, Staging
from inference_logging.ship.s3.store import EndedError, StoreError

_KINDS: Final[dict[type[Exception], str]] = {
    ConflictError: "conflict", CorruptLineError: "corrupt", TableError: "parquet",
}  # fmt: skip
"""Why a segment can never be delivered."""


class Look(NamedTuple):
    """The segments of a directory that wait, in the order of their beginning, and how many are live."""

    sealed: list[Segment]
    live: int


class Folder:
    """The segments of ``directory``, of which those are done that ``offsets`` has marked, and a place for uploads.

    ``suffix`` follows the name of the service in their prefixes.
    """

    def __init__(self, directory: Path, offsets: Progress, staging: Staging, *, suffix: str = "") -> None:
        self._directory, self._offsets, self.staging, self._suffix = directory, offsets, staging, suffix
        self._done: set[str] = set()
        self.held: set[str] = set()
        """Segments that can never be delivered."""

    @classmethod
    def of(cls, directory: Path, name: str, *, suffix: str = "") -> Folder:
        """Return the folder of the shipper ``name``. Raises ``OpenError`` as ``Offsets``."""
        return cls(directory, Offsets(directory, name), Staging(directory / f".{name}.staging"), suffix=suffix)

    def look(self) -> Look:
        """Return what waits. Raises OSError."""
        waiting = self._unmarked(forgets=True)
        live = [segment for segment in waiting if _has_writer(segment)]
        return Look([one for one in waiting if one not in live and one.name not in self.held], len(live))

    def _unmarked(self, *, forgets: bool = False) -> list[Segment]:
        try:
            listed = segments(self._directory)
        except FileNotFoundError:
            return []
        names = {segment.name for segment in listed}
        if forgets:  # the list of another thread may be older than a mark
            self._offsets.keep(names)
        self._done &= names
        self.held &= names
        self._done |= {name for name in names - self._done if self._offsets.is_done(name)}
        return [segment for segment in listed if segment.name not in self._done]

    def service(self, segment: Segment) -> str:
        """Return the name of a segment's service."""
        return segment.prefix.removesuffix(self._suffix)

    def mark(self, segment: Segment) -> None:
        """Note that a segment has arrived. Raises OSError."""
        if segment.path.exists() or segment.path.with_name(f"{segment.name}.zst").exists():
            self._offsets.mark(segment.name)
        self._done.add(segment.name)

    def lag_bytes(self) -> int:
        """Return the bytes of segments on disk that have not arrived, live ones included."""
        return sum(segment.size_bytes() for segment in self._unmarked())

    def is_over(self) -> bool:
        """Return whether the directory is gone."""
        return not self._directory.is_dir()

    def close(self) -> None:
        """Let another shipper go on. Idempotent."""
        self.staging.close()
        self._offsets.close()


def _has_writer(segment: Segment) -> bool:
    """Return whether a listener holds the lock of a segment, or has only begun it."""
    if segment.compressed:
        return False
    try:
        descriptor = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True  # it is being compressed, or removed: the next look shows which
    try:
        return os.fstat(descriptor).st_size == 0 or is_locked(descriptor)
    finally:
        os.close(descriptor)


class SegmentShipper(Rounds):
    """Delivers the segments of ``folders``."""

    def __init__(self, folders: Fixed[Folder] | Directories[Folder], delivery: Delivery, limits: Limits) -> None:
        # Those segments stay where they are.
        super().__init__(limits, ("held",))
        self._places, self._delivery = folders, delivery
        self._folders: Sequence[Folder] = folders.look()

    def run(self, stop: Waiting, *, once: bool = False, drain_s: float = 0.0) -> bool:
        """Ship until ``stop`` is set, and then what listeners seal within ``drain_s``; ``once``: what is sealed.

        Returns whether each sealed segment has arrived.
        """
        pauses = self._pauses
        while True:
            # Before the look: what is sealed after it is found by the next one.
            ends = pauses.ends(stop, drain_s)
            try:
                is_whole = self._round(stop, drain_s)
            except EndedError:
                return False
            if (once and is_whole is not None) or (ends and (not self.live or pauses.is_over())):
                return is_whole is True
            pauses.pause(stop, FIRST_PAUSE_S if ends or is_whole is None else self._limits.ship_interval_s)

    def _round(self, stop: Waiting, drain_s: float) -> bool | None:
        """Deliver what is sealed; return whether all of it has arrived, None if a segment vanished meanwhile."""
        self._folders = self._places.look()
        looks = [(folder, look) for folder in self._folders if (look := self._look(folder)) is not None]
        self.live = sum(look.live for _, look in looks)
        is_there = [self._ship(folder, one, stop, drain_s) for folder, look in looks for one in look.sealed]
        is_whole = len(looks) == len(self._folders) and not any(folder.held for folder in self._folders)
        return is_whole if all(is_there) else None

    def _look(self, folder: Folder) -> Look | None:
        try:
            return folder.look()
        except OSError as error:
            self._failed("read", f"segments cannot be read: {error}")
            return None

    def _ship(self, folder: Folder, segment: Segment, stop: Waiting, drain_s: float) -> bool:
        """Deliver a segment and mark it; return whether it was found. Raises ``EndedError`` if the end comes first."""
        self.sending_since_s = segment.begun.timestamp()
        try:
            staged = folder.staging.stage(segment, self._delivery.form)
            self._deliver(folder, staged, stop, drain_s)
            folder.mark(segment)
        except FileNotFoundError:
            return False  # compressed or removed meanwhile: the next look shows which
        except tuple(_KINDS) as error:
            folder.held.add(segment.name)
            kind = _KINDS[type(error)]
            self.refused[kind] += 1
            self.letters["held"] += 1
            self._pauses.report(f"{kind} {segment.name}", f"{segment.name} cannot be delivered: {error}")
        except OSError as error:
            self._failed("disk", f"{segment.name}: {error}")
            self._pauses.pause(stop, self._limits.ship_interval_s)
            return False
        else:
            self.records += staged.account.records
            self.bytes += staged.plain.bytes
        finally:
            self.sending_since_s = 0.0
        return True

    def _deliver(self, folder: Folder, staged: Staged, stop: Waiting, drain_s: float) -> None:
        def go_on() -> None:
            if self._pauses.ends(stop, drain_s) and self._pauses.is_over():
                raise EndedError

        pause_s = FIRST_PAUSE_S
        while True:
            go_on()
            try:
                self._delivery.deliver(staged, folder.service(staged.segment), go_on)
                return
            except StoreError as error:
                self._failed(error.kind, f"{staged.segment.name} waits: {error}")
                go_on()
                self._wait_after_failure(stop, pause_s, error.retry_after_s)
                pause_s *= 2

    def _waiting_bytes(self) -> int:
        return sum(folder.lag_bytes() for folder in self._folders)

    def close(self) -> None:
        """Let go of everything; idempotent."""
        self._places.close()
