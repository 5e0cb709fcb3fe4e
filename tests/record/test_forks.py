"""Forks at awkward moments: while threads emit, in the middle of a request, under a parent that dies.

Children that log in the usual ways are in test_processes.py, and killed ones in tests/crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import os
import select
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, MutableMapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, Logger, get_logger
from tests.kit.child import RECORDS, assert_unbroken, drain, in_child, join, log_many, thread_names
from tests.kit.signatures import Configure, Receive, Recording, Send
from tests.kit.support import Client, Recorded, http_scope, read_records, replying, wait_until

pytestmark = pytest.mark.servers

FORKS = 10


@contextlib.contextmanager
def emitting(threads: int) -> Iterator[Counter[int]]:
    """Let threads log all the time; count what was accepted of each."""
    ending, accepted = threading.Event(), Counter[int]()

    def emit(thread: int) -> None:
        log = get_logger("thread")
        while not ending.is_set():
            if log.warning("thread", thread=thread, n=accepted[thread], of=os.getpid()):
                accepted[thread] += 1
            if accepted[thread] % 50 == 0:
                ending.wait(0.005)  # all records are read back

    started = [threading.Thread(target=emit, args=(thread,)) for thread in range(threads)]
    for thread in started:
        thread.start()
    try:
        yield accepted
    finally:
        ending.set()
        for thread in started:
            thread.join()


def test_children_forked_while_other_threads_emit_and_these_threads_lose_and_double_nothing(recorded: Recorded) -> None:
    with emitting(4) as accepted:
        for _ in range(FORKS):
            join(in_child(log_many))
    drain(recorded.logger)
    found = assert_unbroken(recorded.config.directory)
    own = recorded.logger.stats()["boot_id"]
    assert found.pop(own) == accepted.total()
    assert list(found.values()) == [RECORDS] * FORKS
    records = [record for record in read_records(recorded.config.directory, "log") if record["boot_id"] == own]
    for thread, count in accepted.items():
        numbers = [record["attributes"]["n"] for record in records if record["attributes"]["thread"] == thread]
        assert numbers == list(range(count))


def test_children_that_end_at_once_without_a_record_leave_nothing_and_take_nothing(recorded: Recorded) -> None:
    log_many()
    assert recorded.logger.flush()
    queues = sorted(recorded.config.resolved_queue_directory.iterdir())
    for _ in range(FORKS):
        join(in_child(lambda: None))
    assert sorted(recorded.config.resolved_queue_directory.iterdir()) == queues
    log_many()
    drain(recorded.logger)
    assert [record["seq"] for record in read_records(recorded.config.directory, "log")] == list(range(2 * RECORDS))


def test_a_generation_after_the_other_has_a_queue_of_its_own_also_where_one_in_between_never_logs(
    recorded: Recorded,
) -> None:
    log_many()

    def silent_child() -> None:
        join(in_child(grandchild))

    def grandchild() -> None:
        log_many()
        join(in_child(log_many))

    join(in_child(silent_child))
    drain(recorded.logger)
    assert list(assert_unbroken(recorded.config.directory).values()) == [RECORDS] * 3


def test_a_child_that_outlives_its_killed_parent_keeps_none_of_its_locks(configure: Configure) -> None:
    # The child has inherited all descriptors of its parent, which listened, and does nothing that would close them.
    config = configure()
    reported, report = os.pipe()
    child_lives, alive = os.pipe()
    waiting, ending = os.pipe()

    def parent() -> None:
        logger = Logger(config)
        log_many()
        assert logger.flush()

        def child() -> None:
            os.close(ending)
            os.write(report, b"x")
            os.read(waiting, 1)

        in_child(child)
        log_many()
        signal.pause()

    pid = in_child(parent)
    os.close(alive)
    assert os.read(reported, 1) == b"x"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    (segment,) = config.directory.glob("*.jsonl")
    with segment.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it has no writer any more
    with Logger(config) as logger:
        drain(logger)
    assert not select.select([child_lives], [], [], 0)[0], "the child has ended, so this proves nothing"
    found = assert_unbroken(config.directory)
    assert len(found) == 1
    assert found.total() >= RECORDS
    for descriptor in (reported, report, child_lives, waiting, ending):
        os.close(descriptor)


def serve_one(recorded: Recorded, app: Any) -> None:
    """Serve one request."""
    client = Client()
    scope: MutableMapping[str, Any] = http_scope("/forked")

    async def call() -> None:
        await recorded.wrap(app)(scope, client.receive, client.send)

    asyncio.run(call())


def test_a_middleware_that_is_gone_is_not_kept_for_the_next_fork(recording: Recording) -> None:
    def factories() -> int:
        gc.collect()
        return sum(type(one).__name__ == "RequestFactory" for one in gc.get_objects())

    recorded, before = recording(), factories()
    for _ in range(5):
        recorded.serve(replying(START, {"type": "http.response.body"}))
    assert factories() == before


START = {"type": "http.response.start", "status": 200, "headers": []}


@pytest.mark.parametrize("slots", [0, 1024])
def test_a_child_forked_in_the_middle_of_a_stream_that_goes_on_with_it_adds_no_second_record(
    recording: Recording, slots: int
) -> None:
    recorded = recording(in_flight_slots=slots, chunks="events")
    children: list[int] = []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        children.append(os.fork())
        chunks = 3 if children[-1] else 7
        for _ in range(chunks):
            await send({"type": "http.response.body", "body": b"more", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    parent = os.getpid()
    try:
        serve_one(recorded, app)
    finally:
        if os.getpid() != parent:
            get_logger("child").warning("the child goes on")
            os._exit(0)
    join(*children)
    drain(recorded.logger)
    record = recorded.request()
    assert (record["pid"], record["outcome"], record["chunks"]) == (parent, "ok", 4)
    assert [chunk["pid"] for chunk in recorded.records("request.chunk")] == [parent] * 4
    assert [log["pid"] for log in recorded.records("log")] == children


@pytest.mark.parametrize("slots", [0, 1024])
@pytest.mark.parametrize("way", ["exit", "raise", "silent"])
def test_a_child_forked_in_a_request_that_leaves_it_adds_no_second_record_however_it_ends(
    recording: Recording, way: str, slots: int
) -> None:
    recorded = recording(in_flight_slots=slots)
    children: list[int] = []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        pid = os.fork()
        if pid == 0 and way == "silent":
            os._exit(0)
        if pid == 0:
            raise SystemExit(0) if way == "exit" else RuntimeError("in the child")
        children.append(pid)
        await send(START)
        await send({"type": "http.response.body", "body": b"whole"})

    parent = os.getpid()
    try:
        serve_one(recorded, app)
    finally:
        if os.getpid() != parent:
            os._exit(0)
    join(*children)
    drain(recorded.logger)
    record = recorded.request()
    assert (record["pid"], record["outcome"]) == (parent, "ok")


def log_in_pool(number: int) -> int:
    """Log once in a worker of a pool; return its pid."""
    assert get_logger("pool").warning("pooled", n=number)
    return os.getpid()


def log_in_own(config: Config) -> None:
    Logger(config).event("own", [])()


def test_workers_of_a_pool_that_ends_them_without_ceremony_lose_nothing(recorded: Recorded) -> None:
    log_many()
    with ProcessPoolExecutor(3, mp_context=get_context("fork")) as pool:
        pids = set(pool.map(log_in_pool, range(RECORDS)))
    drain(recorded.logger)
    records = [record for record in recorded.records("log") if record["message"] == "pooled"]
    assert sorted(record["attributes"]["n"] for record in records) == list(range(RECORDS))
    assert {record["pid"] for record in records} == pids
    assert os.getpid() not in pids
    assert {record["how"] for record in recorded.records("process.ended")} == {"closed"}


def test_children_of_a_server_of_forks_close_their_books(configure: Configure) -> None:
    config = configure()
    process = get_context("forkserver").Process(target=log_in_own, args=(config,))
    process.start()
    process.join()
    assert process.exitcode == 0
    (ended,) = read_records(config.directory, "process.ended")
    assert (ended["pid"], ended["how"], ended["accepted"]) == (process.pid, "closed", 1)


def test_workers_of_a_pool_that_are_replaced_after_some_tasks_lose_nothing(recorded: Recorded) -> None:
    log_many()
    with get_context("fork").Pool(2, maxtasksperchild=5) as pool:
        pids = Counter(pool.map(log_in_pool, range(60), chunksize=1))
        pool.close()
        pool.join()
    drain(recorded.logger)
    records = [record for record in recorded.records("log") if record["message"] == "pooled"]
    assert Counter(record["pid"] for record in records) == pids
    assert len(pids) >= 12


def test_a_child_has_no_thread_of_ours_until_its_first_record(recorded: Recorded) -> None:
    emit = recorded.logger.event("step", ["n"])

    def child() -> None:
        # OpenTelemetry's own handler of forks may leave a thread that is just ending; one of ours would stay.
        wait_until(lambda: len(thread_names()) == 1, "threads of others to end")
        recorded.logger.stats()
        recorded.logger.flush()
        recorded.logger.event("registered in the child", ["n"])
        assert len(names := thread_names()) == 1, names
        assert emit(1)
        assert len(thread_names()) > 1

    with emitting(2):
        for _ in range(FORKS):
            join(in_child(child))
    drain(recorded.logger)
    assert len(recorded.records("step")) == FORKS


CLOSED_TWICE = """
import sys
from inference_logging import Config, Logger, get_logger
from tests.kit.child import in_child, join

log = get_logger("twice").warning
logger = Logger(Config(directory=sys.argv[1], queue_directory=sys.argv[2]))

def close_twice():
    assert log("once")
    for _ in range(2):
        assert logger.service.close(60)

assert log("parent")
join(in_child(close_twice))
close_twice()
"""


def test_a_queue_that_is_closed_again_after_a_fork_gives_its_memory_back_without_a_complaint(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CLOSED_TWICE, str(tmp_path / "segments"), str(tmp_path / "queues")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stderr) == (0, "")
