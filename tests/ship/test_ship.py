"""The command `inference-logging ship`: real processes that are stopped and killed, and what arrives."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Logger, get_logger
from inference_logging.segments import read_records
from inference_logging.ship.offsets import Offsets
from tests.kit.command_line import run
from tests.kit.segment_files import lines, name, write
from tests.kit.servers import free_port
from tests.kit.signatures import Configure, Recording
from tests.kit.support import wait_until
from tests.ship.endpoint import Collector
from tests.ship.programs import installed

pytestmark = pytest.mark.servers

COMMAND = [str(Path(sys.executable).with_name("inference-logging")), "ship"]
NOWHERE = "otlp+http://127.0.0.1:1"
ASKED_TO_END_AT_ANY_INSTANT = """
import random, signal
from inference_logging.cli.ship import Stop

for _ in range(3000):
    with Stop([signal.SIGALRM]) as stop:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 3e-4))
        while not stop.wait(1e-5):
            pass
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start shippers of the segments in the test's directory; end them all."""
    started: list[subprocess.Popen[str]] = []

    def begin(*options: str, **parameters: object) -> subprocess.Popen[str]:
        given = {"directory": tmp_path / "segments", "ship_interval_s": 0.01, **parameters}
        variables = {f"INFERENCE_LOGGING_{key.upper()}": str(value) for key, value in given.items()}
        process = subprocess.Popen(
            [*COMMAND, *options], env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def scraped(port: int, expected: str) -> str:
    """Wait for the metrics to have `expected`, and return them."""

    def look() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                text: str = answer.read().decode()
        except OSError:
            return ""
        return text if expected in text else ""

    found: str = wait_until(look, f"{expected} in the metrics")
    return found


def test_what_servers_write_arrives_and_the_shipper_ends_after_the_listener(
    recording: Recording, start: Callable[..., subprocess.Popen[str]], collector: Collector, tmp_path: Path
) -> None:
    recorded = recording(directory=tmp_path / "segments")
    shipper = start("--to", collector.url, drain_deadline_s=60)
    for number in range(100):
        get_logger("test").info("before", number=number)
    wait_until(lambda: collector.requests, "the first record")
    shipper.send_signal(signal.SIGTERM)
    for number in range(100):
        get_logger("test").info("after", number=number)
    recorded.close()
    _, errors = shipper.communicate(timeout=180)
    assert shipper.returncode == 0, errors
    written = list(read_records(tmp_path / "segments"))
    assert len(collector.records()) == len(written)
    assert f"ended records={len(written)} lag_bytes=0" in errors


def test_a_shipper_that_is_killed_again_and_again_sends_every_record_and_a_batch_twice_at_most(
    configure: Configure, start: Callable[..., subprocess.Popen[str]], collector: Collector, tmp_path: Path
) -> None:
    config = configure(
        directory=tmp_path / "segments", rotate_bytes=65536, compress="zstd", compress_keep_segments=1, quota_bytes=0
    )
    dice, kills, batch = random.Random(7), 4, 20
    with Logger(config):
        for _ in range(kills):
            shipper = start("--to", collector.url, ship_batch_records=batch)
            goal = len(collector.requests) + dice.randint(1, batch)
            for number in range(500):
                get_logger("test").info("a record of some length", number=number)
            wait_until(lambda goal=goal: len(collector.requests) >= goal, f"{goal} batches")  # type: ignore[misc]
            shipper.kill()
            shipper.wait()
    assert run("verify", str(config.directory)).code == 0
    last = start("--to", collector.url, "--once")
    _, errors = last.communicate(timeout=180)
    assert last.returncode == 0, errors
    written = [(one["boot_id"], one["seq"]) for one in read_records(config.directory) if one["event_name"] == "log"]
    came = [(one["boot_id"], one["seq"]) for one in collector.records() if one["event_name"] == "log"]
    assert len(written) == 500 * kills
    assert set(came) == set(written)
    assert len(came) <= len(written) + batch * kills


def test_records_of_the_audit_lane_arrive_too_though_the_shipper_is_killed(
    open_: Callable[..., Logger], start: Callable[..., subprocess.Popen[str]], collector: Collector, tmp_path: Path
) -> None:
    logger = open_(directory=tmp_path / "segments")
    decided = logger.event("policy.decision", ["number"], lane="audit")
    for number in range(3):
        shipper = start("--to", collector.url, audit="on")
        decided(number)
        get_logger("test").info("beside it", number=number)
        wait_until(lambda goal=number: ("t", goal) in decisions(collector), "its record")  # type: ignore[misc]
        shipper.kill()
        shipper.wait()
    decided(3)
    logger.close()
    # As `verify` does, it looks for them below directory.
    done = run("ship", "--directory", str(tmp_path / "segments"), "--to", collector.url, "--once")
    assert done.code == 0, done
    assert run("verify", str(tmp_path / "segments")).code == 0
    written = [*read_records(tmp_path / "segments"), *read_records(tmp_path / "segments" / "audit")]
    assert set(map(key, collector.records())) == set(map(key, written))
    assert decisions(collector) == {("t", number) for number in range(4)}
    audit = {path.name for path in (tmp_path / "segments" / "audit").iterdir() if not path.is_symlink()}
    segments = {file for file in audit if file.endswith(".jsonl")}
    assert segments
    assert {file.removesuffix(".shipped-otlp") for file in audit if "shipped" in file} == segments


def decisions(collector: Collector) -> set[tuple[str, int]]:
    """Return service and number of the records of the audit lane that came."""
    found = [one for one in collector.records() if one["event_name"] == "policy.decision"]
    return {(one["resource"]["service.name"], one["number"]) for one in found}


def key(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return what sets a record apart from those of both lanes; the listener's own have no sequence."""
    return record["boot_id"], record["pid"], record["event_name"], record.get("seq")


def test_once_ends_though_servers_write_faster_than_it_ships(
    configure: Configure, start: Callable[..., subprocess.Popen[str]], collector: Collector, tmp_path: Path
) -> None:
    config, ended = configure(directory=tmp_path / "segments", flush_interval_s=0.01), threading.Event()

    def write_on() -> None:
        seen = 0
        while not ended.wait(0.001):
            came = len(collector.requests)
            for _ in range(2 * (came - seen)):
                get_logger("test").info("two for each that is shipped")
            seen = came

    with Logger(config) as logger:
        get_logger("test").info("before")
        logger.flush()
        writing = threading.Thread(target=write_on)
        writing.start()
        try:
            shipper = start("--to", collector.url, "--once", ship_batch_records=1)
            _, errors = shipper.communicate(timeout=180)
        finally:
            ended.set()
            writing.join()
    assert shipper.returncode == 0, errors
    assert "before" in collector.messages()


def test_without_an_audit_lane_no_directory_of_it_is_made(tmp_path: Path) -> None:
    assert run("ship", "--directory", str(tmp_path), "--to", NOWHERE, "--once").code == 0
    assert not (tmp_path / "audit").exists()


def test_a_signal_at_any_instant_of_a_pause_ends_it() -> None:
    subprocess.run([sys.executable, "-c", ASKED_TO_END_AT_ANY_INSTANT], check=True, timeout=120)


def test_within_another_program_its_signals_are_that_programs_again(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    assert run("ship", "--directory", str(tmp_path), "--to", NOWHERE, "--once").code == 0
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_directory_that_is_not_there_is_named_and_not_taken_for_all_shipped(tmp_path: Path) -> None:
    done = run("ship", "--directory", str(tmp_path / "lgos"), "--to", NOWHERE, "--once")
    assert done.code == 2
    assert f"{tmp_path / 'lgos'}: no such directory" in done.err


@pytest.mark.parametrize("with_audit", [False, True])
def test_a_shipper_waits_for_its_turn_and_once_does_not(
    start: Callable[..., subprocess.Popen[str]], collector: Collector, tmp_path: Path, with_audit: bool
) -> None:
    segments, audit = tmp_path / "segments", tmp_path / "audit"
    for directory in (segments, audit):
        directory.mkdir()
    write(segments / name(1), lines(1, 2))
    # The one who goes first has the audit lane only: who waits must let go of what it has until then.
    taken = Offsets(audit if with_audit else segments, "otlp")
    options = ("--to", collector.url)
    waiting = start(*options, audit="on", audit_directory=audit)
    assert waiting.stderr is not None
    assert "waits: ship_name='otlp': another shipper of this name runs" in waiting.stderr.readline()
    refused = start(*options, "--once", audit="on", audit_directory=audit)
    assert "another shipper of this name runs" in refused.communicate(timeout=180)[1]
    assert refused.returncode == 1
    taken.close()
    wait_until(lambda: len(collector.records()) == 2, "both records")
    stopped = start(*options, audit="on", audit_directory=audit)
    assert stopped.stderr is not None
    assert "waits: " in stopped.stderr.readline()
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait(180) == 0, "it had nothing to end"


def test_what_is_refused_once_is_in_the_exit_code(collector: Collector, tmp_path: Path) -> None:
    write(tmp_path / name(1), lines(1, 2) + b"no json\n")
    done = run("ship", "--directory", str(tmp_path), "--to", collector.url, "--once")
    assert done.code == 1
    assert "ended records=2 refused=1 lag_bytes=0" in done.err


def test_metrics_report_how_far_it_is(
    start: Callable[..., subprocess.Popen[str]], collector: Collector, tmp_path: Path
) -> None:
    (tmp_path / "segments").mkdir()
    write(tmp_path / "segments" / name(1), lines(1, 2, footer=False) + b"no json\n" + lines(header=False))
    port = free_port()
    options = ("--metrics-address", "127.0.0.1", "--metrics-port", str(port))
    start("--to", collector.url, *options)

    text = scraped(port, 'ship_records_total{ship_name="otlp"} 2.0')
    assert 'inference_logging_ship_refused_total{reason="corrupt",ship_name="otlp"} 1.0' in text
    assert 'inference_logging_ship_dead_letters_total{ship_name="otlp",state="kept"} 1.0' in text
    assert 'inference_logging_ship_dead_letters_total{ship_name="otlp",state="full"} 0.0' in text
    assert 'inference_logging_ship_bytes_total{ship_name="otlp"}' in text
    used = re.search(r'inference_logging_ship_cpu_seconds_total\{ship_name="otlp"\} (\S+)', text)
    assert used is not None
    assert float(used[1]) > 0
    text = scraped(port, 'inference_logging_ship_lag_bytes{ship_name="otlp"} 0.0')
    assert 'inference_logging_ship_lag_seconds{ship_name="otlp"} 0.0' in text


def test_each_thread_of_a_shipper_has_the_lowest_priority(
    start: Callable[..., subprocess.Popen[str]], collector: Collector, tmp_path: Path
) -> None:
    (tmp_path / "segments").mkdir()
    write(tmp_path / "segments" / name(1), lines(1, 2))
    port = free_port()
    shipper = start("--to", collector.url, "--metrics-address", "127.0.0.1", "--metrics-port", str(port))
    scraped(port, 'ship_records_total{ship_name="otlp"} 2.0')
    ionice, found = installed("ionice", "util-linux"), []
    for thread in Path(f"/proc/{shipper.pid}/task").iterdir():
        with contextlib.suppress(OSError):  # one that has answered a request ends
            # The nineteenth field of a line whose second one may have blanks.
            nice = (thread / "stat").read_text("utf-8").rpartition(")")[2].split()[16]
            shown = subprocess.run([ionice, "-p", thread.name], check=False, capture_output=True, text=True)
            if thread.exists():
                found.append((nice, shown.stdout))
    assert len(found) > 1
    assert set(found) == {("19", "best-effort: prio 7\n")}


def test_records_that_are_no_spans_are_counted_where_only_spans_are_asked_for(
    start: Callable[..., subprocess.Popen[str]], collector: Collector, tmp_path: Path
) -> None:
    (tmp_path / "segments").mkdir()
    write(tmp_path / "segments" / name(1), lines(1, 2))
    port = free_port()
    to = ("--to", f"{collector.url}?signal=traces")
    shipper = start(*to, "--metrics-address", "127.0.0.1", "--metrics-port", str(port))
    text = scraped(port, 'ship_left_out_total{ship_name="otlp"} 2.0')
    assert 'inference_logging_ship_records_total{ship_name="otlp"} 0.0' in text
    shipper.send_signal(signal.SIGTERM)
    _, errors = shipper.communicate(timeout=180)
    assert (shipper.returncode, collector.requests) == (0, [])
    assert "ended records=0 left_out=2 lag_bytes=0" in errors


def test_metrics_of_a_destination_that_is_down_show_the_lag_and_the_errors(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "segments").mkdir()
    path = write(tmp_path / "segments" / name(1), lines(1, 2))
    port = free_port()
    options = ("--metrics-address", "127.0.0.1", "--metrics-port", str(port))
    shipper = start("--to", f"otlp+http://127.0.0.1:{free_port()}", *options)

    text = scraped(port, "ship_errors_total{")
    assert 'error_type="ConnectError"' in text
    assert f'inference_logging_ship_lag_bytes{{ship_name="otlp"}} {float(path.stat().st_size)}' in text
    shipper.send_signal(signal.SIGTERM)
    shipper.send_signal(signal.SIGTERM)
    _, errors = shipper.communicate(timeout=180)
    assert shipper.returncode in (1, 130)
    assert "2 records wait: ConnectError" in errors


def test_what_is_wrong_is_reported_by_its_name(tmp_path: Path) -> None:
    nowhere = run("ship", "--directory", str(tmp_path))
    assert (nowhere.code, "ship_to=None: give --to" in nowhere.err) == (2, True)
    wrong = run("ship", "--directory", str(tmp_path), "--to", "ftp://a")
    assert (wrong.code, "ship_to='ftp://a'" in wrong.err) == (2, True)


@pytest.mark.parametrize("waits", [{"retention_waits_for": ("otlp",)}, {"ship_to": NOWHERE}])
def test_segments_of_an_outage_stay_until_they_are_shipped_and_then_go(
    configure: Configure, collector: Collector, tmp_path: Path, waits: dict[str, Any]
) -> None:
    config = configure(
        directory=tmp_path / "segments", rotate_bytes=4096, retention_s=0.001, flush_interval_s=0.01, **waits
    )
    with Logger(config) as logger:
        for number in range(200):
            get_logger("test").info("a record of some length", number=number)
            if number % 20 == 19:
                logger.flush()  # a segment ends between two batches
        stats = wait_until(
            lambda: logger.service.listener_stats() if len(list(config.directory.glob("*.jsonl"))) > 5 else None,
            "several segments",
        )
        assert stats["segments_removed"] == {"age": 0, "quota": 0, "unshipped": 0}
        done = run("ship", "--directory", str(config.directory), "--to", collector.url, "--once")
        assert done.code == 0, done
        wait_until(lambda: logger.service.listener_stats()["segments_removed"]["age"] > 5, "old segments to go")
        assert logger.service.listener_stats()["segments_removed"]["unshipped"] == 0
    logs = [one["attributes"]["number"] for one in collector.records() if one["event_name"] == "log"]
    assert set(logs) == set(range(200))
