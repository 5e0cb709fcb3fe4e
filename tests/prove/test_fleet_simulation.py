"""The fleet simulation finds what is missing, and its page says what the kept result says."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import pytest

from loadtests.compare import arrivals
from loadtests.fleet import fleet_page
from loadtests.fleet.fleet_count import Book, Counted, count, key
from loadtests.fleet.fleet_pods import Settings, shared
from loadtests.fleet.fleet_processes import Child
from tests.ship.endpoint import Collector, collector

__all__ = ["collector"]  # a fixture

REQUESTS = 5
Arrived = list[tuple[str, int, int | None]]


def run(name: str, *arguments: str | Path, folder: Path) -> Child:
    return Child(sys.executable, "-m", f"loadtests.fleet.{name}", *arguments, said=folder / f"{name}.said")


def done(child: Child) -> None:
    child.read_all()
    child.wait_well()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of three pods that have lived: two are deployed anew, one is killed and recovered."""
    folder = tmp_path_factory.mktemp("fleet")
    arrivals.generate(folder / "trace.csv", count=100)
    settings = Settings(str(folder), 3, REQUESTS, 0.5, str(folder / "trace.csv"))
    zones = [run("fleet_pods", json.dumps(settings._asdict()), *pods, folder=folder) for pods in (("0", "1"), ("2",))]
    try:
        for zone in zones:
            assert zone.hear() == "ready"
        kept, lost = zones
        book = Book(settings.book, 3)
        book.begin_s = time.monotonic()
        while book.read(2, 0).served < REQUESTS:
            time.sleep(0.01)
        lost.kill()
        with contextlib.suppress(ProcessLookupError):
            while True:  # it goes a moment after its parent
                os.kill(book.read(2, 0).pid, 0)
        kept.say("deploy 0")
        assert kept.hear() == "deployed"
        while min(book.read(pod, 1).served for pod in (0, 1)) < REQUESTS:
            time.sleep(0.01)
        kept.say("end")
        assert kept.hear() == "ended"
        kept.wait_well()
    finally:
        for zone in zones:
            zone.kill()
    done(run("fleet_pods", json.dumps(settings._asdict()), "recover", "2", folder=folder))
    return settings


@pytest.fixture
def arrived(fleet: Settings, collector: Collector, tmp_path: Path) -> Arrived:
    """Ship everything; return the key of each record that arrives."""
    each = fleet.config(0).directory.parent.parent / "{pod}" / "logs"
    ship = (sys.executable, "-m", "inference_logging.cli.main", "ship", "--to", collector.url, "--once")
    done(Child(*ship, "--each", each, "--state", tmp_path / "state", said=tmp_path / "ship.said"))
    return [key(record) for record in collector.records()]


def counted(fleet: Settings, arrived: Arrived) -> Counted:
    return count(Book(fleet.book, fleet.pods).processes(), arrived)


@pytest.mark.servers
def test_all_that_a_fleet_accepted_arrives_though_processes_are_replaced_and_killed(
    fleet: Settings, arrived: Arrived
) -> None:
    found = counted(fleet, arrived)
    assert found.missing == []
    assert found.arrived == found.accepted > fleet.pods * REQUESTS * 2
    assert len(Book(fleet.book, fleet.pods).processes()) == 5, "two of the pods have a second process"


@pytest.mark.servers
@pytest.mark.parametrize("pod", [0, 2])
def test_a_record_that_is_removed_is_named(fleet: Settings, arrived: Arrived, pod: int) -> None:
    note = Book(fleet.book, fleet.pods).read(pod, 0)
    removed = (f"{note.boot_id:016x}", note.pid, note.accepted - 1)
    arrived.remove(removed)
    assert counted(fleet, arrived).missing == [removed]


def test_copies_and_what_a_killed_process_did_not_note_are_no_gaps() -> None:
    arrived = [("a", 1, 0), ("a", 1, 1), ("a", 1, 1), ("a", 1, 2), ("a", 1, None)]
    found = count({("a", 1): 2}, arrived)
    assert found == Counted(accepted=2, arrived=2, copies=1, beyond=1, others=1, missing=[])
    with pytest.raises(ValueError, match="the book does not have"):
        count({("a", 2): 2}, arrived)


def test_pods_share_a_trace_in_compressed_time(tmp_path: Path) -> None:
    arrivals.generate(tmp_path / "trace.csv", count=1000)
    trace = arrivals.read(tmp_path / "trace.csv")
    pods = [shared(trace, pod, 10, 5.0) for pod in (0, 1)]
    assert all(len(own) == 10 and own[0].at_s <= own[-1].at_s <= 5.0 for own in pods)
    assert pods[0] != pods[1]


def test_the_page_says_what_the_kept_result_says() -> None:
    page, part = fleet_page.PAGE.read_text(encoding="utf-8"), fleet_page.newest()
    assert fleet_page.updated(page, part) == page, "python -m loadtests.fleet.fleet_page writes it again"
    runs = part.result["runs"]
    assert [(run["pods"], run["kafka"]["missing"], run["verified"]) for run in runs] == [
        (pods, 0, True) for pods in (1, 10, 100, 1000)
    ]


def test_lag_is_the_time_in_which_the_fleet_accepts_what_waits_and_a_cost_is_for_a_record() -> None:
    shippers = {"records": {"own": 100, "following": 0}, "cpu_s": {"own": 0.2, "following": 0.0}}
    run = {"kafka": {"accepted": 100}, "curve": [(1.0, 10, 12), (2.0, 40, 20), (3.0, 60, 0)], "shippers": shippers}
    assert fleet_page.worst_lag_s({"seconds": 50.0}, run, 0.0, 3.0) == 10.0
    assert fleet_page.worst_lag_s({"seconds": 50.0}, run, 0.0, 2.0) == 0.0
    assert [fleet_page.cost_us(run, kind) for kind in fleet_page.SHIPPERS] == [2000.0, None]


def test_a_child_has_worked_since_its_start_was_noted(tmp_path: Path) -> None:
    busy = "import time; print(flush=True)\nwhile time.process_time() < 0.5: pass"
    child = Child(sys.executable, "-c", busy, said=tmp_path / "said")
    child.hear()
    child.note_start()
    noted = child.start_cpu_s
    child.read_all()
    child.note_start()
    child.wait_well()
    assert noted == child.start_cpu_s
    assert 0.0 < child.work_cpu_s < child.cpu_s
