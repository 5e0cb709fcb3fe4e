"""The rounds of a shipper: nothing is acknowledged before it has arrived, and nothing is left out, whatever fails."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference_logging.ship import Shipper, Source, Sources
from inference_logging.ship.letters import DeadLetters, Letter
from inference_logging.ship.line import Line, Sent
from inference_logging.ship.source import Batch
from tests.kit.segment_files import Writer, lines, name, write
from tests.ship.shipper_parts import (
    Clock,
    Destination,
    Limits,
    Stop,
    down,
    half,
    refuse_first,
    refuse_more_than_there_are,
    take_first,
)


@dataclass
class Running:
    """A shipper on a clock of the test, and what it reported."""

    shipper: Shipper
    destination: Destination
    reported: list[str]
    clock: Clock


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    opened: list[Shipper] = []

    def begin(*answers: Callable[[Sequence[Line]], Sent]) -> Running:
        destination, reported, clock = Destination(list(answers)), list[str](), Clock()
        source = Source(tmp_path, "test")
        shipper = Shipper(source, destination, Limits(), report=reported.append, clock=clock, sleep=clock.sleep)
        opened.append(shipper)
        return Running(shipper, destination, reported, clock)

    yield begin
    for shipper in opened:
        shipper.close()


def test_once_ships_what_is_there_and_ends(tmp_path: Path, running: Callable[..., Running]) -> None:
    content = lines(1, 2, 3)
    write(tmp_path / name(1), content)
    one = running()
    assert one.shipper.run(Stop(), once=True)
    assert (one.destination.got, one.shipper.records) == ([1, 2, 3], 3)
    assert one.shipper.bytes == len(lines(1, 2, 3, header=False, footer=False))
    assert (one.shipper.lag_bytes(), one.shipper.lag_s()) == (0, 0.0)


def test_a_destination_that_is_down_is_asked_after_longer_and_longer_pauses_and_reported_once(
    tmp_path: Path, running: Callable[..., Running]
) -> None:
    write(tmp_path / name(1), lines(1, 2, 3))
    one, stop = running(*[down] * 12), Stop(at_wait=100)
    assert one.shipper.run(stop, once=True)
    assert one.destination.got == [1, 2, 3]
    assert stop.waited[:5] == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert stop.waited[9:12] == [30.0] * 3, "no longer than ship_retry_s"
    assert one.shipper.errors == {"ConnectError": 12}
    assert one.reported == ["2 records wait: nobody there"]


def test_only_what_failed_is_sent_again_when_the_destination_says(
    tmp_path: Path, running: Callable[..., Running]
) -> None:
    write(tmp_path / name(1), lines(1, 2, 3))
    one, stop = running(half, half), Stop(at_wait=100)
    assert one.shipper.run(stop, once=True)
    assert (one.destination.got, one.shipper.records) == ([1, 2, 3], 3)
    assert stop.waited[0] == 7.0


def test_what_is_refused_is_counted_and_reported_and_the_rest_goes_on(
    tmp_path: Path, running: Callable[..., Running]
) -> None:
    write(tmp_path / name(1), lines(1, 2, 3, footer=False) + b"no json\n" + lines(4, header=False))
    one = running(refuse_first)
    assert one.shipper.run(Stop(), once=True)
    assert one.shipper.records == 3
    assert one.shipper.refused == {"413": 1, "corrupt": 1}
    assert len(one.reported) == 1, "reported once a minute"


def letters(directory: Path) -> list[tuple[int, str, str]]:
    """Return the offsets, reasons and lines of the dead letters, and check the rest of them."""
    found = [json.loads(line) for line in (directory / ".test.dead-letters").read_bytes().splitlines()]
    for one in found:
        assert (one["directory"], one["segment"]) == (str(directory), name(1))
        assert one["detail"]
    return [(one["offset"], one["reason"], one["line"]) for one in found]


def test_a_record_that_cannot_be_shipped_is_a_dead_letter_and_all_others_arrive(
    tmp_path: Path, running: Callable[..., Running]
) -> None:
    content = lines(1, 2, 3, 4, footer=False) + b"no json\n" + lines(5, 6, header=False)
    write(tmp_path / name(1), content)
    one = running(lambda sent: Sent().refuse(sent[0], "413", "too large"))
    one.destination.poisons = {2, 3, 4, 6}
    assert one.shipper.run(Stop(), once=True)
    assert one.destination.got[1:] == [5]
    assert one.shipper.refused == {"413": 1, "unconvertible": 4, "corrupt": 1}
    assert (one.shipper.letters["kept"], one.shipper.letters["full"]) == (6, 0)
    assert (one.shipper.records, one.shipper.lag_bytes()) == (1, 0)
    found = letters(tmp_path)
    assert {(content.index(line.encode()), line) for _, _, line in found} == {(at, line) for at, _, line in found}
    assert sorted(reason for _, reason, _ in found) == ["413", "corrupt", *["unconvertible"] * 4]
    assert (tmp_path / ".test.dead-letters").stat().st_mode & 0o777 == 0o600
    first = f"{name(1)}, byte {content.index(lines(2, header=False, footer=False))}: RecursionError: record 2"
    assert one.reported == [f"records are given up: 1 unconvertible, 1 413; the first is {first}"]


def test_an_error_that_no_record_is_the_cause_of_is_a_failure_and_loses_nothing(
    tmp_path: Path, running: Callable[..., Running]
) -> None:
    def raises(_: Sequence[Line]) -> Sent:
        raise TypeError("a server's odd answer")

    write(tmp_path / name(1), lines(1, 2, 3))
    one = running(raises, raises)
    assert one.shipper.run(Stop(at_wait=100), once=True)
    assert one.destination.got == [1, 2, 3]
    assert (one.shipper.errors, one.shipper.refused) == ({"TypeError": 2}, {})
    assert one.reported == ["2 records wait: TypeError: a server's odd answer"]


def test_a_file_of_dead_letters_that_is_full_or_fails_is_counted_and_reported_and_nothing_stops(
    tmp_path: Path, running: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / name(1), lines(*range(9)))
    one = running()
    one.destination.poisons = {0, 1, 2, 3, 4, 5}
    monkeypatch.setattr("inference_logging.ship.letters.MOST_BYTES", 700)
    assert one.shipper.run(Stop(at_wait=100), once=True)
    kept = len(letters(tmp_path))
    assert 0 < kept < 6
    assert one.shipper.letters == Counter(kept=kept, full=6 - kept)
    assert one.reported[-1] == "the file of dead letters is full: further ones are only counted"

    (tmp_path / ".test.dead-letters").unlink()
    (tmp_path / ".test.dead-letters").mkdir()
    write(tmp_path / name(2), lines(*range(9)))
    assert one.shipper.run(Stop(at_wait=100), once=True)
    assert (one.shipper.letters["failed"], one.shipper.errors) == (6, {"letters": 3})
    assert one.destination.got == [6, 7, 8] * 2


def test_a_letter_that_was_cut_off_stays_apart_from_the_next_one(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path / "letters")
    letters.path.write_bytes(b'{"cut')
    assert letters.add(tmp_path, [Letter("segment", 7, b"\xff{", "413", "too large")]) == 1
    cut, whole = letters.path.read_bytes().splitlines()
    assert cut == b'{"cut'
    assert json.loads(whole)["line"] == "\N{REPLACEMENT CHARACTER}{"


def test_what_is_not_asked_for_is_counted_apart_and_does_not_come_again(
    tmp_path: Path, running: Callable[..., Running]
) -> None:
    write(tmp_path / name(1), lines(1, 2, 3))
    one = running(take_first)
    assert one.shipper.run(Stop(), once=True)
    assert (one.shipper.records, one.shipper.left_out, one.shipper.lag_bytes()) == (2, 1, 0)
    assert (one.shipper.refused, one.reported) == ({}, [])


def test_counts_do_not_fall_where_a_record_is_refused_by_one_signal_and_fails_at_the_other(
    tmp_path: Path, running: Callable[..., Running]
) -> None:
    write(tmp_path / name(1), lines(1, 2))
    one = running(refuse_more_than_there_are)
    assert one.shipper.run(Stop(at_wait=100), once=True)
    assert (one.shipper.records, one.shipper.refused) == (1, {"400": 2})
    assert one.shipper.letters == Counter(unnamed=2)


def test_what_comes_while_a_batch_is_sent_that_is_not_full_waits_to_go_together(
    tmp_path: Path, running: Callable[..., Running]
) -> None:
    live = Writer(tmp_path / name(1))
    live.append(lines(1, 2, 3, footer=False))()

    def slow(sent: Sequence[Line]) -> Sent:
        live.append(lines(sent[-1].record["n"] + 10, header=False, footer=False))()
        return Sent()

    one, at_the_pause = running(slow, slow, slow), list[int]()
    stop = Stop(then=lambda: at_the_pause.extend(one.destination.got))
    one.shipper.run(stop)
    assert at_the_pause == [1, 2, 3, 12, 22], "a full batch is followed at once; after the other, 32 waits"
    assert stop.waited[0] == 1.0
    live.die()


def test_a_stop_ships_what_a_listener_still_writes_until_it_has_ended(
    tmp_path: Path, running: Callable[..., Running]
) -> None:
    live = Writer(tmp_path / name(1))
    live.append(lines(1, footer=False))()
    one = running()

    def sleep(seconds: float) -> None:
        one.clock.now_s += seconds
        live.append(lines(2, header=False))()
        live.die()

    one.shipper._pauses._sleep = sleep
    assert one.shipper.run(Stop(), drain_s=60.0)
    assert one.destination.got == [1, 2]


def test_what_a_listener_writes_last_right_after_a_look_at_its_segment_is_shipped(
    tmp_path: Path, running: Callable[..., Running]
) -> None:
    live = Writer(tmp_path / name(1))
    live.append(lines(1, footer=False))()
    one, reads = running(), list[None]()
    source = one.shipper._source
    read = source.read

    def read_and_then_end(*limits: int) -> Batch:
        batch = read(*limits)
        reads.append(None)
        if len(reads) == 3:
            live.append(lines(2, header=False))()
            live.die()
        return batch

    source.read = read_and_then_end  # type: ignore[method-assign, assignment]
    assert one.shipper.run(Stop(), drain_s=60.0)
    assert one.destination.got == [1, 2]


def test_a_stop_ends_at_the_deadline_though_a_listener_goes_on(tmp_path: Path, running: Callable[..., Running]) -> None:
    live = Writer(tmp_path / name(1))
    live.append(lines(1, footer=False))()
    one = running()
    assert one.shipper.run(Stop(), drain_s=5.0)
    assert 5.0 <= one.clock.now_s < 6.0
    live.die()


def test_a_stop_ends_at_the_deadline_though_more_comes_than_can_be_sent_and_reports_so(
    tmp_path: Path, running: Callable[..., Running]
) -> None:
    live = Writer(tmp_path / name(1))
    live.append(lines(0, footer=False))()
    one = running()

    def slow(_: Sequence[Line]) -> Sent:
        one.clock.sleep(1.0)
        live.append(lines(1, 2, 3, header=False, footer=False))()
        return Sent()

    one.destination.answers += [slow] * 100
    assert not one.shipper.run(Stop(at_wait=0), drain_s=5.0)
    assert 5.0 <= one.clock.now_s < 7.0
    live.die()


def test_a_stop_while_the_destination_is_down_ends_at_the_deadline_and_the_next_shipper_sends_it(
    tmp_path: Path, running: Callable[..., Running]
) -> None:
    write(tmp_path / name(1), lines(1, 2, 3))
    one = running(*[down] * 1000)
    assert not one.shipper.run(Stop(), drain_s=5.0)
    assert 5.0 <= one.clock.now_s < 6.0
    assert one.shipper.lag_bytes() == (tmp_path / name(1)).stat().st_size
    one.shipper.close()
    other = running()
    assert other.shipper.run(Stop(), once=True)
    assert other.destination.got == [1, 2, 3]


def test_offsets_that_cannot_be_saved_are_reported_and_saved_later(
    tmp_path: Path, running: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / name(1), lines(1, 2))
    one = running()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("inference_logging.ship.offsets.Offsets.save", full)
        assert one.shipper.run(Stop(at_wait=1, then=patch.undo), once=True, drain_s=5.0)
    assert one.shipper.errors == {"offsets": 1}
    assert "cannot be saved" in one.reported[0]
    assert one.destination.got == [1, 2]
    assert (tmp_path / f"{name(1)}.shipped-test").exists()


class Lane:
    """A directory whose segments grow, are sealed and compressed."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.number = 0
        self._begin()

    def _begin(self) -> None:
        self.number += 1
        self.live = Writer(self.directory / name(self.number, self.number))
        self.live.append(lines(footer=False))()

    def append(self, *numbers: int) -> None:
        self.live.append(lines(*numbers, header=False, footer=False))()

    def seal(self) -> None:
        self.live.append(lines(header=False))()
        self.live.die()
        self._begin()

    def compress(self) -> None:
        for path in sorted(self.directory.glob("*.jsonl"))[:-1]:
            write(path.with_name(f"{path.name}.zst"), path.read_bytes())
            path.unlink()


class World:
    """Two lanes, with shippers that fail and die."""

    def __init__(self, directory: Path) -> None:
        self.lanes = [Lane(directory / "segments"), Lane(directory / "audit")]
        self.made = 0
        self.got: list[int] = []

    def append(self, lane: int, count: int) -> None:
        self.lanes[lane].append(*range(self.made, self.made + count))
        self.made += count

    def seal(self, lane: int) -> None:
        self.lanes[lane].seal()

    def compress(self, lane: int) -> None:
        self.lanes[lane].compress()

    def _sources(self, *, once: bool = False) -> Sources:
        return Sources([Source(lane.directory, "test", once=once) for lane in self.lanes])

    def ship(self, answers: list[Callable[[Sequence[Line]], Sent]], batches: int, *, dies: bool, once: bool) -> None:
        """Ship some batches, between which records are written; one that dies has sent the last and saved nothing."""
        destination = Destination(answers)
        source, clock = self._sources(once=once), Clock()
        shipper = Shipper(source, destination, Limits(), report=lambda _: None, clock=clock, sleep=clock.sleep)
        for batch in range(batches):
            if dies and batch == batches - 1:
                source.acknowledge = lambda batch: None  # type: ignore[method-assign]
            shipper._deliver(source.read(2, 1 << 20), Stop(at_wait=1000), 0.0)
            self.append(batch % 2, 1)
        self.got += destination.got
        shipper.close()

    def ship_the_rest(self) -> None:
        for lane in self.lanes:
            lane.live.die()
        destination = Destination()
        shipper = Shipper(self._sources(), destination, Limits(), report=lambda _: None)
        assert shipper.run(Stop(), once=True)
        shipper.close()
        self.got += destination.got


ANSWERS = st.lists(st.sampled_from([lambda _: Sent(), down, half]), max_size=4)
LANE = st.integers(0, 1)
STEPS = st.one_of(
    st.tuples(st.just("append"), LANE, st.integers(1, 5)),
    st.tuples(st.just("seal"), LANE),
    st.tuples(st.just("compress"), LANE),
    st.tuples(st.just("ship"), ANSWERS, st.integers(1, 3), st.booleans(), st.booleans()),
)


@pytest.mark.servers
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=15))
def test_every_record_arrives_whatever_fails_and_dies_in_whatever_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]
) -> None:
    world = World(tmp_path_factory.mktemp("ship"))
    for step, *how in steps:
        if step == "ship":
            answers, batches, dies, once = how
            world.ship(list(answers), batches, dies=dies, once=once)
        else:
            getattr(world, step)(*how)
    world.ship_the_rest()
    assert set(world.got) == set(range(world.made))
    for lane in world.lanes:
        assert len(list(lane.directory.glob("*.shipped-test"))) == lane.number
