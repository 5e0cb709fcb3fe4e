"""Processes whose queue does not fit into the directory for queues: nothing is refused in silence (P19)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference_logging import Config, Logger, get_logger
from inference_logging.record.health import Watch
from tests.kit.books import assert_books_balance
from tests.kit.child import in_child, join
from tests.kit.command_line import run
from tests.kit.signatures import Configure
from tests.kit.sinks import fill, small_file_system
from tests.kit.support import read_records, wait_until

pytestmark = pytest.mark.servers

QUEUE_BYTES = 1 << 20
LISTENERS_BYTES = 512 << 10
"""What a smaller queue leaves."""


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system with room for three queues."""
    with small_file_system(tmp_path / "shm", "4m") as place:
        yield place


@pytest.fixture
def config(configure: Configure, shared: Path) -> Config:
    """Return a configuration whose queues lie there."""
    return configure(queue_directory=shared / "queues", queue_bytes=QUEUE_BYTES, in_flight_slots=64)


def free(place: Path) -> int:
    """Return how many bytes are free there."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def log(text: str) -> bool:
    """Log, and return whether that was accepted."""
    accepted: bool = get_logger("room").warning(text)
    return accepted


def refused(config: Config) -> int:
    """Return how many records the segments report as refused for want of a queue, which is the only reason here."""
    reports = read_records(config.directory, "log.dropped")
    assert {reason for report in reports for reason in report["reasons"]} <= {"no_queue"}
    return sum(report["dropped"] for report in reports)


def test_a_child_without_room_says_so_counts_and_records_once_there_is_room(
    config: Config, shared: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Logger(config) as logger:
        assert log("parent")
        ballast = fill(shared, logger)

        def child() -> None:
            assert [log("refused") for _ in range(10)] == [False] * 10
            assert not logger.flush(), "nothing is accepted, so nothing is written"
            health = Watch(config, logger.service).look()
            assert health.state == "degraded"
            (reason,) = [reason for reason in health.reasons if reason.kind == "no_queue"]
            assert "No space left on device" in reason.text
            ballast.unlink()
            wait_until(lambda: log("child"), "the child to have a queue")
            assert Watch(config, logger.service).look().state != "degraded"
            logger.close()

        join(in_child(child))
        wait_until(lambda: refused(config) >= 10, "the refusals to be reported")
    assert {record["message"] for record in read_records(config.directory, "log")} == {"parent", "child"}
    said = capfd.readouterr().err
    assert len(re.findall("no queue can be made in .*: No space left on device", said)) == 1
    assert_books_balance(config)
    verified = run("verify", str(config.directory), "--queue-directory", str(config.resolved_queue_directory), "--json")
    assert json.loads(verified.out)["totals"]["dropped"]["no_queue"] == refused(config)


def test_refusals_of_a_child_that_dies_without_room_are_counted(config: Config, shared: Path) -> None:
    with Logger(config) as logger:
        assert log("parent")
        fill(shared, logger)
        join(in_child(lambda: [log("refused") for _ in range(7)]))
        wait_until(lambda: refused(config) == 7, "the refusals to be reported")
    assert_books_balance(config)


def test_a_lost_queue_without_room_for_another_is_said_and_replaced_later(
    config: Config, shared: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Logger(config) as logger:
        watch = Watch(config, logger.service)

        def kinds() -> set[str]:
            return {reason.kind for reason in watch.look().reasons}

        assert log("before")
        ballast = fill(shared, logger)
        shutil.rmtree(config.resolved_queue_directory)
        wait_until(lambda: "no_queue" in kinds(), "the failure to be reported")
        ballast.unlink()
        wait_until(lambda: not {"no_queue", "queue_missing"} & kinds(), "another queue")
        assert log("after")
    assert {record["message"] for record in read_records(config.directory, "log")} == {"before", "after"}
    assert capfd.readouterr().err.count("no queue can be made in") == 1


def test_an_audit_lane_without_room_is_reported(config: Config, shared: Path) -> None:
    config = config.model_copy(update={"audit": "on", "audit_queue_bytes": QUEUE_BYTES, "audit_overflow": "count"})
    with Logger(config) as logger:
        decision = logger.event("decision", ["by"], lane="audit")
        assert decision("parent")
        fill(shared, logger)

        def child() -> None:
            assert not log("child")
            assert not decision("child")
            watch = Watch(config, logger.service, audit=logger.audit_service)
            assert len([reason for reason in watch.look().reasons if "no_queue" in reason.kind]) == 2

        join(in_child(child))


def test_a_child_with_little_room_takes_a_smaller_queue_and_says_so(
    config: Config, shared: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Logger(config) as logger:
        assert log("parent")
        with fill(shared, logger).open("r+b") as ballast:
            ballast.truncate(ballast.seek(0, os.SEEK_END) - QUEUE_BYTES // 2 - (160 << 10) - LISTENERS_BYTES)

        def child() -> None:
            assert log("child")
            (own,) = [queue for queue in logger.service.queues() if queue["pid"] == os.getpid()]
            assert own["capacity_bytes"] == QUEUE_BYTES // 2
            assert free(shared) >= LISTENERS_BYTES
            logger.close()

        join(in_child(child))
    said = capfd.readouterr().err
    assert f"has {QUEUE_BYTES // 2} bytes instead of {QUEUE_BYTES}: No space left on device" in said
    assert_books_balance(config)


def test_a_queue_that_would_leave_no_room_for_a_listener_is_not_made(config: Config, shared: Path) -> None:
    """A listener that starts needs a queue of its own; without it nobody drains what fills the directory."""
    with Logger(config) as logger:
        assert log("parent")
        with fill(shared, logger).open("r+b") as ballast:
            ballast.truncate(ballast.seek(0, os.SEEK_END) - QUEUE_BYTES // 2 - (160 << 10))

        def child() -> None:
            assert not log("child")
            assert free(shared) >= LISTENERS_BYTES

        join(in_child(child))
        wait_until(lambda: refused(config) == 1, "the refusal to be reported")
    assert_books_balance(config)


WORKERS = """
import os, sys
from inference_logging import Config, Logger, get_logger
from tests.kit.support import wait_until
from tests.kit.child import in_child, join

log = get_logger("room").warning
with Logger(Config(directory=sys.argv[1])) as logger:
    assert log("parent")
    leave, left = os.pipe()

    def child():
        os.close(left)
        assert log("child")
        os.read(leave, 1)
        logger.close()

    workers = [in_child(child) for _ in range(8)]
    wait_until(lambda: len(logger.service.queues()) == 9, "nine queues")
    sys.stdout.write(" ".join(str(queue["capacity_bytes"]) for queue in logger.service.queues()))
    os.close(left)
    join(*workers)
"""


def test_the_shared_memory_of_a_container_has_room_for_eight_workers_and_their_parent(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs -o size=64m none /dev/shm && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", WORKERS, str(tmp_path)]
    if subprocess.run([*command[:5], "sh", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert [int(size) for size in done.stdout.split()] == [4 << 20] * 9
    assert done.stderr.count("instead of 16777216: a tenth of /dev/shm, which has 67108864 bytes") == 1
    assert len(read_records(tmp_path, "log")) == 9
