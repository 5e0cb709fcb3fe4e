"""How cost grows: what is measured is there with all its records, and each sentence says what its figures prove."""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

import pytest

from loadtests.cost import growth as growth_module
from loadtests.cost.growth import QUANTITIES, series_of
from loadtests.cost.growth_calls import PROCESSES, RECORD_BYTES, THREADS
from loadtests.cost.growth_quantity import Place, Quantity, Sample, take_turns

pytestmark = pytest.mark.servers


def test_every_quantity_is_measured_with_its_control_and_every_record_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tmp_path / "growth.json"
    monkeypatch.setattr(sys, "argv", ["growth.py", "--quick", "--json", str(result)])
    growth_module.main()
    output = capsys.readouterr().out
    found = json.loads(result.read_text(encoding="utf-8"))
    assert found["quick"]
    assert [series["name"] for series in found["growth"]] == ["processes", "record-bytes", "streams", "threads"]
    for quantity, series in zip(QUANTITIES, found["growth"], strict=True):
        assert [point["x"] for point in series["points"]] == list(quantity.quick_places)
        for point in series["points"]:
            assert 0 < point["low"] <= point["value"] <= point["high"]
            assert point["control"]["low"] > 0
        assert series["accepted"] == series["arrived"] > 0
        assert f"All {series['accepted']:,} accepted records arrived." in series["sentence"]
        assert f"{series['title']}: {series['sentence']}\n" in output
    assert [path.name for path in tmp_path.iterdir()] == ["growth.json"], "segments are left"


def samples(quantity: Quantity, added: float, control: float = 1.0, lost: int = 0) -> dict[int, list[Sample]]:
    """Return what 7 rounds found: the last place's figures are so many times the first one's, with noise of 1 %."""
    noise = random.Random(1)
    found: dict[int, list[Sample]] = {}
    places = quantity.places
    for place in (places[0], places[-1]):
        times = (1.0, 1.0) if place == places[0] else (added, control)
        found[place] = []
        for _ in range(7):
            base = 50 * times[1] * noise.gauss(1, 0.01)
            logged = base + 40 * times[0] * noise.gauss(1, 0.01)
            found[place].append(Sample(logged, base, 1000, 1000 - lost))
    return found


def test_what_does_not_grow_is_said_not_to_grow() -> None:
    series = series_of(PROCESSES, samples(PROCESSES, 1.0))
    assert "it does not grow, as far as this run knows." in series["sentence"]
    assert series["growth"] is not None
    assert series["growth"]["low"] < 1 < series["growth"]["high"]


def test_what_grows_with_the_control_is_said_to_grow_no_more_than_that() -> None:
    sentence = series_of(PROCESSES, samples(PROCESSES, 1.2, 1.2))["sentence"]
    assert "it grows no more than the same work without logging, as far as this run knows." in sentence


def test_what_grows_by_itself_is_said_to_with_its_slope() -> None:
    series = series_of(RECORD_BYTES, samples(RECORD_BYTES, 100.0))
    assert series["sentence"].startswith(
        "From 100 B to 64 KiB of text in a record, what logging adds to a call goes from"
    )
    assert series["growth"] is not None
    assert series["growth"]["value"] == pytest.approx(100, rel=0.05)
    slope = re.search(r", ([0-9.]+) ns for each further KiB\.", series["sentence"])
    assert slope is not None
    assert float(slope[1]) == pytest.approx(40 * 99 / 63.9, rel=0.05)


def test_what_falls_is_said_to_fall() -> None:
    assert "it falls." in series_of(THREADS, samples(THREADS, 0.5))["sentence"]


def test_where_logging_took_no_longer_than_the_control_nothing_is_claimed() -> None:
    found = samples(THREADS, 1.0)
    found[THREADS.places[0]][2] = found[THREADS.places[0]][2]._replace(logged_ns=1.0)
    series = series_of(THREADS, found)
    assert series["growth"] is None
    assert "not measured, since in some round the work with logging took no longer than without." in series["sentence"]


def test_records_that_did_not_arrive_are_said() -> None:
    sentence = series_of(THREADS, samples(THREADS, 1.0, lost=1))["sentence"]
    assert "Of 14,000 accepted records 13,986 arrived." in sentence


def test_a_refused_record_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segments, queues = tmp_path / "segments", tmp_path / "queues"
    small = Place.config
    monkeypatch.setattr(Place, "config", lambda self, **_settings: small(self, max_record_bytes=16384))
    with pytest.raises(RuntimeError, match="calls were made, but 0 records accepted"):
        RECORD_BYTES.measure(Place(segments, queues), 65536, True)


def test_both_works_are_done_equally_often_and_settled_between() -> None:
    done: list[str] = []
    take_turns(lambda: done.append("logged"), lambda: done.append("control"), lambda: done.append("|"), 3)
    assert "".join(done) == "control|logged|logged|control|control|logged|logged|control|"
