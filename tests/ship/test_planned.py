"""A batch that was planned is read again as it was, so that its destination can know it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from inference_logging.ship import Shipper, Source, Sources
from inference_logging.ship.line import Line, Sent
from inference_logging.ship.source import Batch
from tests.kit.live_segments import Writer
from tests.kit.segment_files import lines, name, write
from tests.ship.shipper_parts import Destination, Limits, Stop
from tests.ship.sources import numbers

EVERYTHING = (1_000_000, 1 << 40)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Source]]:
    """Open the source of the next shipper; the one before is gone without a word."""
    opened: list[Source] = []

    def next_one(*, repeats: bool = True) -> Source:
        if opened:
            opened.pop().close()
        opened.append(Source(tmp_path, "test", repeats=repeats))
        return opened[-1]

    yield next_one
    for source in opened:
        source.close()


def places(batch: Batch) -> list[tuple[str, int]]:
    return [line.place for line in batch.lines]


@pytest.mark.parametrize("becomes", ["longer", "sealed", "compressed"])
def test_the_next_shipper_reads_it_as_it_was_whatever_became_of_the_segments(
    tmp_path: Path, begin: Callable[..., Source], becomes: str
) -> None:
    write(tmp_path / name(1), lines(1, 2))
    live = Writer(tmp_path / name(2))
    live.append(lines(3, 4, footer=False))()
    source = begin()
    planned = source.read(*EVERYTHING)
    source.plan(planned)
    live.append(lines(5, header=False, footer=becomes != "longer"))()
    if becomes != "longer":
        live.die()
    if becomes == "compressed":
        content = (tmp_path / name(2)).read_bytes()
        (tmp_path / name(2)).unlink()
        write(tmp_path / f"{name(2)}.zst", content)
    write(tmp_path / name(3), lines(6))
    source = begin()
    again = source.read(1, 1)
    assert places(again) == places(planned), "more than the limits allow now"
    assert numbers(again) == [1, 2, 3, 4]
    source.acknowledge(again)
    rest: list[int] = []
    while (batch := source.read(*EVERYTHING)).stands:
        source.plan(batch)
        source.acknowledge(batch)
        rest += numbers(batch)
    assert rest == [5, 6]
    live.die()
    marked = {path.name for path in tmp_path.glob("*.shipped-test")}
    expected = {f"{name(1)}.shipped-test", f"{name(3)}.shipped-test"}
    assert marked - {f"{name(2)}.shipped-test"} == expected
    assert (f"{name(2)}.shipped-test" in marked) == (becomes != "longer")


def test_a_segment_of_which_more_is_left_is_not_marked_with_it(tmp_path: Path, begin: Callable[..., Source]) -> None:
    write(tmp_path / f"{name(1)}.zst", lines(1, 2, 3))
    source = begin()
    source.plan(source.read(2, 1 << 40))
    source = begin()
    batch = source.read(*EVERYTHING)
    assert numbers(batch) == [1, 2]
    source.acknowledge(batch)
    assert not list(tmp_path.glob("*.shipped-test"))
    assert numbers(source.read(*EVERYTHING)) == [3]


def test_what_is_left_of_it_comes_where_a_segment_is_removed(tmp_path: Path, begin: Callable[..., Source]) -> None:
    for number in (1, 2):
        write(tmp_path / name(number, number), lines(number))
    source = begin()
    source.plan(source.read(*EVERYTHING))
    (tmp_path / name(1, 1)).unlink()
    assert numbers(begin().read(*EVERYTHING)) == [2]
    (tmp_path / name(2, 2)).unlink()
    write(tmp_path / name(3, 3), lines(3))
    assert numbers(begin().read(*EVERYTHING)) == [3], "nothing is left of it"


def test_a_shipper_that_needs_no_plan_saves_none(tmp_path: Path, begin: Callable[..., Source]) -> None:
    write(tmp_path / name(1), lines(1, 2))
    source = begin(repeats=False)
    source.plan(source.read(1, 1 << 40))
    assert not (tmp_path / ".test.offsets").exists()
    assert numbers(begin(repeats=False).read(*EVERYTHING)) == [1, 2]


class Sending:
    """Keeps what it gets; the first shipper is killed then."""

    def __init__(self, *, kills: bool) -> None:
        self.batches: list[list[int]] = []
        self._kills = kills

    def send(self, sent: Sequence[Line]) -> Sent:
        self.batches.append([line.record["n"] for line in sent])
        if self._kills:
            raise KeyboardInterrupt
        return Sent()

    def convert(self, line: Line) -> bytes:
        return line.raw

    def close(self) -> None:
        """Do nothing."""


def test_a_shipper_plans_before_it_sends(tmp_path: Path) -> None:
    write(tmp_path / name(1), lines(1, 2, 3))
    killed, other = Sending(kills=True), Sending(kills=False)
    shipper = Shipper(Sources([Source(tmp_path, "test", repeats=True)]), killed, Limits())
    with pytest.raises(KeyboardInterrupt):
        shipper.run(Stop(), once=True)
    shipper.close()
    limits = Limits(ship_batch_records=100)
    shipper = Shipper(Sources([Source(tmp_path, "test", repeats=True)]), other, limits)
    assert shipper.run(Stop(), once=True)
    shipper.close()
    assert (killed.batches, other.batches) == ([[1, 2]], [[1, 2], [3]])


def test_a_plan_that_cannot_be_saved_is_reported_and_the_batch_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / name(1), lines(1))

    def full(_source: Source, _batch: Batch) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Source, "plan", full)
    destination, reported = Destination(), list[str]()
    shipper = Shipper(Source(tmp_path, "test", repeats=True), destination, Limits(), report=reported.append)
    assert shipper.run(Stop(), once=True)
    shipper.close()
    assert (destination.got, shipper.errors) == ([1], {"offsets": 1})
    assert "No space left" in reported[0]
