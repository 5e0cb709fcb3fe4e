"""Single metric families, from counts as the native core tells them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric

from inference_logging import _families as families


def shown(all_families: Iterable[Metric], name: str) -> float:
    """Return the value of the one sample of a family."""
    (found,) = [sample.value for family in all_families if family.name == name for sample in family.samples]
    return float(found)


def a_queue(used_bytes: int, capacity_bytes: int = 1000) -> dict[str, Any]:
    """Return a queue without records that wait, of which this much is in use."""
    counts = {"used_bytes": used_bytes, "capacity_bytes": capacity_bytes, "in_queue": 0, "in_flight": 0}
    return {**counts, "oldest_unix_nano": None}


@pytest.mark.parametrize(
    ("queues", "ratio"),
    [
        pytest.param([], 0.0, id="no-queue"),
        pytest.param([a_queue(250)], 0.25, id="one"),
        pytest.param([a_queue(10), a_queue(900), a_queue(10), a_queue(950, 10_000)], 0.9, id="one-of-four-is-full"),
    ],
)
def test_the_fill_ratio_is_that_of_the_fullest_queue(queues: list[dict[str, Any]], ratio: float) -> None:
    assert shown(families.queues(queues, 0.0), "inference_logging_queue_fill_ratio") == ratio


@pytest.mark.parametrize(
    ("before", "given_out", "after", "difference"),
    [
        pytest.param(58, 58, 58, 0, id="balanced"),
        pytest.param(50, 58, 66, 0, id="batches-under-way"),
        pytest.param(50, 58, 50, 8, id="eight-that-no-sink-took"),
        pytest.param(40, 58, 50, 8, id="eight-while-others-are-under-way"),
        pytest.param(60, 58, 66, -2, id="two-that-no-queue-gave"),
    ],
)
def test_the_books_show_what_queues_gave_out_and_no_sink_took_and_the_reverse(
    before: int, given_out: int, after: int, difference: int
) -> None:
    taken = [{"taken_from_queues": before}, {"written": given_out}, {"taken_from_queues": after}]
    assert shown([families.books({"fast": taken})], "inference_logging_books_difference_records") == difference


def test_the_nodes_memory_is_told_in_bytes(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       16384 kB\nDirty:              8 kB\nHugePages_Total:       0\n")
    told = list(families.node(meminfo))
    assert shown(told, "inference_logging_node_memory_bytes") == 16384 * 1024
    assert shown(told, "inference_logging_node_dirty_bytes") == 8 * 1024
    assert list(families.node(tmp_path / "absent")) == []
