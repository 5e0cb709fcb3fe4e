"""The place ``opensearch+http(s)://host:port/path/index?template=…``; ``elasticsearch+…`` is the same."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit


class Place(NamedTuple):
    """Where a server is asked, and the indexes of the records."""

    url: str
    """Without a slash at its end."""
    name: str
    """What stands before the day in the name of each index; also the name of the index template."""
    has_template: bool = True
    """Whether the index template is made where it is missing."""

    @classmethod
    def parse(cls, to: str) -> Place:
        """Read a ``ship_to`` of this kind, whose form the configuration has checked."""
        parts = urlsplit(to.partition("+")[2])
        path, _, index = parts.path.rpartition("/")
        return cls(f"{parts.scheme}://{parts.netloc}{path.rstrip('/')}", index, parts.query != "template=none")
