"""Several processes: each has a queue of its own, and no record is lost or doubled, whichever way the process began."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

import pytest

from inference_logging import Config, Logger
from tests.kit.child import RECORDS, assert_unbroken, in_child, join, log_many
from tests.kit.signatures import Configure
from tests.kit.support import Recorded, read_records, wait_until

pytestmark = pytest.mark.servers


def assert_complete(directory: Path, processes: int, records: int = RECORDS) -> None:
    """Check that each of ``processes`` has all its records exactly once, under its own boot id."""
    found = read_records(directory, "log")
    assert len({(record["boot_id"], record["seq"]) for record in found}) == len(found) == processes * records
    assert {record["attributes"]["of"] == record["pid"] for record in found} == {True}
    by_boot = Counter(record["boot_id"] for record in found)
    assert by_boot == dict.fromkeys(by_boot, records)
    assert len(by_boot) == processes
    for boot in by_boot:
        own = [record for record in found if record["boot_id"] == boot]
        assert (
            [record["seq"] for record in own] == [record["attributes"]["n"] for record in own] == list(range(records))
        )


def drained(recorded: Recorded, processes: int, records: int = RECORDS) -> Path:
    """Wait until the records of all processes are written."""
    directory = recorded.config.directory

    def arrived() -> bool:
        recorded.logger.flush()
        return len(read_records(directory, "log")) >= processes * records

    wait_until(arrived, f"{processes} × {records} records")
    return directory


def test_a_child_forked_before_its_parents_first_record_logs_too(recorded: Recorded) -> None:
    join(in_child(log_many))
    assert_complete(drained(recorded, 1), 1)


def test_events_registered_before_the_fork_work_in_the_child(recorded: Recorded) -> None:
    emit = recorded.logger.event("step", ["n", "of"])

    def child() -> None:
        assert all(emit(number, os.getpid()) for number in range(RECORDS))
        late = recorded.logger.event("late", ["n"])
        assert late(1)

    join(in_child(child))
    emit(0, os.getpid())

    def complete() -> bool:
        recorded.logger.flush()
        return len(read_records(recorded.config.directory)) == RECORDS + 2

    wait_until(complete, "all records")
    records = read_records(recorded.config.directory)
    assert Counter(record["event_name"] for record in records) == {"step": RECORDS + 1, "late": 1}
    assert all(record["of"] == record["pid"] for record in records if record["event_name"] == "step")


def test_a_child_that_drains_itself_ends_with_an_empty_queue(recorded: Recorded) -> None:
    def child() -> None:
        log_many()
        assert recorded.logger.close()

    join(in_child(child))
    assert_complete(drained(recorded, 1), 1)


def test_a_child_outlives_its_parent_and_takes_over_the_listening(configure: Configure) -> None:
    config = configure()
    reading, writing = os.pipe()
    grandchild_done, report = os.pipe()

    def parent() -> None:
        Logger(config)
        log_many()

        def child() -> None:
            os.read(reading, 1)
            log_many()
            assert Logger.shared(config).close()
            os.write(report, b"x")

        in_child(child)

    pid = in_child(parent)
    join(pid)
    os.write(writing, b"x")
    assert os.read(grandchild_done, 1) == b"x"
    assert_complete(config.directory, 2)
    for descriptor in (reading, writing, grandchild_done, report):
        os.close(descriptor)


def test_a_killed_child_loses_nothing_that_was_accepted(recorded: Recorded) -> None:
    reading, writing = os.pipe()

    def child() -> NoReturn:
        log_many()
        os.write(writing, b"x")
        while True:
            signal.pause()

    pid = in_child(child)
    assert os.read(reading, 1) == b"x"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert_complete(drained(recorded, 1), 1)
    wait_until(
        lambda: len(list(recorded.config.resolved_queue_directory.glob("*.queue"))) == 1, "the queue to be removed"
    )
    os.close(reading)
    os.close(writing)


def log_until_killed(config: Config, report: int) -> NoReturn:
    """Listen, write to ``report`` once this process does, and log on."""
    logger = Logger(config)
    wait_until(lambda: logger.stats()["listener"]["leader_pid"] == os.getpid(), "this process to listen")
    log_many()
    os.write(report, b"x")
    while True:
        log_many(10)


def test_a_killed_listener_is_replaced_and_every_accepted_record_arrives_once(configure: Configure) -> None:
    config = configure()
    started, report = os.pipe()
    pid = in_child(lambda: log_until_killed(config, report))
    assert os.read(started, 1) == b"x"
    with Logger(config) as logger:
        log_many()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        wait_until(lambda: logger.stats()["listener"]["leader_pid"] == os.getpid(), "the survivor to listen")
        while logger.backlog_records():
            assert logger.flush()
        found = assert_unbroken(config.directory)
        assert found[logger.stats()["boot_id"]] == RECORDS
        assert len(found) == 2
    os.close(started)
    os.close(report)


def test_listeners_killed_at_any_moment_lose_and_double_nothing(configure: Configure) -> None:
    # Each writes all the time, so some die between writing a batch and taking it out of the queues.
    config = configure(flush_records=1, flush_interval_s=0.01)
    started, report = os.pipe()
    for _ in range(20):
        pid = in_child(lambda: log_until_killed(config, report))
        assert os.read(started, 1) == b"x"
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with Logger(config) as logger:
        while logger.backlog_records():
            assert logger.flush()
    found = assert_unbroken(config.directory)
    assert len(found) == 20
    assert min(found.values()) >= RECORDS
    os.close(started)
    os.close(report)


def spawned(directory: str, queues: str) -> None:
    with Logger(Config(directory=Path(directory), queue_directory=Path(queues), queue_bytes=1 << 20)):
        log_many()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_children_lose_nothing(recorded: Recorded, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    log_many()
    if method == "fork":
        children = [context.Process(target=log_many) for _ in range(3)]
    else:
        where = (str(recorded.config.directory), str(recorded.config.resolved_queue_directory))
        children = [context.Process(target=spawned, args=where) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert_complete(drained(recorded, 4), 4)


@pytest.mark.parametrize("ending", ["pass", "sys.exit(0)", "raise SystemExit(0)", "assert logger.close()"])
def test_an_interpreter_that_ends_drains_its_queue(configure: Configure, ending: str) -> None:
    config = configure()
    script = f"""
import sys
from pathlib import Path
from inference_logging import Config, Logger, get_logger
logger = Logger(Config(directory=Path({str(config.directory)!r}), queue_directory=Path({str(config.queue_directory)!r}),
                       flush_interval_s=60, flush_records=1000000))
for number in range({RECORDS}):
    get_logger("script").info("n", n=number)
{ending}
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert [record["attributes"]["n"] for record in read_records(config.directory)] == list(range(RECORDS))
    assert not list(config.resolved_queue_directory.glob("*.queue"))
