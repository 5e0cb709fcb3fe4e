"""Segments wait for their shipper while Kafka is away; only the quota takes them before, and then it is counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from inference_logging.segments import segments
from tests.shipping.arrived import key, written_lines
from tests.shipping.kafka import TOPIC, Kafka
from tests.shipping.shippers import Ship
from tests.shipping.stage import Stage
from tests.support import parse, wait_until

pytestmark = pytest.mark.shipping
Start = Callable[[Any], Any]

ROTATE_BYTES: Final = 64 << 10
WAITING: Final = {"retention_waits_for": ("kafka",), "rotate_bytes": ROTATE_BYTES}


@pytest.fixture
def kafka(start: Start, tmp_path: Path) -> Kafka:
    """Return a broker that has the topic, and is away."""
    made: Kafka = start(Kafka(tmp_path / "kafka"))
    made.kill()
    return made


def test_what_is_not_shipped_outlives_its_age_and_goes_once_it_is(
    stage: Callable[..., Stage], start: Start, tmp_path: Path, kafka: Kafka
) -> None:
    staged = stage(**WAITING, retention_s=1.0)
    directory = staged.config.directory
    ship: Ship = start(Ship(staged.config, f"kafka://{kafka.address}/{TOPIC}"))
    with staged.load():
        wait_until(lambda: len(segments(directory)) > 5, "five sealed segments")
        ship.wait_until_failing()
    *waiting, marked, _ = segments(directory)
    # Younger than all that wait: once its age has removed it, theirs would have.
    marked.path.with_name(f"{marked.name}.shipped-kafka").touch()
    wait_until(lambda: not marked.path.exists(), "the marked segment to be removed")
    assert set(waiting) <= set(segments(directory))
    wait_until(lambda: staged.removed("age"), "that to be counted")
    assert (staged.removed("age"), staged.removed("unshipped")) == (1, 0)
    (kept := tmp_path / "kept").mkdir()
    for one in segments(directory):
        (kept / one.path.name).hardlink_to(one.path)
    kafka.start()
    wait_until(lambda: not any(one.path.exists() for one in waiting), "what was shipped to be removed")
    wait_until(lambda: staged.removed("age") > len(waiting), "that to be counted")
    assert staged.removed("unshipped") == 0
    left = staged.end()
    assert ship.stop() == 0, ship.lines
    written = {key(one): one for one in [*left, *map(parse, written_lines(kept))]}
    name = "retention that waits for Kafka"
    staged.show(name, written.values(), map(parse, kafka.values()), kafka, ship)


def test_the_quota_removes_what_is_not_shipped_and_counts_it_and_the_rest_arrives(
    stage: Callable[..., Stage], start: Start, tmp_path: Path, kafka: Kafka
) -> None:
    quota_bytes = 4 * ROTATE_BYTES
    staged = stage(**WAITING, quota_bytes=quota_bytes)
    directory = staged.config.directory
    ship: Ship = start(Ship(staged.config, f"kafka://{kafka.address}/{TOPIC}"))
    with staged.load() as load:
        wait_until(lambda: staged.removed("unshipped") >= 3, "three segments to be removed before they are shipped")
        assert staged.removed("quota") == 0
        kafka.start()
        wait_until(lambda: staged.removed("quota") >= 3, "three segments to be removed that were shipped")
        load.wait_for(20)
    left = {key(one): one for one in staged.end()}
    assert ship.stop() == 0, ship.lines
    assert sum(one.path.stat().st_size for one in segments(directory)) < 2 * quota_bytes
    present, marked = staged.marks("kafka")
    assert present == marked, "marks go with their segments"
    arrived = [one for one in map(parse, kafka.values()) if key(one) in left]
    staged.show("the quota while Kafka is away; what is left of it", left.values(), arrived, kafka, ship)
