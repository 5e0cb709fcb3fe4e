"""One segment into the bucket: its object, and then its manifest, each there exactly once.

What is there already counts as delivered if it holds the same lines; another content is an error that names both. So
the same segment can be delivered again after any death, by any shipper.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Final

from inference_logging.record._foreign import OWN
from inference_logging.ship.s3.manifest import Content, Manifest, ManifestError, manifest
from inference_logging.ship.s3.place import JSON_LINES, Place, manifest_key, object_key
from inference_logging.ship.s3.staging import Staged
from inference_logging.ship.s3.store import ExistsError, Store

PLAIN: Final = "segment-sha256"
OBJECT: Final = "object-sha256"
"""Names of an object's metadata: of the digest of the segment's lines, and of its own bytes."""
UNKNOWN_POD: Final = "unknown"
_POD: Final = ("k8s.pod.name", "host.name")


class ConflictError(Exception):
    """Another content lies under the key of a segment."""


class Delivery:
    """Delivers to a place."""

    def __init__(self, store: Store, place: Place) -> None:
        self._store, self._place, self._form = store, place, place.form or JSON_LINES
        self._writer = f"{OWN} {_version()}"

    @property
    def form(self) -> str:
        """The format of new objects."""
        return self._form

    def deliver(self, staged: Staged, service: str, go_on: Callable[[], None]) -> None:
        """Put object and manifest; ``go_on`` is called before each part.

        Raises ``ConflictError``, ``StoreError``, and what ``go_on`` raises.
        """
        pod = next((value for name in _POD if (value := staged.resource(name))), UNKNOWN_POD)
        key = object_key(staged.segment, service, pod, staged.form)
        made = self._there(key, staged)
        if made is None:
            about = {PLAIN: staged.plain.sha256, OBJECT: staged.object.sha256}
            try:
                with staged.path.open("rb") as file:
                    self._store.upload(key, file, staged.object.bytes, about, go_on)
                made = staged.object
            except ExistsError:
                made = self._there(key, staged) or staged.object
        self._put_manifest(key, staged, made)

    def _there(self, key: str, staged: Staged) -> Content | None:
        """Return the content of the object that is there; None: there is none. Raises ``ConflictError``."""
        head = self._store.head(key)
        if head is None:
            return None
        plain, made = head.metadata.get(PLAIN, "unknown"), head.metadata.get(OBJECT, "unknown")
        is_cut = made == staged.object.sha256 and head.bytes != staged.object.bytes
        if plain != staged.plain.sha256 or is_cut:
            raise ConflictError(
                f"{self._place.url(key)}: already exists, with {head.bytes} bytes of a segment with sha256 {plain}; "
                f"{staged.segment.path} has sha256 {staged.plain.sha256}, an object of {staged.object.bytes} bytes"
            )
        return Content(head.bytes, made)

    def _put_manifest(self, key: str, staged: Staged, made: Content) -> None:
        body = manifest(staged.segment, key, staged.form, made, staged.plain, staged.account, self._writer)
        try:
            self._store.put(manifest_key(key), body, {}, "application/json")
        except ExistsError:
            self._compare(manifest_key(key), Manifest.read(body))

    def _compare(self, key: str, own: Manifest) -> None:
        url = self._place.url(key)
        try:
            there = Manifest.read(self._store.read(key))
        except ManifestError as error:
            raise ConflictError(f"{url}: already exists and is not a manifest: {error}") from None
        if (there.key, there.object, there.plain) != (own.key, own.object, own.plain):
            raise ConflictError(
                f"{url}: already exists, for an object with sha256 {there.object.sha256}; this segment's object has "
                f"{own.object.sha256}"
            )


def _version() -> str:
    try:
        return metadata.version(OWN)
    except metadata.PackageNotFoundError:
        return "unknown"
