"""The segments of directories with their tables: found in the cache, or made, live ones first, then the newest."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from inference_logging.errors import InferenceLoggingError, MissingExtraError
from inference_logging.read.segments import Segment, segments
from inference_logging.read.table.cache import Cache, Facts, default_root, real
from inference_logging.read.table.lines import Source
from inference_logging.read.table.part import Build

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MOST_IN_MEMORY: Final = 256 << 20
"""Bytes of segments whose rows are in memory, live ones among them: where no cache can be written."""
_FIRST_END_BYTES: Final = 2 << 20
_MOST_END_BYTES: Final = 16 << 20
_ENOUGH_ROWS: Final = 1000
"""A page of rows: so many are shown from the ends of the newest segments, before these are read whole."""
_MOST_ENDS: Final = 8
LEAST_KEPT_BYTES: Final = 64 << 20
"""For a command, the rows of fewer bytes of segments are in memory only: it makes them within a second."""
_ROUND_S: Final = 10.0
_MOST_THREADS: Final = 8
"""A command uses as many. Each needs 60 MB more, and the interpreter's lock a seventh of its time."""


class IncompleteError(InferenceLoggingError):
    """Segments without all of their rows; the message says which and why."""


class Entry(NamedTuple):
    """A segment at one moment, with its rows where it has some."""

    name: str
    directory: Path
    disk_bytes: int
    facts: Facts | None = None
    """What its rows are of; ``content_bytes`` says up to where."""
    file: Path | None = None
    """The table, if it is a file."""
    tables: tuple[str, ...] = ()
    """Its parts, if they are in memory."""
    is_live: bool = False
    unread_bytes: int = 0
    """Bytes before those that the rows are of: more than 0 for the end of a segment that is not read yet."""

    @property
    def is_whole(self) -> bool:
        """Whether all of the segment has rows."""
        return self.facts is not None and self.unread_bytes == 0

    def is_current(self) -> bool:
        """Return whether the segment is still what the rows are of."""
        if self.facts is None or not self.is_whole:
            return False
        with contextlib.suppress(OSError), Source(self.directory, self.name) as source:
            if source.identity == self.facts.identity:
                return not (self.is_live and source.is_sealed())
            return not self.is_live and source.is_compressed_form_of(self.facts.identity, self.facts.content_bytes)
        return False

    def open(self) -> Source | None:
        """Open the segment for reading lines; None if it is gone, or not the one that the rows are of."""
        try:
            source = Source(self.directory, self.name)
        except FileNotFoundError:
            return None
        if self.facts is not None and self._is_same(source, self.facts):
            return source
        source.__exit__()
        return None

    @staticmethod
    def _is_same(source: Source, facts: Facts) -> bool:
        now, then = source.identity, facts.identity
        if now.compressed != then.compressed:
            return source.is_compressed_form_of(then, facts.content_bytes)
        # A file that has grown has a writer, also one without the lock: a copy that goes on, for example.
        return now == then or (
            not now.compressed and now.inode == then.inode and now.bytes >= max(then.bytes, facts.content_bytes)
        )


class Catalog:
    """The segments of directories, as the last refresh found them."""

    def __init__(
        self,
        connection: DuckDBPyConnection,
        directories: Sequence[Path],
        wants: Callable[[Segment], bool],
        cache_directory: Path | None,
        *,
        keeps: bool = True,
    ) -> None:
        """Begin, without rows; ``keeps``: in files. Raises OSError naming a directory that cannot be read."""
        self._connection, self._wants = connection, wants
        self._no_cache: list[str] = []
        self._places: dict[Path, Cache | None] = {}
        root, seen = cache_directory or default_root(), set()
        for directory in map(Path, directories):
            if (path := real(directory)) not in seen:
                seen.add(path)
                self._places[directory] = self._open_cache(root, directory) if keeps else None
        self.snapshot: tuple[Entry, ...] = ()
        self._builds: dict[str, Build] = {}
        self._problems: dict[str, str] = {}
        self._lock = threading.Lock()
        self._found: dict[str, Entry] = {}
        self._known: dict[str, Entry] = {}
        self._shown: dict[str, Entry] = {}

    @classmethod
    def of(
        cls, connection: DuckDBPyConnection, chosen: Sequence[Segment], advance: Callable[[int], object] | None = None
    ) -> Catalog:
        """Return one of these segments with all of their rows, but for segments that are gone.

        ``advance`` is called with the bytes of each that has been read. Without a cache directory that can be written,
        files are temporary. Raises ``IncompleteError``, OSError.
        """
        names = {segment.name for segment in chosen}
        directories = sorted({segment.path.parent for segment in chosen})
        keeps = sum(segment.size_bytes() for segment in chosen) >= LEAST_KEPT_BYTES
        catalog = cls(connection, directories, lambda one: one.name in names, None, keeps=keeps)
        if catalog._no_cache:
            root = Path(tempfile.mkdtemp(prefix="inference-logging-"))
            weakref.finalize(catalog, shutil.rmtree, root, ignore_errors=True)
            catalog._places = {directory: Cache(root, directory) for directory in catalog._places}
        progress = catalog.complete(advance)
        if not progress["done"]:
            raise IncompleteError("; ".join(progress["problems"]) or "segments change faster than they are read")
        return catalog

    def complete(self, advance: Callable[[int], object] | None = None) -> dict[str, Any]:
        """Refresh until all is read, or no more can be, on all processors; return the progress."""
        # Rows in memory have one limit for all.
        threads = min(_MOST_THREADS, len(os.sched_getaffinity(0))) if all(self._places.values()) else 1
        read = -1
        while True:
            progress = self.refresh(_ROUND_S, advance, threads)
            if progress["done"] or progress["indexed_bytes"] == read:
                return progress
            read = progress["indexed_bytes"]

    def refresh(
        self, budget_s: float, advance: Callable[[int], object] | None = None, threads: int = 1
    ) -> dict[str, Any]:
        """Look for segments, and read what is new for about ``budget_s`` seconds; return the progress.

        ``threads`` segments are read at once.
        """
        with self._lock:
            deadline_s = time.monotonic() + budget_s
            self._problems = {}
            known = self._known = {entry.name: entry for entry in self.snapshot}
            listed = self._list()
            self._forget(listed)
            self._found = {name: known[name] for name in listed if name in known and known[name].is_current()} | {
                name: known[name] for name in listed if name in known and known[name].unread_bytes
            }
            todo = [entry for name, entry in listed.items() if not (name in self._found and self._found[name].is_whole)]
            todo.sort(key=lambda entry: (entry.name in self._builds, Segment.parse(entry.name)), reverse=True)
            # What is known of a segment is shown until more is.
            self._shown = {name: known[name] for name in listed if name in known and known[name].facts is not None}
            if not self._shown:
                self._show_ends(todo)
            for entry, found in self._each(todo, deadline_s, threads):
                self._add(found)
                if advance is not None and entry.name in self._found and self._found[entry.name].is_whole:
                    advance(entry.disk_bytes)
            self._shown = {}
            self._publish()
            self._drop_unused()
            return self._progress()

    def _each(self, todo: Sequence[Entry], deadline_s: float, threads: int) -> Iterator[tuple[Entry, Entry | None]]:
        """Yield each entry with what is read of it, in their order."""

        def read(entry: Entry) -> Entry | None:
            return self._read(self._connection.cursor(), entry, deadline_s)

        if threads == 1:
            yield from ((entry, read(entry)) for entry in todo)
            return
        with ThreadPoolExecutor(threads) as pool:
            yield from zip(todo, pool.map(read, todo), strict=True)

    def inspect(self) -> None:
        """Let go of tables that the engine cannot read: the next refresh makes them anew."""
        with self._lock:
            kept = []
            for entry in self.snapshot:
                if entry.file is None or self._is_readable(entry.file):
                    kept.append(entry)
                    continue
                cache = self._places.get(entry.directory)
                if cache is not None:
                    cache.remove(entry.name)
                kept.append(Entry(entry.name, entry.directory, entry.disk_bytes))
            self._found = {entry.name: entry for entry in kept}
            self._publish()

    def cache_directories(self) -> list[Path]:
        """Return those in use."""
        return [cache.directory for cache in self._places.values() if cache is not None]

    def _open_cache(self, root: Path | None, directory: Path) -> Cache | None:
        if root is None:
            self._no_cache.append("neither XDG_CACHE_HOME nor HOME names a directory; rows are kept in memory")
            return None
        try:
            return Cache(root, directory)
        except OSError as error:
            self._no_cache.append(f"{root}: {error.strerror or error}; rows are kept in memory")
            return None

    def _list(self) -> dict[str, Entry]:
        """Return the segments of all directories, each once; removes the tables of those that are gone."""
        found: dict[str, Entry] = {}
        for directory, cache in self._places.items():
            try:
                listed = segments(directory)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._problems[str(directory)] = error.strerror or str(error)
                continue
            if cache is not None:
                cache.clean({segment.name for segment in listed})
            for segment in listed:
                if not self._wants(segment):
                    continue
                if segment.name in found:
                    other = found[segment.name].directory
                    self._problems[str(segment.path)] = f"is in {other} too; that one is read"
                else:
                    found[segment.name] = Entry(segment.name, directory, segment.size_bytes())
        return found

    def _forget(self, listed: Mapping[str, Entry]) -> None:
        cursor = self._connection.cursor()
        for name in self._builds.keys() - listed.keys():
            self._builds.pop(name).close(cursor)

    def _drop_unused(self) -> None:
        """Remove tables from memory that no segment has any more."""
        cursor = self._connection.cursor()
        used = {table for entry in self.snapshot for table in entry.tables}
        used |= {table for build in self._builds.values() for table in build.part.tables}
        for (table,) in cursor.execute("SELECT table_name FROM duckdb_tables() WHERE NOT temporary").fetchall():
            if table not in used:
                cursor.execute(f"DROP TABLE {table}")

    def _add(self, entry: Entry | None) -> None:
        if entry is None:
            return
        known = self._found.get(entry.name)
        if entry.facts is not None or known is None or not known.unread_bytes:
            self._found[entry.name] = entry
        self._publish()

    def _publish(self) -> None:
        entries = {**self._shown, **self._found}
        self.snapshot = tuple(sorted(entries.values(), key=lambda entry: entry.name))

    def _read(self, cursor: DuckDBPyConnection, entry: Entry, deadline_s: float) -> Entry | None:
        """Return the entry with its rows, as far as they were read in time; None if the segment is gone."""
        cache = self._places[entry.directory]
        try:
            with Source(entry.directory, entry.name) as source:
                facts = cache.load(entry.name) if cache is not None and entry.name not in self._builds else None
                if (
                    facts is not None
                    and cache is not None
                    and (
                        facts.identity == source.identity
                        or source.is_compressed_form_of(facts.identity, facts.content_bytes)
                    )
                ):
                    return entry._replace(facts=facts, file=cache.path(entry.name))
                build = self._builds.pop(entry.name, None)
                if build is not None and not build.continues(source):
                    build.close(cursor)
                    build = None
                if build is None:
                    if time.monotonic() >= deadline_s:
                        return entry
                    build = Build(source.segment, source.identity)
                return self._continue(cursor, entry, source, build, deadline_s)
        except FileNotFoundError:
            return None
        except (OSError, MissingExtraError) as error:
            self._problems[entry.name] = getattr(error, "strerror", None) or str(error)
            return entry

    def _continue(
        self, cursor: DuckDBPyConnection, entry: Entry, source: Source, build: Build, deadline_s: float
    ) -> Entry:
        # Before the last read: what was written before the lock was released is then read here.
        no_writer = source.is_sealed()
        ended = build.read(deadline_s)
        if build.error is not None:
            self._problems[entry.name] = build.error
        build.identity = source.identity
        is_live = not no_writer and not build.part.last_is_footer
        if not ended:
            self._builds[entry.name] = build
            known = self._known.get(entry.name)
            if known is None or known.facts is None or not known.is_whole or known.facts.identity.compressed:
                return entry
            if not is_live or known.file is not None or known.tables != build.part.tables[: len(known.tables)]:
                return known
            # Its rows were shown before: those that came since are, too. Its identity says that there are more.
            build.identity = build.identity._replace(bytes=build.offset)
        facts = self._facts(build)
        if is_live:
            build.part.show(cursor)
            self._builds[entry.name] = build
            return entry._replace(facts=facts, tables=build.part.tables, is_live=True)
        return self._keep(cursor, entry, build, facts)

    def _keep(self, cursor: DuckDBPyConnection, entry: Entry, build: Build, facts: Facts) -> Entry:
        """Write a finished table, or keep it in memory."""
        import duckdb

        cache = self._places[entry.directory]
        if cache is not None:
            try:
                cache.store(facts, lambda path: build.part.write(cursor, path))
            except (OSError, duckdb.Error) as error:
                self._problems[entry.name] = f"{str(error).splitlines()[0]}: its rows are kept in memory"
            else:
                build.close(cursor)
                return entry._replace(facts=facts, file=cache.path(entry.name))
        held = sum(known.facts.content_bytes for known in self._found.values() if known.facts and known.tables)
        if held + facts.content_bytes > _MOST_IN_MEMORY:
            build.close(cursor)
            self._problems[entry.name] = "the memory for rows is full: it has none"
            return entry
        build.keep()
        build.part.show(cursor)
        self._builds[entry.name] = build
        return entry._replace(facts=facts, tables=build.part.tables)

    def _facts(self, build: Build) -> Facts:
        part = build.part
        first, last = part.times or (0, 0)
        counts = part.rows, part.odd, part.unreadable
        return Facts(part.segment, build.identity, build.offset, *counts, part.resource, first, last, part.dropped)

    def _show_ends(self, todo: Sequence[Entry]) -> None:
        """Show the last rows of the newest segments, a page of them, where nothing else is shown yet."""
        cursor, rows = self._connection.cursor(), 0
        for entry in todo[:_MOST_ENDS]:
            cache = self._places[entry.directory]
            facts = cache.load(entry.name) if cache is not None else None
            if facts is not None:
                rows += facts.rows  # its table is read as quickly
            else:
                with contextlib.suppress(OSError), Source(entry.directory, entry.name) as source:
                    shown = None if source.identity.compressed else self._end(cursor, entry, source)
                    if shown is not None and shown.facts is not None:
                        self._found[entry.name] = shown
                        rows += shown.facts.rows
            if rows >= _ENOUGH_ROWS:
                break
        self._publish()

    def _end(self, cursor: DuckDBPyConnection, entry: Entry, source: Source) -> Entry | None:
        size, number = source.identity.bytes, _FIRST_END_BYTES
        while True:
            begin = max(0, size - number)
            build = Build(source.segment, source.identity)
            build.keep()
            part = build.part
            if begin > 0:
                part.take_header(source.line(0) or b"")
            lines, offsets, build.offset = source.lines_from(begin, size)
            part.take(lines, offsets)
            if part.rows >= _ENOUGH_ROWS or begin == 0 or number >= _MOST_END_BYTES:
                break
            part.drop(cursor)
            number *= 4
        if not part.rows:
            part.drop(cursor)
            return None
        part.show(cursor)
        is_live = not source.is_sealed()
        return entry._replace(facts=self._facts(build), tables=part.tables, is_live=is_live, unread_bytes=max(1, begin))

    def _is_readable(self, file: Path) -> bool:
        import duckdb

        from inference_logging.read.table.engine import text

        try:
            self._connection.cursor().execute(f"SELECT max(COLUMNS(*)) FROM read_parquet({text(str(file))})").fetchall()
        except duckdb.Error:
            return False
        return True

    def _read_bytes(self, entry: Entry) -> int:
        build = self._builds.get(entry.name)
        return min(build.offset, entry.disk_bytes - 1) if build is not None else 0

    def _progress(self) -> dict[str, Any]:
        entries = self.snapshot
        whole = [entry for entry in entries if entry.is_whole]
        facts = [(entry, entry.facts) for entry in whole if entry.facts is not None]
        problems = [
            f"{entry.name}: {facts.unreadable} lines are no records" for entry, facts in facts if facts.unreadable
        ]
        problems += [f"{place}: {why}" for place, why in sorted(self._problems.items())]
        return {
            "segments": len(entries),
            "indexed_segments": len(whole),
            "bytes": sum(entry.disk_bytes for entry in entries),
            "indexed_bytes": sum(entry.disk_bytes if entry.is_whole else self._read_bytes(entry) for entry in entries),
            "rows": sum(facts.rows for _, facts in facts),
            "live_rows": sum(facts.rows for entry, facts in facts if entry.is_live),
            "done": len(whole) == len(entries),
            "problems": [*problems, *self._no_cache],
        }
