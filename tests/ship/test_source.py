"""What a shipper reads: everything, from where it stood, whatever becomes of the files; what was planned, as it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from inference_logging.errors import OpenError
from inference_logging.ship import Shipper, Source, Sources
from inference_logging.ship.line import Line, Sent
from inference_logging.ship.source import Batch
from tests.kit.segment_files import Writer, lines, name, write
from tests.ship.shipper_parts import EVERYTHING, Destination, Limits, Stop, numbers, ship, source


def marks(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.shipped-*"))


def test_records_come_in_order_without_the_segments_own_lines_and_what_is_sealed_is_marked(tmp_path: Path) -> None:
    for number in (1, 2):
        write(tmp_path / name(number, number), lines(number * 10, number * 10 + 1))
    with source(tmp_path) as opened:
        assert ship(opened) == [10, 11, 20, 21]
        assert ship(opened) == []
        assert opened.lag_bytes() == 0
    assert marks(tmp_path) == [f"{name(1, 1)}.shipped-test", f"{name(2, 2)}.shipped-test"]


@pytest.mark.parametrize("most_records", [1, 2, 3])
def test_batches_have_a_limit_and_lose_nothing(tmp_path: Path, most_records: int) -> None:
    write(tmp_path / name(1), lines(*range(7)))
    write(tmp_path / name(2, 1), lines(*range(7, 9)))
    with source(tmp_path) as opened:
        assert len(opened.read(most_records, 1 << 40).lines) == most_records
        assert len(opened.read(1_000_000, 1).lines) == 1, "a record may go above the limit of bytes"
        assert ship(opened, most_records) == list(range(9))


@pytest.mark.parametrize("suffix", ["", ".zst"])
def test_the_next_shipper_goes_on_after_what_was_acknowledged(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / (name(1) + suffix), lines(*range(5)))
    with source(tmp_path) as opened:
        opened.acknowledge(opened.read(2, 1 << 40))
        assert numbers(opened.read(2, 1 << 40)) == [2, 3], "read, and not acknowledged"
    with source(tmp_path) as opened:
        assert ship(opened, 2) == [2, 3, 4]


@pytest.mark.parametrize("suffix", ["", ".zst"])
def test_what_is_not_acknowledged_comes_again(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / (name(1) + suffix), lines(1, 2))
    with source(tmp_path) as opened:
        assert [numbers(opened.read(*EVERYTHING)) for _ in range(2)] == [[1, 2], [1, 2]]


@pytest.mark.parametrize("suffix", ["", ".zst"])
def test_a_line_has_the_resource_of_its_segments_header_wherever_a_shipper_begins(tmp_path: Path, suffix: str) -> None:
    resources = [{"service.name": "s", "k8s.pod.name": f"pod-{at}"} for at in range(2)]
    for at, resource in enumerate(resources):
        write(tmp_path / (name(at + 1, at) + suffix), lines(at, at, resource=resource))
    with source(tmp_path) as opened:
        opened.acknowledge(opened.read(1, 1 << 40))
    with source(tmp_path) as opened:
        batch = opened.read(*EVERYTHING)
    assert [line.resource for line in batch.lines] == [resources[0], resources[1], resources[1]]
    assert batch.lines[1].resource is batch.lines[2].resource


@pytest.mark.parametrize(
    "first",
    [
        lines(footer=False),
        lines(footer=False, resource=["k8s.pod.name"]),
        lines(footer=False, resource={"k8s.pod.name": 1}),
        lines(7, header=False, footer=False),
        b"no json\n",
    ],
    ids=["none", "a list", "a number", "no header", "no line"],
)
def test_a_header_that_says_nothing_leaves_the_name_of_the_service(tmp_path: Path, first: bytes) -> None:
    write(tmp_path / name(1), first + lines(1, header=False))
    with source(tmp_path) as opened:
        found = [line.resource for line in opened.read(*EVERYTHING).lines]
    assert found == [{"service.name": "svc"}] * len(found)
    assert found


def test_a_live_segment_is_shipped_as_it_grows_and_marked_once_it_is_sealed(tmp_path: Path) -> None:
    live = Writer(tmp_path / name(1))
    with source(tmp_path) as opened:
        live.append(lines(1, footer=False))()
        assert ship(opened) == [1]
        assert opened.has_writers()
        live.append(b'{"event_name":"log","n"')()
        assert ship(opened) == [], "a line that is being written is no record yet"
        assert opened.lag_bytes() == len(b'{"event_name":"log","n"')
        live.append(b":2}\n")()
        assert ship(opened) == [2]
        assert marks(tmp_path) == []
        live.append(lines(header=False))()
        live.die()
        assert ship(opened) == []
        assert (marks(tmp_path), opened.has_writers()) == ([f"{name(1)}.shipped-test"], False)


def test_once_leaves_what_is_written_from_then_on_to_the_next(tmp_path: Path) -> None:
    write(tmp_path / name(1, 1), lines(1))
    live, died = Writer(tmp_path / name(2, 2)), Writer(tmp_path / name(3, 3))
    live.append(lines(2, 3, footer=False))()
    died.append(lines(4, footer=False))()
    with source(tmp_path, once=True) as opened:
        assert numbers(opened.read(1, 1 << 40)) == [1]
        live.append(lines(5, header=False))()
        write(tmp_path / name(4, 4), lines(6))
        died.append(lines(7, header=False, footer=False))()
        died.die()
        assert ship(opened, 1) == [1, 2, 3, 4, 7], "of one that nobody writes any more, all"
        assert ship(opened) == []
    assert marks(tmp_path) == [f"{name(1, 1)}.shipped-test", f"{name(3, 3)}.shipped-test"]
    live.die()
    with source(tmp_path, once=True) as opened:
        assert ship(opened) == [5, 6]


def test_a_segment_whose_listener_died_is_marked_though_it_has_no_footer(tmp_path: Path) -> None:
    live = Writer(tmp_path / name(1))
    live.append(lines(1, footer=False) + b'{"event_name":"lo')()
    with source(tmp_path) as opened:
        assert ship(opened) == [1]
        live.die()
        ship(opened)
    assert marks(tmp_path) == [f"{name(1)}.shipped-test"]


def test_a_segment_that_is_compressed_meanwhile_is_read_on(tmp_path: Path) -> None:
    path = write(tmp_path / name(1), lines(*range(6)))
    with source(tmp_path) as opened:
        opened.acknowledge(opened.read(2, 1 << 40))
        write(tmp_path / (name(1) + ".zst"), path.read_bytes())
        path.unlink()
        opened.acknowledge(opened.read(2, 1 << 40))
    with source(tmp_path) as opened:
        assert opened.lag_bytes() == (tmp_path / (name(1) + ".zst")).stat().st_size
        assert ship(opened) == [4, 5]
        assert opened.lag_bytes() == 0
    assert marks(tmp_path) == [f"{name(1)}.shipped-test"]


def test_a_segment_that_is_removed_while_it_is_open_is_read_to_its_end_and_leaves_no_mark(tmp_path: Path) -> None:
    path = write(tmp_path / name(1), lines(*range(4)))
    with source(tmp_path) as opened:
        opened.acknowledge(opened.read(1, 1 << 40))
        path.unlink()
        assert ship(opened) == [1, 2, 3]
        assert (marks(tmp_path), opened.lag_bytes()) == ([], 0)
    write(tmp_path / name(2), lines(9))
    with source(tmp_path) as opened:
        assert ship(opened) == [9]
    saved = json.loads((tmp_path / ".test.offsets").read_bytes())["segments"]
    assert name(1) not in saved, "offsets of segments that are gone do not pile up"


def test_a_segment_that_was_cut_off_from_outside_is_read_from_its_beginning(tmp_path: Path) -> None:
    live = Writer(tmp_path / name(1))
    live.append(lines(1, 2, 3, footer=False))()
    with source(tmp_path) as opened:
        assert ship(opened) == [1, 2, 3]
        live.file.truncate(0)
        live.append(lines(4, footer=False))()
        assert ship(opened) == [4]
    live.die()


def test_what_is_no_record_is_reported_by_place_and_the_rest_goes_on(tmp_path: Path) -> None:
    content = lines(1, footer=False) + b"no json\n[1]\n" + lines(2, header=False)
    write(tmp_path / name(1), content)
    write(tmp_path / (name(2, 1) + ".zst"), lines(3, 4))
    damaged = tmp_path / (name(2, 1) + ".zst")
    damaged.write_bytes(damaged.read_bytes()[:-6])
    with source(tmp_path) as opened:
        batch = opened.read(*EVERYTHING)
        assert numbers(batch)[:2] == [1, 2]
        assert len(batch.corrupt) == 3
        assert f"byte {content.index(b'no json')}: no record" in batch.corrupt[0].detail
        assert (batch.corrupt[0].raw, batch.corrupt[2].raw) == (b"no json", b"")
        assert "cut off" in batch.corrupt[2].detail
        opened.acknowledge(batch)
        assert ship(opened) == []


def test_two_shippers_of_different_names_do_not_know_of_each_other(tmp_path: Path) -> None:
    write(tmp_path / name(1), lines(1))
    with source(tmp_path, "one") as one, source(tmp_path, "two") as two:
        assert (ship(one), ship(two)) == ([1], [1])
    assert len(marks(tmp_path)) == 2


def test_a_second_shipper_of_a_name_is_refused_while_the_first_runs(tmp_path: Path) -> None:
    with source(tmp_path), pytest.raises(OpenError, match="ship_name='test': another shipper of this name runs"):
        Source(tmp_path, "test")
    with source(tmp_path):
        pass


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"version":2,"segments":{}}', '{"version":1,"segments":{"a":"b"}}']
)
def test_offsets_that_cannot_be_read_are_reported_and_not_begun_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / ".test.offsets").write_text(content)
    for _ in range(2):
        with pytest.raises(OpenError, match=r"test\.offsets: cannot be read: .*; without it everything"):
            Source(tmp_path, "test")


def test_a_directory_that_is_not_there_yet_is_made(tmp_path: Path) -> None:
    with source(tmp_path / "logs") as opened:
        assert ship(opened) == []
        write(tmp_path / "logs" / name(1), lines(1))
        assert ship(opened) == [1]


def test_several_directories_come_in_turn_each_with_its_own_offsets_and_marks(tmp_path: Path) -> None:
    directories = [tmp_path / "segments", tmp_path / "audit"]
    for directory, first in zip(directories, (10, 20), strict=True):
        directory.mkdir()
        write(directory / name(1), lines(*range(first, first + 3)))

    def both() -> Sources:
        return Sources([Source(directory, "test") for directory in directories])

    opened = both()
    read = []
    for _ in range(3):
        batch = opened.read(1, 1 << 40)
        opened.acknowledge(batch)
        read += numbers(batch)
    opened.close()
    assert sorted(read) == [10, 20, 21], "neither waits for the other to have nothing new"
    opened = both()
    assert opened.lag_bytes() == sum(Source.lag_bytes(one) for one in opened._sources) > 0
    rest = []
    for _ in range(3):
        batch = opened.read(*EVERYTHING)
        opened.acknowledge(batch)
        rest += numbers(batch)
    assert (sorted(rest), opened.has_writers()) == ([11, 12, 22], False)
    live = Writer(directories[1] / name(2))
    live.append(lines(30, footer=False))()
    assert (numbers(opened.read(*EVERYTHING)), opened.has_writers()) == ([30], True)
    live.die()
    opened.close()
    assert [marks(directory) for directory in directories] == [[f"{name(1)}.shipped-test"]] * 2


def test_offsets_that_one_directory_cannot_save_do_not_make_another_send_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for lane, number in (("audit", 1), ("segments", 2)):
        (tmp_path / lane).mkdir()
        write(tmp_path / lane / name(number), lines(number))
        made.append(Source(tmp_path / lane, "test"))
    opened = Sources(made)
    batch = opened.read(*EVERYTHING)
    monkeypatch.setattr(made[0]._offsets, "save", raising)
    with pytest.raises(OSError, match="No space left"):
        opened.acknowledge(batch)
    assert opened.read(*EVERYTHING).lines == []
    opened.close()
    assert [marks(tmp_path / lane) for lane in ("audit", "segments")] == [[], [f"{name(2)}.shipped-test"]]


def raising() -> None:
    raise OSError(28, "No space left on device")


def test_the_suffix_of_a_lane_is_not_of_the_services_name(tmp_path: Path) -> None:
    write(tmp_path / name(1, prefix="svc-audit"), lines(1))
    opened = Source(tmp_path, "test", suffix="-audit")
    assert [line.service_name for line in opened.read(*EVERYTHING).lines] == ["svc"]
    opened.close()


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
    for one in opened:
        one.close()


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
