"""The load tests measure what they say: traces are played as written, books are kept, missing records are found."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtests.compare import arrivals, compare, demo, measure
from loadtests.compare.arrivals import Arrival
from loadtests.fleet import fleet_page
from loadtests.fleet.fleet_pods import Book, Counted, Settings, count, key, shared
from loadtests.fleet.fleet_simulation import EVENTS, Cluster, Run
from loadtests.harness import Child
from loadtests.turns.bench_turns_rows import Block, Case
from tests.ship.endpoint import Collector, collector

ROOT = Path(__file__).parents[2]
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:50.9951690,396,109\r\n"
    "2023-11-16 18:15:51.2224670,879,55"
)


def a_load(requests: int, seconds: float = 1.0, cpu_s: float = 0.5) -> measure.Load:
    return measure.Load(requests, 0, seconds, 1.0, 2.0, cpu_s)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.servers
def test_a_trace_in_the_azure_format_starts_at_zero_and_keeps_its_gaps(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(AZURE.encode())
    read = arrivals.read(path)
    assert [arrival.at_s for arrival in read] == pytest.approx([0, 4.314579, 4.541877], abs=1e-6)
    assert [(arrival.context_tokens, arrival.generated_tokens) for arrival in read] == [
        (374, 44),
        (396, 109),
        (879, 55),
    ]


@pytest.mark.servers
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("TIMESTAMP,Tokens\n2023-11-16 18:15:46,1", "the first line must be"),
        (AZURE.replace("396", "many"), "line 3: not an arrival"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no arrivals"),
    ],
)
def test_another_format_is_refused_by_file_and_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}.*{reason}"):
        arrivals.read(path)


@pytest.mark.servers
def test_fitting_scales_time_by_one_factor_and_caps_the_answers() -> None:
    trace = [Arrival(at_s, 10, 500) for at_s in (0.0, 1.0, 1.5, 9.0, 10.0, 50.0)]
    fitted = arrivals.fit(trace, rate=2.5, seconds=2.0, max_tokens=256)
    assert [arrival.at_s for arrival in fitted] == pytest.approx([0, 0.2, 0.3, 1.8, 2.0])
    assert {arrival.generated_tokens for arrival in fitted} == {256}


@pytest.mark.servers
def test_ratios_are_taken_within_a_round() -> None:
    none, ours = [a_load(1000), a_load(100)], [a_load(900), a_load(99)]
    row = compare.Row.of("ours", ours, none, measure.Books(1100, None))
    assert (row.rps_ratio.value, row.rps_ratio.low, row.rps_ratio.high) == pytest.approx((0.9439, 0.9, 0.99), rel=1e-3)
    assert row.cpu_ratio.value == pytest.approx(1 / 0.9439, rel=1e-3)


@pytest.mark.servers
def test_a_missing_record_unbalances_the_books() -> None:
    assert measure.Books(3, 3).balanced
    assert measure.Books(3, None).balanced
    assert not measure.Books(3, 2).balanced
    assert not measure.Books(3, 4).balanced
    assert measure.Books(3, 2).after(measure.Books(2, 2)) == measure.Books(5, 4)


@pytest.mark.servers
@pytest.mark.parametrize("mode", ["none", "uvicorn-access", "stdlib-file", "stdlib-queue", "ours"])
def test_every_mode_serves_the_same_and_records_each_request_once(mode: str, tmp_path: Path) -> None:
    with measure.serving(mode, tmp_path / "logs", min(os.sched_getaffinity(0))) as server:
        assert server.request("/trivial", times=30) == b"ok"
        assert server.request("/stream64", times=5).count(b"data: ") == 64
        answer = json.loads(server.request("/v1/completions", {"max_tokens": 3}))
        assert answer["usage"]["completion_tokens"] == 3
        assert server.cpu_s() > 0
        books = server.stop()
    assert books == measure.Books(36, None if mode == "none" else 36)


@pytest.mark.servers
def test_a_directory_that_is_not_from_a_load_test_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(measure.ServerError, match="not empty"), measure.serving("none", tmp_path, 0):
        pass
    assert (tmp_path / "precious").exists()


@pytest.mark.servers
def test_an_open_loop_plays_every_arrival_and_reports_chunks(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    arrivals.generate(trace, count=30)
    with measure.serving("ours", tmp_path / "logs", min(os.sched_getaffinity(0))) as server:
        options = [f"--trace={trace}", "--trace-seconds=2", "--trace-rate=10", "--pace=1000", "--max-tokens=20"]
        result = measure.locust(server.url, options)["requests"]
        books = server.stop()
    expected = [min(20, arrival.generated_tokens) for arrival in arrivals.read(trace)[:20]]
    assert (result["chat"]["count"], result["chat"]["failures"]) == (20, 0)
    assert result["chat: time to first chunk"]["count"] == 20
    assert result["chat: gap between chunks"]["count"] == sum(expected)  # the last one to the usage
    assert books == measure.Books(20, 20)


@pytest.mark.servers
def test_compare_writes_a_report_and_finds_every_record(tmp_path: Path) -> None:
    options = ["--modes", "ours", "--scenarios", "trivial", "chat", "--rounds", "1", "--seconds", "8", "--users", "4"]
    done = run([sys.executable, "-m", "loadtests.compare.compare", *options, "--out", str(tmp_path)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("records arrived = requests accepted") == 2
    assert (tmp_path / "report.html").read_text(encoding="utf-8").count("<figure ") == 8


@pytest.mark.servers
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_the_demo_shows_cost_records_health_books_and_places(tmp_path: Path) -> None:
    # The fewest turns of an interval: on a busy machine those of the demo take a minute.
    code = "import sys; from loadtests.compare import demo; sys.argv[0] = 'demo.py'; demo.LEAST_BLOCKS = 6; demo.main()"
    options = ["--cost-seconds", "1", "--seconds", "3", "--rate", "10", "--out", str(tmp_path)]
    done = run([sys.executable, "-c", code, *options])
    assert done.returncode == 0, done.stdout + done.stderr
    for text in ("JSON POST  ", "the control", '"event_name": "request"', '"event_name": "log"', '"status": "ok"'):
        assert text in done.stdout
    for text in ("records = requests: ", "segment ", "newest "):
        assert f"\n{text}" in done.stdout


@pytest.mark.servers
def test_a_cost_that_is_there_is_found_by_turns() -> None:
    blocks: list[Block] = [(100_000, 110_000, 100_000)] * 40
    name, unlogged, added, ratio, control = demo.cost(Case("a", 10), blocks)
    assert (name, unlogged, added) == ("a", "10.0 µs", "1.00 ± 0.00 µs")
    assert (ratio, control) == ("1.1000 (1.1000…1.1000)", "1.0000 (1.0000…1.0000)")


__all__ = ["collector"]  # a fixture

REQUESTS = 5
Arrived = list[tuple[str, int, int | None]]


def part(name: str, *arguments: str | Path, folder: Path) -> Child:
    return Child(sys.executable, "-m", f"loadtests.fleet.{name}", *arguments, said=folder / f"{name}.said")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of three pods that have lived: two are deployed anew, one is killed and recovered."""
    folder = tmp_path_factory.mktemp("fleet")
    arrivals.generate(folder / "trace.csv", count=100)
    settings = Settings(str(folder), 3, REQUESTS, 0.5, str(folder / "trace.csv"))
    zones = [part("fleet_pods", json.dumps(settings._asdict()), *pods, folder=folder) for pods in (("0", "1"), ("2",))]
    try:
        for zone in zones:
            zone.hear("ready")
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
        kept.hear("deployed")
        while min(book.read(pod, 1).served for pod in (0, 1)) < REQUESTS:
            time.sleep(0.01)
        kept.say("end")
        kept.hear("ended")
        kept.end()
    finally:
        for zone in zones:
            zone.kill()
    part("fleet_pods", json.dumps(settings._asdict()), "recover", "2", folder=folder).end()
    return settings


@pytest.fixture
def arrived(fleet: Settings, collector: Collector, tmp_path: Path) -> Arrived:
    """Ship everything; return the key of each record that arrives."""
    each = fleet.config(0).directory.parent.parent / "{pod}" / "logs"
    ship = (sys.executable, "-m", "inference_logging.cli.main", "ship", "--to", collector.url, "--once")
    Child(*ship, "--each", each, "--state", tmp_path / "state", said=tmp_path / "ship.said").end()
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


class Zones(Cluster):
    """A collector of the test in the place of Kafka: brokers die, and nobody misses them."""

    def __init__(self, kept: Collector) -> None:
        self._kept = kept
        self.brokers = [types.SimpleNamespace(kill=lambda: None, start=lambda: None)] * 3  # type: ignore[list-item]

    def make(self, topic: str) -> str:
        return self._kept.url

    def records(self, topic: str) -> int:
        return len(self._kept.records())

    def read(self, topic: str) -> Iterator[dict[str, Any]]:
        return iter(self._kept.records())


@pytest.mark.servers
def test_a_fleet_whose_zone_is_lost_and_whose_pods_are_replaced_misses_nothing(
    collector: Collector, tmp_path: Path
) -> None:
    arrivals.generate(tmp_path / "trace.csv", count=100)
    settings = Settings(str(tmp_path / "fleet"), 3, REQUESTS, 1.0, str(tmp_path / "trace.csv"))
    found = Run(tmp_path / "fleet", settings, Zones(collector)).simulate()
    assert found["kafka"]["missing"] == 0
    assert found["kafka"]["arrived"] == found["kafka"]["accepted"] > 0
    assert found["verified"]
    assert found["processes"] == 5, "two of the pods have a second process"
    assert {*EVENTS, "pods ended", "shipped", "lost zone shipped"} == set(found["events"])


def test_the_page_says_what_the_kept_result_says() -> None:
    page, part = fleet_page.PAGE.read_text(encoding="utf-8"), fleet_page.newest()
    assert fleet_page.updated(page, part) == page, "python -m loadtests.fleet.fleet_page writes it again"
    runs = part.result["runs"]
    assert [(simulated["pods"], simulated["kafka"]["missing"], simulated["verified"]) for simulated in runs] == [
        (pods, 0, True) for pods in (1, 10, 100, 1000)
    ]


def test_lag_is_the_time_in_which_the_fleet_accepts_what_waits_and_a_cost_is_for_a_record() -> None:
    shippers = {"records": {"own": 100, "following": 0}, "cpu_s": {"own": 0.2, "following": 0.0}}
    kept = {"kafka": {"accepted": 100}, "curve": [(1.0, 10, 12), (2.0, 40, 20), (3.0, 60, 0)], "shippers": shippers}
    assert fleet_page.worst_lag_s({"seconds": 50.0}, kept, 0.0, 3.0) == 10.0
    assert fleet_page.worst_lag_s({"seconds": 50.0}, kept, 0.0, 2.0) == 0.0
    assert [fleet_page.cost_us(kept, kind) for kind in fleet_page.SHIPPERS] == [2000.0, None]


def test_a_child_has_worked_since_its_start_was_noted(tmp_path: Path) -> None:
    busy = "import time; print(flush=True)\nwhile time.process_time() < 0.5: pass"
    child = Child(sys.executable, "-c", busy, said=tmp_path / "said")
    child.hear("")
    child.note_start()
    noted = child.start_cpu_s
    child.end()
    child.note_start()
    assert noted == child.start_cpu_s
    assert 0.0 < child.work_cpu_s < child.cpu_s
