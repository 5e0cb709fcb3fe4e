"""`verify s3://bucket/prefix`: objects are those that manifests name, unaltered, each once; records have no gap.

Each object is brought into a folder, compared with its manifest and counted; then the verification of segments reads
the folder. Of a Parquet file that sees a segment of the records' heads, since the lines themselves are not in it.
Processes whose end is not in the bucket (they run, or their last segment is not sealed) are notes and no faults: what
was not shipped yet, a bucket cannot say.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from inference_logging.errors import CorruptLineError
from inference_logging.read import verify
from inference_logging.read.segments import Segment
from inference_logging.read.segments.columns import OTHER
from inference_logging.read.segments.reading import compressed_lines
from inference_logging.read.table.engine import connected
from inference_logging.ship.s3.manifest import Account, Manifest, sequences
from inference_logging.ship.s3.place import JSON_LINES, Place, manifest_key
from inference_logging.ship.s3.reading import Named, bring, manifests, objects
from inference_logging.ship.s3.store import Listed, Store, StoreError

_NOT_KNOWN: Final = "end_unknown"


@dataclass
class Report:
    """What was found. ``problems`` and ``notes`` are pairs of the kind and a sentence that names the object."""

    place: str
    objects: int = 0
    manifests: int = 0
    records: int = 0
    bytes: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    books: dict[str, Any] = field(default_factory=dict)
    """The report of the verification of segments."""

    def as_json(self) -> dict[str, Any]:
        """Return it for `--json`."""
        lists = {name: [{"kind": kind, "text": text} for kind, text in getattr(self, name)] for name in _LISTS}
        counts = {name: getattr(self, name) for name in ("place", "objects", "manifests", "records", "bytes")}
        return {"balanced": not self.problems, **counts, **lists, "books": self.books}


_LISTS: Final = ("problems", "notes")


class Check:
    """One verification, into ``folder``, which is empty or has what an earlier one has restored."""

    def __init__(self, store: Store, place: Place, folder: Path, *, options: Sequence[str] = ()) -> None:
        """Keep them; ``options`` are further ones of the verification of segments."""
        self._store, self._place, self._folder, self._options = store, place, folder, options
        self._heads = folder / ".heads"
        self.report = Report(str(place))
        self._segments: dict[str, str] = {}
        """The object of each segment."""

    def run(self) -> Report:
        """Check everything. Raises ``StoreError``, OSError."""
        there = {listed.key: listed for listed in objects(self._store, self._place)}
        named: dict[str, Manifest] = {}
        for one in manifests(self._store, self._place):
            self.report.manifests += 1
            if one.said is None or one.error:
                self._say("manifest", one.key, one.error)
            elif self._takes(one):
                named[one.said.key] = one.said
        self.report.objects = len(there)
        if not there and not self.report.manifests:
            chosen = "".join(f" {name}={value}" for name, value in self._place.keys.items())
            self._say("nothing", "", f"no object and no manifest exists{' of' if chosen else ''}{chosen}")
            return self.report
        for key, said in named.items():
            self._object(said, key in there)
        self._unnamed(there, named)
        self._sequences()
        return self.report

    def _say(self, kind: str, key: str, text: str) -> None:
        self.report.problems.append((kind, f"{self._place.url(key)}: {text}"))

    def _takes(self, one: Named) -> bool:
        """Return whether this is the first manifest of its segment; a second one is a fault."""
        assert one.said is not None
        first = self._segments.setdefault(one.said.segment, one.said.key)
        if first != one.said.key:
            self._say("doubled", one.said.key, f"holds the segment that {self._place.url(first)} holds too")
        return first == one.said.key

    def _object(self, said: Manifest, is_listed: bool) -> None:
        """Bring an object and compare it with what its manifest says."""
        # One that was put between the two listings is there all the same.
        if not is_listed and self._store.head(said.key) is None:
            self._say("removed", said.key, f"is not there; its manifest says {said.records} records")
            return
        path = self._folder / f"{said.segment}.zst"
        if said.form != JSON_LINES:
            path = self._folder / said.key.rpartition("/")[2]
        try:
            found = bring(self._store, said.key, path)
        except StoreError as error:
            if error.kind not in ("NoSuchKey", "404"):
                raise
            self._say("removed", said.key, "was removed while it was read")
            return
        if found != said.object:
            path.unlink()
            self._say(
                "altered", said.key,
                f"{found.bytes} bytes of sha256 {found.sha256}; "
                f"its manifest says {said.object.bytes} of {said.object.sha256}",
            )  # fmt: skip
            return
        self.report.bytes += found.bytes
        self._count(said, path)

    def _count(self, said: Manifest, path: Path) -> None:
        try:
            account = _lines(path) if said.form == JSON_LINES else self._rows(said, path)
        except CorruptLineError as error:
            self._say("altered", said.key, f"cannot be read: {error}")
            return
        self.report.records += account.records
        if account.records != said.records or sequences(account.processes()) != sequences(said.processes):
            self._say(
                "manifest", manifest_key(said.key),
                f"says {said.records} records of {sequences(said.processes)}; its object has {account.records} of "
                f"{sequences(account.processes())}",
            )  # fmt: skip

    def _rows(self, said: Manifest, path: Path) -> Account:
        """Count the rows of a Parquet file, and write the segment of their heads."""
        from inference_logging.ship.s3.checking import write_heads

        self._heads.mkdir(exist_ok=True)
        return write_heads(path, said, self._heads / said.segment)

    def _unnamed(self, there: Mapping[str, Listed], named: Mapping[str, Manifest]) -> None:
        """Find objects that no manifest names: copies, or what was put by somebody else."""
        known = {(listed.bytes, listed.etag): key for key, listed in there.items() if key in named}
        by_name = {key.rpartition("/")[2]: key for key in named}
        for key, listed in there.items():
            if key in named or self._has_manifest(key):
                continue
            like = known.get((listed.bytes, listed.etag)) or by_name.get(key.rpartition("/")[2])
            if like is not None:
                self._say("doubled", key, f"is a copy of {self._place.url(like)}")
            else:
                self._say(
                    "no_manifest", key, f"no manifest names it: {self._place.url(manifest_key(key))} does not exist"
                )

    def _has_manifest(self, key: str) -> bool:
        """Return whether the faults name the manifest of an object already."""
        beginnings = (f"{self._place.url(manifest_key(key))}: ", f"{self._place.url(key)}: ")
        return any(text.startswith(beginnings) for _, text in self.report.problems)

    def _sequences(self) -> None:
        """Verify the segments in the folder, and take over what is found; without any, the faults say why."""
        if not self.report.bytes:
            return
        # Queues of this machine say nothing about a bucket: an empty directory has none.
        (nothing := self._folder / ".no-queues").mkdir(exist_ok=True)
        folders = [self._folder, *([self._heads] if self._heads.is_dir() else [])]
        arguments = [*self._options, f"--queue-directory={nothing}", "--", *map(str, folders)]
        self.report.books, error = verify.answer(verify.start(arguments))
        nothing.rmdir()
        shutil.rmtree(self._heads, ignore_errors=True)
        if error:
            self.report.problems.append(("books", f"{self._place}: {error}"))
            return
        for problem in self.report.books["problems"]:
            is_note = problem["kind"] == _NOT_KNOWN or self._is_outside(problem)
            (self.report.notes if is_note else self.report.problems).append((problem["kind"], self._words(problem)))

    def _is_outside(self, problem: Mapping[str, Any]) -> bool:
        """Return whether records are missing before the first one, of objects that were not asked for."""
        return bool(self._place.keys) and problem["kind"] == "missing" and problem.get("first") == 0

    def _words(self, problem: Mapping[str, Any]) -> str:
        process = f"process {problem['boot_id']}: " if "boot_id" in problem else ""
        which = f"sequences {problem['first']} to {problem['last']}: " if "first" in problem else ""
        segment = f"{problem['segment']}: " if "segment" in problem else ""
        text = f"{segment}{process}{which}{problem['text']}"
        for name, key in self._segments.items():
            for path in (f"{self._folder / name}.zst", str(self._heads / name)):
                text = text.replace(path, self._place.url(key))
        return text


def _lines(path: Path) -> Account:
    account, segment = Account(), Segment.parse(path)
    for line in compressed_lines(segment) if segment is not None else ():
        account.add(line)
    return account


def words(report: Report) -> Iterator[str]:
    """Return the report in sentences."""
    yield from (f"{kind}: {text}" for kind, text in report.problems)
    yield from (f"note: {text}" for _, text in report.notes)
    result = "the books balance" if not report.problems else f"{len(report.problems)} faults"
    yield (
        f"{report.place}: {report.objects} objects, {report.manifests} manifests, {report.records} records, "
        f"{report.bytes} bytes: {result}"
    )


_HEAD = ("severity_text", "event_name", "boot_id", "pid", "seq")
_ROWS = 1000


def write_heads(path: Path, said: Manifest, segment: Path) -> Account:
    """Write the rows of a Parquet file as a segment, between the header and the footer that its manifest has.

    The footer counts the lines as they are here. The chain of the audit lane is of the original lines, and left out.
    Raises ``CorruptLineError``, ``MissingExtraError``, OSError.
    """
    account, bytes_, crc32 = Account(), 0, 0
    with segment.open("wb") as file:
        if said.header:
            file.write(orjson.dumps(_unchained(said.header)) + b"\n")
        for line in records(path):
            account.add(line)
            bytes_, crc32 = bytes_ + len(line) + 1, zlib.crc32(line + b"\n", crc32)
            file.write(line + b"\n")
        if said.footer:
            counted = {"records": account.records, "bytes": bytes_, "crc32": f"{crc32:08x}"}
            file.write(orjson.dumps({**_unchained(said.footer), **counted}) + b"\n")
    return account


def _unchained(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if not name.startswith("chain")}


def records(path: Path) -> Iterator[bytes]:
    """Iterate over the rows. Raises ``CorruptLineError``, ``MissingExtraError``."""
    connection = connected("verifying Parquet", "query", threads="1")
    import duckdb

    try:
        answer = connection.execute(
            f"SELECT strftime(\"timestamp\", '%Y-%m-%dT%H:%M:%S.%f'), {', '.join(_HEAD)}, CAST({OTHER} AS VARCHAR) "
            "FROM read_parquet(?)",
            [str(path)],
        )
        while rows := answer.fetchmany(_ROWS):
            for time, *head, other in rows:
                known = {name: value for name, value in zip(_HEAD, head, strict=True) if value is not None}
                line = {**({"timestamp": f"{time}000Z"} if time else {}), **known}
                rest = _unchained(orjson.loads(other)) if other else {}
                yield orjson.dumps({**line, **rest})
        connection.close()
    except duckdb.Error as error:
        raise CorruptLineError(str(path), 0, str(error)) from None
