"""Objects are brought many at once: a fleet has thousands of small ones, and each waits for the network."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from inference_logging.ship.s3.place import MANIFESTS, Place
from inference_logging.ship.s3.reading import AT_ONCE, ahead, manifests
from inference_logging.ship.s3.store import Listed, Store
from tests.segment_files import log, write_segment
from tests.shipping.bucket import Bucket
from tests.shipping.bucket_commands import ship
from tests.shipping.test_bucket import rows

PATIENCE_S = 30


class Slow:
    """A store whose answers come once all that may be under way are."""

    def __init__(self, count: int) -> None:
        self.keys = [
            f"{MANIFESTS}service=s/date=2026-11-21/hour=05/pod=p/{at:03}.jsonl.zst.json" for at in range(count)
        ]
        self.barrier = threading.Barrier(AT_ONCE)

    def list(self, _beginning: str) -> Iterator[Listed]:
        """Iterate over the manifests."""
        return (Listed(key, 1, "") for key in self.keys)

    def read(self, _key: str) -> bytes:
        """Wait for the others."""
        self.barrier.wait(PATIENCE_S)
        return b"no manifest"


def test_manifests_are_read_many_at_once_and_come_in_their_order() -> None:
    store = Slow(4 * AT_ONCE)
    found = manifests(cast("Store", store), Place.parse("s3://bucket/logs"))
    assert [one.key for one in found] == store.keys


def test_after_a_failure_no_further_item_is_asked_for() -> None:
    asked = []

    def ask(item: int) -> int:
        asked.append(item)
        if item == 2:
            raise KeyError(item)
        return item

    items = iter(range(1000))
    with pytest.raises(KeyError):
        list(ahead(ask, items))
    assert next(items) <= 2 + AT_ONCE
    assert set(asked) <= set(range(3 + AT_ONCE))


@pytest.mark.servers
def test_many_small_objects_are_all_there(tmp_path: Path, bucket: Bucket) -> None:
    count = 3 * AT_ONCE
    for number in range(1, count + 1):
        write_segment(tmp_path / "logs", [log(number, f"m{number}")], number=number)
    assert ship(tmp_path / "logs", bucket.url).code == 0
    assert rows(bucket.url, "SELECT count(DISTINCT message) AS n FROM records") == [{"n": count}]
