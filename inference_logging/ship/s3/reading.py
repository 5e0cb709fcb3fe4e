"""The objects of a bucket brought to this machine, each compared with its manifest on the way.

For commands that read segments they stay in a cache: a file lies under its digest, so what was brought once is not
brought again, and a folder for each place links to those that it asks for.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from inference_logging.ship.s3.manifest import Content, Manifest, ManifestError
from inference_logging.ship.s3.place import JSON_LINES, MANIFESTS, Place, form_of, manifest_key, segment_of
from inference_logging.ship.s3.store import Listed, Store, StoreError

AT_ONCE: Final = 16
"""Requests under way: the pods of a fleet have thousands of small objects, and each request waits for the network."""
Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Named(NamedTuple):
    """A manifest in the bucket: its own key, and what it says, or why it says nothing."""

    key: str
    said: Manifest | None
    error: str


def manifests(store: Store, place: Place) -> Iterator[Named]:
    """Iterate over the manifests whose keys the place asks for."""

    def wanted() -> Iterator[str]:
        for listed in store.list(MANIFESTS + place.fixed()):
            object_key = listed.key.removeprefix(MANIFESTS).removesuffix(".json")
            if place.wants(object_key) or not (form_of(object_key) or place.form):
                yield listed.key

    yield from ahead(lambda key: _manifest(store, key), wanted())


def _manifest(store: Store, key: str) -> Named:
    try:
        said = Manifest.read(store.read(key))
    except ManifestError as error:
        return Named(key, None, str(error))
    return Named(key, said, wrong_place(key, said))


def ahead(ask: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
    """Iterate over what ``ask`` answers to each item, in their order, with ``AT_ONCE`` of them under way.

    Raises what ``ask`` raises; no further item is asked for then.
    """
    pool, asked = ThreadPoolExecutor(AT_ONCE), deque[Future[Answer]]()
    try:
        for item in items:
            asked.append(pool.submit(ask, item))
            if len(asked) == AT_ONCE:
                yield asked.popleft().result()
        while asked:
            yield asked.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def wrong_place(key: str, said: Manifest) -> str:
    """Return why a manifest does not belong where it lies; empty if it does."""
    if manifest_key(said.key) != key:
        return f"it is the manifest of {said.key}, which belongs under {manifest_key(said.key)}: a copy"
    segment = segment_of(said.key)
    if segment is None or segment.name != said.segment or form_of(said.key) != said.form:
        return f"it names the segment {said.segment} in the format {said.form}, its object's key another one"
    return ""


def objects(store: Store, place: Place) -> Iterator[Listed]:
    """Iterate over everything below the prefix that the place asks for and that is no manifest."""
    for listed in store.list(place.fixed()):
        if not listed.key.startswith(MANIFESTS) and (not place.keys or place.wants(listed.key)):
            yield listed


def bring(store: Store, key: str, path: Path) -> Content:
    """Write an object to ``path``, in blocks; return what has come. Raises ``StoreError``, OSError."""
    digest, bytes_ = hashlib.sha256(), 0
    with path.open("wb") as file:
        for block in store.blocks(key):
            file.write(block)
            digest.update(block)
            bytes_ += len(block)
    return Content(bytes_, digest.hexdigest())


class AlteredError(Exception):
    """An object or a manifest is not what it should be; the message names it."""


def cache_folder() -> Path:
    """Return where brought objects lie: below ``XDG_CACHE_HOME``, else ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "inference-logging" / "s3"


def fetch(url: str, cache: Path) -> Path:
    """Return a folder with the objects that ``url`` asks for, as segments or Parquet files.

    Raises ``PlaceError``, ``StoreError``, ``AlteredError``, OSError.
    """
    place = Place.parse(url)
    store = Store(place)
    folder = cache / "places" / hashlib.sha256(url.encode()).hexdigest()[:16]
    for made in (folder, cache / "objects"):
        made.mkdir(mode=0o700, parents=True, exist_ok=True)

    def brought(one: Named) -> tuple[str, Path]:
        if one.said is None or one.error:
            raise AlteredError(f"{place.url(one.key)}: {one.error}")
        name = f"{one.said.segment}.zst" if one.said.form == JSON_LINES else one.said.key.rpartition("/")[2]
        return name, _object(store, place, one.said, cache / "objects")

    wanted = dict(ahead(brought, manifests(store, place)))
    for name, path in wanted.items():
        if not (folder / name).exists() or not (folder / name).samefile(path):
            (folder / name).unlink(missing_ok=True)
            (folder / name).hardlink_to(path)
    for there in folder.iterdir():
        if there.name not in wanted:
            there.unlink()
    return folder


def _object(store: Store, place: Place, said: Manifest, objects: Path) -> Path:
    """Return the file of an object, which is brought where it is not there yet."""
    digest = said.object.sha256
    if len(digest) != hashlib.sha256().digest_size * 2 or not digest.isalnum():
        raise AlteredError(f"{place.url(said.key)}: its manifest has no digest: {digest!r}")
    path = objects / digest
    if path.exists():
        return path
    descriptor, temporary = tempfile.mkstemp(dir=objects)
    os.close(descriptor)
    try:
        found = bring(store, said.key, Path(temporary))
        if found != said.object:
            raise AlteredError(
                f"{place.url(said.key)}: {found.bytes} bytes of sha256 {found.sha256}; "
                f"its manifest says {said.object.bytes} of {digest}"
            )
        Path(temporary).replace(path)
    except StoreError as error:
        raise StoreError(error.kind, f"{place.url(said.key)}: {error}") from None
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path
