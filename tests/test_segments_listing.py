"""A directory that is looked at again and again: it is listed once for each change."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from inference_logging.read.segments.listing import Listing
from inference_logging.segments import Segment, segments
from tests.segment_lines import lines, name, write

HOUR_NS = 3600 * 10**9


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the directories that were really listed."""
    looked: list[Path] = []

    def counted(directory: Path) -> list[Segment]:
        looked.append(directory)
        return segments(directory)

    monkeypatch.setattr("inference_logging.read.segments.listing.segments", counted)
    return looked


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look an hour after every change."""
    now = time.time_ns
    monkeypatch.setattr("inference_logging.read.segments.listing.time.time_ns", lambda: now() + HOUR_NS)


def numbers(found: Listing) -> list[int]:
    return [segment.number for segment in found.segments()]


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize(
    "change",
    [
        lambda directory: write(directory / name(2), lines(2)),
        lambda directory: (directory / name(1)).rename(directory / name(2)),
        lambda directory: (directory / name(1)).unlink(),
        lambda directory: directory.chmod(0o700),
    ],
    ids=["created", "renamed", "removed", "permissions"],
)
def test_it_is_listed_again_after_a_change_alone(
    tmp_path: Path, listed: list[Path], change: Callable[[Path], object]
) -> None:
    write(tmp_path / name(1), lines(1))
    found = Listing(tmp_path)
    assert [numbers(found) for _ in range(3)] == [[1]] * 3
    assert len(listed) == 1
    wait_for_the_next_tick(tmp_path)
    change(tmp_path)
    assert numbers(found) == numbers(Listing(tmp_path))
    assert len(listed) == 3


def test_a_change_just_before_may_hide_another(tmp_path: Path, listed: list[Path]) -> None:
    write(tmp_path / name(1), lines(1))
    found = Listing(tmp_path)
    assert [numbers(found) for _ in range(3)] == [[1]] * 3
    assert len(listed) == 3


@pytest.mark.usefixtures("later")
def test_another_directory_of_the_same_name_is_listed(tmp_path: Path) -> None:
    place = tmp_path / "segments"
    found = Listing(place)
    with pytest.raises(FileNotFoundError):
        found.segments()
    for number in (1, 2):
        place.mkdir()
        write(place / name(number), lines(number))
        assert numbers(found) == [number]
        place.rename(tmp_path / f"gone-{number}")


def wait_for_the_next_tick(directory: Path) -> None:
    """Wait until a change of ``directory`` would bear another time."""
    before, trial = directory.stat().st_ctime_ns, directory.parent / "tick"
    while True:
        trial.touch()
        if trial.stat().st_ctime_ns != before:
            break
        os.sched_yield()
    trial.unlink()
