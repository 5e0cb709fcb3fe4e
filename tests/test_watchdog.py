"""Readiness and liveness of real servers whose listener is stopped, killed, kept from its disk, or elsewhere."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from inference_logging import Config, Logger
from tests.servers import Server, uvicorn
from tests.support import wait_until

pytestmark = pytest.mark.servers

READY, LIVE = "/health/logging", "/health/logging/live"

Configure = Callable[..., Config]


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


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process, and let it go on afterwards."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


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


def test_a_server_whose_listener_is_elsewhere_says_so_and_is_not_restarted_for_it(configure: Configure) -> None:
    config = configure(listener="external", stuck_after_s=1, drain_deadline_s=0)
    with uvicorn(config) as server:
        server.get("/")
        status, body = probe(server, READY)
        assert (status, body["status"], body["listener"]["leader"]) == (200, "pressured", "nobody")
        with Logger(config.model_copy(update={"listener": "thread"})):

            def state() -> tuple[int, str, str]:
                body = probe(server, READY)[1]
                return body["backlog_records"], body["status"], body["listener"]["leader"]

            wait_until(lambda: state() == (0, "ok", "elsewhere"), "the other process to listen")


def test_a_stopped_sidecar_makes_the_server_unready_but_not_dead(configure: Configure) -> None:
    config = configure(listener="external", stuck_after_s=1, drain_deadline_s=0)
    sidecar = config.model_copy(update={"listener": "thread"})
    with uvicorn(config) as server, uvicorn(sidecar) as listening:
        server.get("/")
        # Probes share one look for a while, so the first ones may be of before.
        wait_until(lambda: probe(server, READY)[1]["listener"]["leader"] == "elsewhere", "the sidecar to listen")
        with stopped(listening.process.pid):
            server.get("/")
            wait_until(lambda: probe(server, READY)[0] == 503, "readiness to report")
            assert probe(server, READY)[1]["status"] == "stuck"
            assert probe(server, LIVE)[0] == 200
        wait_until(lambda: probe(server, READY)[0] == 200, "it to go on")
