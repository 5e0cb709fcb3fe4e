"""Health: 503 with a reason when the backlog passes its threshold, 200 again when it has cleared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from inference_logging import Config, InferenceLoggingMiddleware, Logger, get_logger
from inference_logging.health import BacklogHealth

Start = Callable[..., tuple[TestClient, Config]]


@pytest.fixture
def start(configure: Callable[..., Config]) -> Iterator[Start]:
    """Serve an application behind the middleware."""
    clients = []

    def serve(**parameters: Any) -> tuple[TestClient, Config]:
        app = FastAPI()
        config = configure(**parameters)
        app.add_middleware(InferenceLoggingMiddleware, config=config)
        app.get("/health/logging")(lambda: "the application's own")
        app.get("/")(lambda: "served")
        clients.append(TestClient(app).__enter__())
        return clients[-1], config

    yield serve
    for client in clients:
        client.__exit__(None, None, None)


def backlog(records: int) -> None:
    log = get_logger("app")
    for _ in range(records):
        assert log.info("waits")


def test_an_idle_logger_is_healthy(start: Start) -> None:
    client, _ = start()
    response = client.get("/health/logging")
    assert response.status_code == 200
    assert response.json() == {"status": "ok", "backlog_records": 0}
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"


def test_the_answer_turns_at_the_threshold_tells_why_and_comes_back_only_when_half_is_cleared(start: Start) -> None:
    # Nobody listens, so the records stay; then a second logger of the same directory does.
    client, config = start(listener="off", health_backlog_records=100, drain_deadline_s=0)
    backlog(99)
    assert client.get("/health/logging").status_code == 200
    backlog(1)
    response = client.get("/health/logging")
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    body = response.json()
    assert (body["status"], body["backlog_records"]) == ("backlog", 100)
    assert body["reason"] == "100 records wait for the listener; the threshold is 100, ready again at 50"

    with Logger(config.model_copy(update={"listener": "thread"})) as listening:
        assert listening.flush()
        while listening.backlog_records():
            assert listening.flush()
        assert client.get("/health/logging").json() == {"status": "ok", "backlog_records": 0}


def test_the_server_serves_while_health_says_503(start: Start) -> None:
    client, _ = start(listener="off", health_backlog_records=1, drain_deadline_s=0)
    backlog(5)
    assert client.get("/health/logging").status_code == 503
    assert client.get("/").json() == "served"


def test_health_requests_are_not_recorded(start: Start) -> None:
    client, _ = start(listener="off", drain_deadline_s=0)
    for _ in range(3):
        assert client.get("/health/logging").json()["backlog_records"] == 0


def test_the_path_is_configurable_and_the_applications_own_route_is_left_alone(start: Start) -> None:
    client, _ = start(health_path="/ready")
    assert client.get("/ready").json()["status"] == "ok"
    assert client.get("/health/logging").json() == "the application's own"


def test_an_empty_path_switches_it_off(start: Start) -> None:
    client, _ = start(health_path="")
    assert client.get("/health/logging").json() == "the application's own"


def test_the_backlog_of_every_process_of_the_directory_counts(start: Start, configure: Callable[..., Config]) -> None:
    client, config = start(listener="off", drain_deadline_s=0)
    other = Logger(config.model_copy(update={"service_name": "other"}))
    emit = other.event("e", ["n"])
    assert all(emit(number) for number in range(7))
    assert client.get("/health/logging").json()["backlog_records"] == 7
    other.close()


@given(
    limit=st.integers(1, 1000),
    ratio=st.floats(0, 1),
    backlogs=st.lists(st.integers(0, 2000), max_size=30),
)
def test_the_answer_follows_the_two_thresholds_and_nothing_between_them_turns_it(
    limit: int, ratio: float, backlogs: list[int]
) -> None:
    health, ready = BacklogHealth(limit, ratio), True
    for records in backlogs:
        now = health.is_ready(records)
        if records >= limit and records > limit * ratio:
            assert not now
        elif records <= limit * ratio and records < limit:
            assert now
        elif limit * ratio < records < limit:
            assert now == ready
        ready = now
