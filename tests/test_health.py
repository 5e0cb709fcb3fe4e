"""Health as Python asks for it: the thresholds of the configuration, the answers, threads and forked children.

The rule itself and what a watch remembers are tested where they are: in ``native/tests/health.rs``.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest

from inference_logging import Config, Logger
from inference_logging.metrics import metrics_of
from inference_logging.record.health import STATES, Health, State, Watch
from tests.support import wait_until
from tests.test_processes import in_child

Waiting = Callable[..., tuple[Logger, Watch]]


@pytest.fixture
def waiting(configure: Callable[..., Config]) -> Iterator[Waiting]:
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


def test_a_process_that_should_listen_is_stuck_after_the_configured_time(configure: Callable[..., Config]) -> None:
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
