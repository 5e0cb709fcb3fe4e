"""Readiness and liveness of real servers whose listener is stopped, killed, kept from its disk, or elsewhere."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from inference_logging import Config, Logger
from tests.servers import Server, uvicorn
from tests.support import wait_until

READY, LIVE = "/health/logging", "/health/logging/live"

Configure = Callable[..., Config]


def probe(server: Server, path: str) -> tuple[int, dict[str, Any]]:
    """Ask over a connection of its own: a stopped worker must not keep it."""
    response = httpx.get(f"{server.url}{path}", headers={"connection": "close"}, timeout=30)
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


def test_a_worker_tells_that_the_listener_in_another_one_is_stuck_until_it_goes_on(configure: Configure) -> None:
    with two_workers(configure(stuck_after_s=1)) as server:
        leader = server.get("/stats")["listener"]["leader_pid"]
        with stopped(leader):
            # Something to wait for: this request's own record.
            server.get("/")
            wait_until(lambda: probe(server, LIVE)[0] == 503, "liveness to tell")
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
        wait_until(lambda: probe(server, READY)[0] == 503, "readiness to tell")
        wait_until(lambda: probe(server, READY)[1]["oldest_age_s"] > 3, "the backlog to grow old")
        status, body = probe(server, LIVE)
        assert (status, body["status"]) == (200, "degraded")
        assert body["oldest_age_s"] > body["listener"]["since_last_round_s"]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        wait_until(lambda: probe(server, READY)[0] == 200, "the backlog to be written")


def test_a_server_whose_listener_is_elsewhere_says_so_and_is_not_restarted_for_it(configure: Configure) -> None:
    config = configure(listener="off", stuck_after_s=1, drain_deadline_s=0)
    with uvicorn(config) as server:
        server.get("/")
        status, body = probe(server, READY)
        assert (status, body["status"], body["listener"]["leader"]) == (200, "pressured", "nobody")
        with Logger(config.model_copy(update={"listener": "thread"})):
            wait_until(lambda: probe(server, READY)[1]["backlog_records"] == 0, "the other process to listen")
            body = probe(server, READY)[1]
            assert (body["status"], body["listener"]["leader"]) == ("ok", "elsewhere")


def test_a_stopped_sidecar_makes_the_server_unready_but_not_dead(configure: Configure) -> None:
    config = configure(listener="off", stuck_after_s=1, drain_deadline_s=0)
    sidecar = config.model_copy(update={"listener": "thread"})
    with uvicorn(config) as server, uvicorn(sidecar) as listening:
        server.get("/")
        wait_until(lambda: probe(server, READY)[1]["backlog_records"] == 0, "the sidecar to listen")
        with stopped(listening.process.pid):
            server.get("/")
            wait_until(lambda: probe(server, READY)[0] == 503, "readiness to tell")
            assert probe(server, READY)[1]["status"] == "stuck"
            assert probe(server, LIVE)[0] == 200
        wait_until(lambda: probe(server, READY)[0] == 200, "it to go on")
