"""The objects of a bucket brought to this machine, each compared with its manifest on the way."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from inference_logging.ship.s3.manifest import Content, Manifest, ManifestError
from inference_logging.ship.s3.place import MANIFESTS, Place, form_of, manifest_key, segment_of
from inference_logging.ship.s3.store import Listed, Store

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
