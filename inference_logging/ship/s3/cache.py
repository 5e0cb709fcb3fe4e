"""Objects of a bucket as files of this machine, for commands that read segments.

A file lies under its digest, so what was brought once is not brought again; a folder for each place links to those that
it asks for. Only what a manifest names is read, and only if it is what the manifest says.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from inference_logging.ship.s3.manifest import Manifest
from inference_logging.ship.s3.place import JSON_LINES, Place
from inference_logging.ship.s3.reading import Named, ahead, bring, manifests
from inference_logging.ship.s3.store import Store, StoreError


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
