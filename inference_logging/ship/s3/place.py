"""The place ``s3://bucket/prefix?…``: its options, and the keys of segments and manifests below the prefix.

``PREFIX/service=S/date=YYYY-MM-DD/hour=HH/pod=P/SEGMENT.jsonl.zst`` is an object, and
``PREFIX/_manifest/service=S/…/SEGMENT.jsonl.json`` the manifest of it. Date and hour are the beginning of the segment,
in UTC. Readers of Hive's layout leave out names that begin with an underscore.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, quote, unquote

from inference_logging.read.segments import Segment
from inference_logging.record.config.parameters.shipping import BUCKET

JSON_LINES: Final = "jsonl.zst"
PARQUET: Final = "parquet"
FORMATS: Final = (JSON_LINES, PARQUET)
MANIFESTS: Final = "_manifest/"
KEYS: Final = ("service", "date", "hour", "pod")
"""The keys of the layout, in their order in a path."""

LEAST_PART_BYTES: Final = 5 << 20
"""S3 takes no smaller part, except the last."""
PART_BYTES: Final = 8 << 20

_OPTIONS: Final = {"endpoint", "region", "format", "part_bytes"}
_DAY: Final = r"\d{4}-\d\d-\d\d"
_VALUES: Final = {
    "endpoint": (r"https?://\S+", "a URL, http:// or https://"),
    "region": (r"[a-z0-9-]+", "the name of a region"),
    "format": ("|".join(map(re.escape, FORMATS)), " or ".join(FORMATS)),
    "part_bytes": (r"\d{1,10}", f"bytes, {LEAST_PART_BYTES} or more"),
    "service": (r".+", "the name of a service"),
    "date": (rf"{_DAY}|({_DAY})?\.\.({_DAY})?", "YYYY-MM-DD, or a range FROM..TO in which one may be left out"),
    "hour": (r"[01]\d|2[0-3]", "two digits, 00 to 23"),
    "pod": (r".+", "the name of a pod"),
}


class PlaceError(ValueError):
    """A place that is no ``s3://bucket/prefix``, or an option of it that is wrong; the message names it."""


@dataclass(frozen=True)
class Place:
    """A bucket and a prefix, how they are reached, and which objects are meant."""

    bucket: str
    prefix: str
    """Without a slash at its end; empty: the bucket's root."""
    endpoint: str | None = None
    region: str | None = None
    form: str | None = None
    """``FORMATS``; None: not said."""
    part_bytes: int = PART_BYTES
    keys: Mapping[str, str] = field(default_factory=dict)
    """Values of ``KEYS`` that objects must have; a date can be a range."""

    @classmethod
    def parse(cls, url: str) -> Place:
        """Read a place. Raises ``PlaceError``."""
        path, _, query = url.partition("?")
        bucket, _, prefix = path.removeprefix("s3://").partition("/")
        if not path.startswith("s3://") or not re.fullmatch(BUCKET, bucket):
            raise PlaceError(f"{url}: must be s3://bucket/prefix, the bucket in 3 to 63 of a-z 0-9 . -")
        options = dict(parse_qsl(query, keep_blank_values=True))
        for name, value in options.items():
            pattern, allowed = _VALUES.get(name, ("", ""))
            if not pattern:
                raise PlaceError(f"{url}: {name}: unknown option; the options are {', '.join(_VALUES)}")
            if not re.fullmatch(pattern, value):
                raise PlaceError(f"{url}: {name}={value!r}: must be {allowed}")
        part_bytes = int(options.get("part_bytes", PART_BYTES))
        if part_bytes < LEAST_PART_BYTES:
            raise PlaceError(f"{url}: part_bytes={part_bytes}: must be {_VALUES['part_bytes'][1]}")
        keys = {name: value for name, value in options.items() if name not in _OPTIONS}
        own = prefix.strip("/")
        return cls(bucket, own, options.get("endpoint"), options.get("region"), options.get("format"), part_bytes, keys)

    def __str__(self) -> str:
        """Return it without options."""
        return f"s3://{self.bucket}/{self.prefix}"

    def full(self, key: str) -> str:
        """Return the key in the bucket of a key below the prefix."""
        return f"{self.prefix}/{key}" if self.prefix else key

    def below(self, full: str) -> str:
        """Return the key below the prefix of a key in the bucket."""
        return full.removeprefix(f"{self.prefix}/") if self.prefix else full

    def url(self, key: str) -> str:
        """Return how a key below the prefix is written for people."""
        return f"s3://{self.bucket}/{self.full(key)}"

    def fixed(self) -> str:
        """Return the beginning that all wanted keys share, as far as the options name it."""
        beginning = ""
        for name in KEYS:
            value = self.keys.get(name)
            if value is None or ".." in value:
                break
            beginning += f"{name}={quote(value, safe='')}/"
        return beginning

    def wants(self, key: str) -> bool:
        """Return whether an object's key has the values and the format that the options name."""
        found = hive(key)
        if self.form is not None and form_of(key) != self.form:
            return False
        return all(_fits(found.get(name, ""), value) for name, value in self.keys.items())


def object_key(segment: Segment, service: str, pod: str, form: str) -> str:
    """Return the key of a segment's object below the prefix."""
    values = (service, f"{segment.begun:%Y-%m-%d}", f"{segment.begun:%H}", pod)
    folders = "".join(f"{name}={quote(value, safe='')}/" for name, value in zip(KEYS, values, strict=True))
    ending = f"{segment.name}.zst" if form == JSON_LINES else f"{segment.name.removesuffix('.jsonl')}.parquet"
    return folders + ending


def manifest_key(key: str) -> str:
    """Return the key of the manifest of an object."""
    return f"{MANIFESTS}{key}.json"


def form_of(key: str) -> str:
    """Return the format that a key's ending names; empty for another one."""
    return next((form for form in FORMATS if key.endswith(f".{form}")), "")


def segment_of(key: str) -> Segment | None:
    """Return the segment that an object's key names, or None."""
    name = key.rpartition("/")[2]
    return Segment.parse(name.removesuffix(".parquet") + ".jsonl" if name.endswith(".parquet") else name)


def hive(key: str) -> dict[str, str]:
    """Return the values in the folders of a key."""
    pairs = (folder.partition("=") for folder in key.split("/")[:-1])
    return {name: unquote(value) for name, equals, value in pairs if equals}


def _fits(found: str, wanted: str) -> bool:
    first, is_range, last = wanted.partition("..")
    if not is_range:
        return found == wanted
    return (not first or found >= first) and (not last or found <= last)
