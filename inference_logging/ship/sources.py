"""Several sources as one: the lanes of a directory, or the directories of a pattern, found as they come."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from inference_logging.ship.directories import Directories, Pattern
from inference_logging.ship.letters import Letter
from inference_logging.ship.offsets import State
from inference_logging.ship.source import Batch, Source

LOOK_S: Final = 1.0
"""How long a directory that is new may wait where others always have something."""


class Sources:
    """Several sources as one, of which none waits for another to have nothing new.

    A batch takes what the next ones have until it is full, and begins one further each time.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        """Take ``sources``; closing is theirs from here on."""
        self._sources = list(sources)
        self._next = 0
        self._parts: list[tuple[Source, Batch]] = []

    def read(self, most_records: int, most_bytes: int) -> Batch:
        """Return what comes next, as ``Source.read``. Raises OSError if nothing can be read."""
        whole = Batch()
        self._parts = []
        for source in [source for source in self._sources if source.has_plan()]:
            self._take(source, whole, most_records, most_bytes)
        for source in () if self._parts else self._in_turn():
            self._take(source, whole, most_records - len(whole.lines), most_bytes - whole.bytes)
            if len(whole.lines) >= most_records or whole.bytes >= most_bytes:
                break
        if whole.unread and not self._parts:
            raise whole.unread[0]
        # Always in the same order: what is planned is sent as the same block by the next shipper, too.
        self._parts.sort(key=lambda part: part[0].directory)
        whole.lines = [line for _, part in self._parts for line in part.lines]
        return whole

    def _take(self, source: Source, whole: Batch, most_records: int, most_bytes: int) -> None:
        try:
            part = source.read(most_records, most_bytes)
        except OSError as error:
            whole.unread.append(error)
            return
        if part.stands:
            self._parts.append((source, part))
            whole.lines += part.lines
            whole.bytes += part.bytes
            whole.stands |= part.stands
            whole.corrupt += part.corrupt

    def _in_turn(self) -> Iterator[Source]:
        for _ in range(len(self._sources)):
            self._next = (self._next + 1) % len(self._sources)
            yield self._sources[self._next]

    def plan(self, batch: Batch) -> None:  # noqa: ARG002  (it is the one that was read last)
        """Save that the batch that was read last is going to be sent, as ``Source.plan``."""
        with self._saving():
            for source, part in self._parts:
                source.plan(part)

    def acknowledge(self, batch: Batch) -> None:  # noqa: ARG002
        """Save that the batch that was read last has arrived, as ``Source.acknowledge``, in each of its directories."""
        with self._saving():
            errors = [_error_of(source, part) for source, part in self._parts]
        for error in filter(None, errors):
            raise error

    def give_up(self, letters: Sequence[Letter]) -> int:
        """Put records of the batch that was read last into files of dead letters, as ``Source.give_up``."""
        taken = 0
        for source, part in self._parts:
            if own := [letter for letter in letters if letter.segment in part.stands]:
                taken += source.give_up(own)
        return taken

    def _saving(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def lag_bytes(self) -> int:
        """Return how many bytes of all segments are not acknowledged."""
        return sum(source.lag_bytes() for source in self._sources)

    def has_writers(self) -> bool:
        """Return whether one of the segments that were read still has a writer."""
        return any(source.has_writers() for source in self._sources)

    def close(self) -> None:
        """Let another shipper go on."""
        for source in self._sources:
            source.close()


class EachSource(Sources):
    """The directories of ``pattern`` as one source, with their progress in ``state``, which is its own from here on.

    A directory is looked for where nothing new comes, and every second. One that is gone is forgotten once it is read.
    ``once`` and ``repeats`` as for ``Source``.
    """

    def __init__(
        self,
        pattern: Pattern,
        state: State,
        *,
        once: bool = False,
        repeats: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(())
        _raise_file_limit()
        self._state, self._clock, self._looks_s = state, clock, 0.0

        def opened(directory: Path, suffix: str) -> Source:
            return Source(directory, state.part(str(directory)), suffix=suffix, once=once, repeats=repeats)

        self._directories = Directories(pattern, state, opened)
        self._look()

    def _look(self) -> None:
        self._sources = self._directories.look()
        self._looks_s = self._clock() + LOOK_S

    def read(self, most_records: int, most_bytes: int) -> Batch:
        """Return what comes next, also of directories that are new. Raises as ``Sources.read``."""
        if self._clock() >= self._looks_s:
            self._look()
        batch = super().read(most_records, most_bytes)
        if not batch.stands:
            self._looks_s = 0.0
        return batch

    def _saving(self) -> contextlib.AbstractContextManager[None]:
        return self._state.at_once()

    def close(self) -> None:
        """Let another shipper go on."""
        self._directories.close()


def _error_of(source: Source, acknowledged: Batch) -> OSError | None:
    """Let a source acknowledge; return why that cannot be saved."""
    try:
        source.acknowledge(acknowledged)
    except OSError as error:
        return error
    return None


def _raise_file_limit() -> None:
    """Let this process have as many open files as it may: each directory has a segment that is being written."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
