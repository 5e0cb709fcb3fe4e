"""Health as Python asks for it: thresholds, answers, threads, forked children; and the watchdog of the listener."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from inference_logging import Config, Logger
from inference_logging.metrics import metrics_of
from inference_logging.record.health import STATES, Health, State, Watch
from tests.kit.child import in_child
from tests.kit.servers import Server, uvicorn
from tests.kit.signatures import Configure
from tests.kit.support import stopped, wait_until

Waiting = Callable[..., tuple[Logger, Watch]]


@pytest.fixture
def waiting(configure: Configure) -> Iterator[Waiting]:
    """Open a logger that nobody listens to, with so many records in its queue."""
    opened: list[Logger] = []

    def open_(records: int = 0, **parameters: Any) -> tuple[Logger, Watch]:
        config = configure(listener="external", drain_deadline_s=0, **parameters)
        opened.append(Logger(config))
        emit = opened[-1].event("e", ["text"])
        assert all(emit("x") for _ in range(records))
        return opened[-1], Watch(config, opened[-1].service, audit=opened[-1].audit_service)

    yield open_
    for logger in opened:
        logger.close()


def kinds(health: Health) -> list[str]:
    return [reason.kind for reason in health.reasons]


def body(health: Health) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(health.readiness()[1])
    return answer


def test_the_states_are_those_of_the_native_rule(waiting: Waiting) -> None:
    logger, watch = waiting()
    families = {family[0]: family[4] for family in metrics_of(logger, watch).families()}
    assert tuple(labels[0][1] for _, labels, _, _ in families["inference_logging_state"]) == STATES
    assert get_args(State) == STATES


@pytest.mark.parametrize(
    ("parameters", "state", "text"),
    [
        ({"health_backlog_records": 21}, "pressured", "20 records wait for the listener; pressured from 10.5, "),
        ({"health_backlog_records": 20}, "degraded", "20 records wait for the listener; degraded from 20, "),
        ({"health_backlog_records": 41}, "pressured", "listener is external"),
        ({"health_backlog_records": 40}, "pressured", "20 records wait for the listener; pressured from 20, "),
        (
            {"health_backlog_records": 100, "health_pressured_ratio": 0.2, "health_clear_ratio": 0.25},
            "pressured",
            "20 records wait for the listener; pressured from 20, cleared at 5",
        ),
    ],
)
def test_the_thresholds_of_records_are_those_of_the_configuration(
    waiting: Waiting, parameters: dict[str, Any], state: str, text: str
) -> None:
    _, watch = waiting(20, **parameters)
    health = watch.look()
    assert health.state == state
    assert health.reasons[0].text.startswith(text)
    assert health.reached == {(reason.kind, reason.state) for reason in health.reasons}
    assert (health.ready, health.alive) == (state != "degraded", True)


def test_the_threshold_of_bytes_is_that_of_the_configuration(waiting: Waiting) -> None:
    logger, watch = waiting(2, health_backlog_ratio=0.01)
    assert "bytes" not in kinds(watch.look())
    emit = logger.event("large", ["text"])
    assert all(emit("x" * 1000) for _ in range(20))
    health = watch.look()
    assert ("bytes", "degraded") in health.reached
    (queue,) = logger.service.queues()
    assert body(health)["fill_ratio"] == round(queue["used_bytes"] / queue["capacity_bytes"], 4)


def test_a_record_is_old_beyond_the_interval_of_the_listener(waiting: Waiting) -> None:
    _, watch = waiting(1, flush_interval_s=0.3, health_oldest_age_s=0.2)
    health = wait_until(lambda: found if ("age" in kinds(found := watch.look())) else None, "the record to be old")
    assert body(health)["oldest_age_s"] >= 0.5
    assert health.reasons[0].text.endswith(" s; pressured from 0.5 s")


def test_the_audit_lane_has_an_interval_of_its_own(waiting: Waiting) -> None:
    logger, watch = waiting(audit="on", flush_interval_s=60, audit_commit_interval_s=0.25, health_oldest_age_s=0.25)

    async def record_and_leave() -> None:
        recorded = asyncio.ensure_future(logger.audit("policy.decision", user="u"))
        await asyncio.sleep(0)
        recorded.cancel()

    asyncio.run(record_and_leave())
    health = wait_until(lambda: found if "audit.age" in kinds(found := watch.look()) else None, "the record to be old")
    (reason,) = [reason for reason in health.reasons if reason.kind == "audit.age"]
    assert reason.text.startswith("audit lane: the oldest record has waited ")
    assert reason.text.endswith(" s; pressured from 0.5 s")


def test_a_process_that_should_listen_is_stuck_after_the_configured_time(configure: Configure) -> None:
    # The records are another process's, and nobody listens; this one only looks, as if it should.
    config = configure(listener="external", stuck_after_s=1, drain_deadline_s=0)
    with Logger(config) as logger:
        assert logger.event("e", ["text"])("x")
        watch = Watch(config.model_copy(update={"listener": "thread"}), logger.service)
        assert watch.look().state == "ok"
        health = wait_until(lambda: found if (found := watch.look()).state == "stuck" else None, "a state")
        assert (health.ready, health.alive) == (False, False)
        assert body(health)["listener"]["since_last_round_s"] >= 1


def test_the_answers_are_what_json_dumps_writes(waiting: Waiting) -> None:
    _, watch = waiting(5, health_backlog_records=5)
    health = watch.look()
    for (status, content, retry_after_s), expected in (
        (health.readiness(), 503),
        (health.liveness(), 200),
        (health.producers(), 200),
    ):
        assert (status, retry_after_s) == (expected, 1)
        assert json.dumps(json.loads(content)).encode() == content


def test_a_recent_look_is_one_that_was_made(waiting: Waiting) -> None:
    logger, watch = waiting()
    assert body(watch.recent())["backlog_records"] == 0
    assert logger.event("later", [])()
    assert body(watch.look())["backlog_records"] == 1
    assert body(watch.recent())["backlog_records"] == 1
    assert logger.event("later", [])()
    wait_until(lambda: body(watch.recent())["backlog_records"] == 2, "a quarter of a second to pass")


def test_children_look_whatever_the_threads_of_their_parent_just_did(waiting: Waiting) -> None:
    logger, watch = waiting(3)
    metrics, is_over = metrics_of(logger, watch), threading.Event()

    def look() -> None:
        while not is_over.is_set():
            watch.look()
            metrics.render("")

    def child() -> None:
        # At most a minute: a lock that was held at the fork would never be given back.
        assert body(watch.recent())["backlog_records"] >= 3
        assert b"inference_logging_queues" in metrics.render("")[0]

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for pid in [in_child(child) for _ in range(20)]:
            assert ended(pid) == 0
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def ended(pid: int) -> int:
    """Return a child's exit code; one that hangs is killed after a minute."""
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


READY, LIVE = "/health/logging", "/health/logging/live"


def probe(server: Server, path: str) -> tuple[int, dict[str, Any]]:
    """Ask over a connection of its own: a stopped worker must not keep it."""
    response = httpx.get(f"{server.url}{path}", headers={"connection": "close"}, timeout=120)
    return response.status_code, response.json()


@contextmanager
def two_workers(config: Config) -> Iterator[Server]:
    """Serve with two workers whose supervisor lets a silent one be."""
    options = ["--workers", "2", "--timeout-worker-healthcheck", "3600"]
    with uvicorn(config, *options) as server:
        workers = server.get("/stats")["workers"]
        wait_until(lambda: len(server.get("/stats")["workers"]) == 2, f"two workers, not {workers}")
        yield server


@pytest.mark.servers
def test_a_worker_reports_that_the_listener_in_another_one_is_stuck_until_it_goes_on(configure: Configure) -> None:
    with two_workers(configure(stuck_after_s=1)) as server:
        leader = server.get("/stats")["listener"]["leader_pid"]
        with stopped(leader):
            # Something to wait for: this request's own record.
            server.get("/")
            wait_until(lambda: probe(server, LIVE)[0] == 503, "liveness to report")
            status, body = probe(server, READY)
            assert (status, body["status"], body["listener"]["leader"]) == (503, "stuck", "elsewhere")
            assert "the listener (elsewhere) makes no rounds for" in body["reasons"][0]
        wait_until(lambda: (probe(server, LIVE)[0], probe(server, READY)[0]) == (200, 200), "it to go on")


@pytest.mark.servers
def test_a_killed_leader_is_followed_and_nobody_is_asked_to_restart(configure: Configure) -> None:
    with two_workers(configure()) as server:
        leader = server.get("/stats")["listener"]["leader_pid"]
        os.kill(leader, signal.SIGKILL)
        alive = []

        def is_followed() -> bool:
            alive.append(probe(server, LIVE)[0])
            body = probe(server, READY)[1]
            followed: bool = server.get("/stats")["listener"]["leader_pid"] != leader
            return followed and body["backlog_records"] == 0

        wait_until(is_followed, "another one to listen and to write the backlog")
        assert set(alive) == {200}


@pytest.mark.servers
def test_a_full_disk_is_never_a_reason_to_restart(configure: Configure) -> None:
    with uvicorn(configure(stuck_after_s=1, health_backlog_records=20)) as server:
        pid = server.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))
        for _ in range(20):
            server.get("/")
        wait_until(lambda: probe(server, READY)[0] == 503, "readiness to report")
        wait_until(lambda: probe(server, READY)[1]["oldest_age_s"] > 3, "the backlog to grow old")
        status, body = probe(server, LIVE)
        assert (status, body["status"]) == (200, "degraded")
        assert body["oldest_age_s"] > body["listener"]["since_last_round_s"]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        wait_until(lambda: probe(server, READY)[0] == 200, "the backlog to be written")


_HUNG = """
import json, os, sys, time
from inference_logging import Config, Logger
from inference_logging.record.health import Watch
config = Config(sink="stdout", stuck_after_s=1, health_backlog_records=100)
logger = Logger(config)
watch, emit = Watch(config, logger.service), logger.event("e", ["text"])
for _ in range(1000):
    emit("x" * 500)
seen = {"failing_sinks": []}
while not (seen["failing_sinks"] and (seen["oldest_age_s"] or 0) > 2):
    time.sleep(0.01)
    health = watch.look()
    seen = json.loads(health.readiness()[1])
(sink,) = seen["failing_sinks"]
json.dump([health.state, health.alive, sink["state"], seen["listener"]["since_last_round_s"]], sys.stderr)
sys.stderr.flush()
os._exit(0)
"""


@pytest.mark.servers
def test_a_reader_that_has_stopped_is_never_a_reason_to_restart(tmp_path: Path) -> None:
    # A pipe that nobody reads: each write waits for a reader that does not come.
    environment = {**os.environ, "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(tmp_path / "queues")}
    read, write = os.pipe()
    try:
        command = [sys.executable, "-c", _HUNG]
        done = subprocess.run(command, env=environment, stdout=write, stderr=subprocess.PIPE, timeout=180, check=True)
    finally:
        os.close(read)
        os.close(write)
    state, alive, sink, stalled_s = json.loads(done.stderr.splitlines()[-1])
    assert (state, alive, sink in {"failing", "hung"}) == ("degraded", True, True)
    assert stalled_s < 1
