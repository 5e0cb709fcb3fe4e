"""The grading of what a look sees: each threshold, each way back, each reason in words; and what a look remembers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_logging import Config
from inference_logging.health import (
    MEMORY_S,
    STATES,
    FailingSink,
    Health,
    Limits,
    Recent,
    Snapshot,
    State,
    Watch,
    grade,
)

LIMITS = Limits.of(Config())
FULL = FailingSink("file", "failing", 12.0, "full")


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        (Snapshot(), "ok", ""),
        (Snapshot(records=4_999), "ok", ""),
        (
            Snapshot(records=5_000),
            "pressured",
            "5000 records wait for the listener; pressured from 5000, cleared at 2500",
        ),
        (
            Snapshot(records=9_999),
            "pressured",
            "9999 records wait for the listener; pressured from 5000, cleared at 2500",
        ),
        (
            Snapshot(records=10_000),
            "degraded",
            "10000 records wait for the listener; degraded from 10000, cleared at 5000",
        ),
        (Snapshot(fill=0.249), "ok", ""),
        (Snapshot(fill=0.25), "pressured", "25% of a queue's bytes are in use; pressured from 25%, cleared at 12%"),
        (Snapshot(fill=0.5), "degraded", "50% of a queue's bytes are in use; degraded from 50%, cleared at 25%"),
        (Snapshot(oldest_age_s=30.4), "ok", ""),
        (Snapshot(oldest_age_s=30.5), "pressured", "the oldest record has waited 30.5 s; pressured from 30.5 s"),
        (Snapshot(oldest_age_s=86_400.0), "pressured", "the oldest record has waited 86400.0 s; pressured from 30.5 s"),
        (Snapshot(failing=(FULL,)), "pressured", "sink file is failing for 12.0 s (full)"),
        (Snapshot(dead_producers=("m_0_1",)), "producer_died", "m_0_1 has died and has not come back"),
        (Snapshot(fallback=True), "pressured", "the fallback writes in the place of the sink"),
        (Snapshot(recent_errors=3), "pressured", "3 writes failed within the last 60 s"),
        (Snapshot(recent_drops=7, recent_s=10.2), "pressured", "7 records were lost within the last 10 s"),
        (Snapshot(records=1, stalled_s=29.9), "ok", ""),
        (
            Snapshot(records=1, stalled_s=30.0),
            "stuck",
            "the listener (here) makes no rounds for 30.0 s; stuck from 30 s, and 1 record waits",
        ),
        (
            Snapshot(records=1, stalled_s=30.0, leader="elsewhere"),
            "stuck",
            "the listener (elsewhere) makes no rounds for 30.0 s; stuck from 30 s, and 1 record waits",
        ),
        (
            Snapshot(records=1, stalled_s=30.0, leader="nobody"),
            "stuck",
            "no process listens for 30.0 s; stuck from 30 s, and 1 record waits",
        ),
        (
            Snapshot(stalled_s=31.0),
            "pressured",
            "the listener (here) makes no rounds for 31.0 s; stuck from 30 s with records waiting, and none waits",
        ),
        (
            Snapshot(stalled_s=99.0, leader="nobody", listens=False),
            "pressured",
            "listener is external and no process listens; none waits yet",
        ),
        (
            Snapshot(records=3, leader="nobody", listens=False),
            "pressured",
            "listener is external and no process listens; 3 records wait until one does",
        ),
        (
            Snapshot(records=3, stalled_s=99.0, leader="elsewhere", listens=False),
            "stuck",
            "the listener (elsewhere) makes no rounds for 99.0 s; stuck from 30 s, and 3 records wait",
        ),
    ],
)
def test_each_sight_has_its_state_and_its_reason(seen: Snapshot, state: str, text: str) -> None:
    health = grade(seen, LIMITS)
    assert (health.state, [reason.text for reason in health.reasons]) == (state, [text] if text else [])


@pytest.mark.parametrize(
    ("seen", "ready", "alive"),
    [
        (Snapshot(), True, True),
        (Snapshot(records=5_000), True, True),
        (Snapshot(records=10_000), False, True),
        # A disk that is full for a day, and a queue that is full of it: no restart mends that.
        (Snapshot(records=10**6, fill=1.0, oldest_age_s=86_400.0, failing=(FULL,), recent_drops=10**6), False, True),
        (Snapshot(records=1, stalled_s=30.0), False, False),
        (Snapshot(records=1, stalled_s=30.0, leader="elsewhere"), False, False),
        # The listener is in a sidecar: to restart this process would mend nothing.
        (Snapshot(records=1, stalled_s=30.0, leader="elsewhere", listens=False), False, True),
        (Snapshot(records=9_999, stalled_s=30.0, leader="nobody", listens=False), True, True),
        (Snapshot(records=10_000, stalled_s=30.0, leader="nobody", listens=False), False, True),
    ],
)
def test_readiness_and_liveness_follow_from_the_state(seen: Snapshot, ready: bool, alive: bool) -> None:
    health = grade(seen, LIMITS)
    assert (health.ready, health.alive) == (ready, alive)


def test_the_worst_reason_decides_and_all_are_told() -> None:
    health = grade(Snapshot(records=10_000, fill=0.3, failing=(FULL,), fallback=True), LIMITS)
    assert health.state == "degraded"
    assert [reason.kind for reason in health.reasons] == ["records", "bytes", "sink", "fallback"]


def states(*rising_and_falling: Snapshot) -> list[str]:
    """Grade one look after the other."""
    seen: list[str] = []
    before: Health | None = None
    for snapshot in rising_and_falling:
        before = grade(snapshot, LIMITS, before)
        seen.append(before.state)
    return seen


def test_a_threshold_that_was_reached_is_left_at_half_of_it() -> None:
    records = [0, 4_999, 5_000, 4_999, 2_501, 2_500, 5_000, 10_000, 9_999, 5_001, 5_000, 2_501, 2_500, 0]
    assert states(*(Snapshot(records=waiting) for waiting in records)) == [
        *("ok", "ok", "pressured", "pressured", "pressured", "ok", "pressured"),
        *("degraded", "degraded", "degraded", "pressured", "pressured", "ok", "ok"),
    ]
    assert states(*(Snapshot(fill=fill) for fill in (0.5, 0.26, 0.25, 0.13, 0.125, 0.24))) == [
        *("degraded", "degraded", "pressured", "pressured", "ok", "ok"),
    ]
    ages = (Snapshot(oldest_age_s=age_s) for age_s in (31, 16, 15.25, 30))
    assert states(*ages) == ["pressured", "pressured", "ok", "ok"]


def test_a_backlog_that_swings_around_a_threshold_turns_the_answer_once() -> None:
    records = [9_000, *[10_001, 9_999] * 50, 5_001]
    swinging = states(*(Snapshot(records=waiting) for waiting in records))
    assert swinging == ["pressured", *["degraded"] * 101]


@given(
    limit=st.integers(1, 1000),
    clear=st.floats(0, 1),
    pressured=st.floats(0.01, 1),
    backlogs=st.lists(st.integers(0, 2000), max_size=30),
)
def test_the_state_follows_its_two_thresholds_and_nothing_between_them_turns_it(
    limit: int, clear: float, pressured: float, backlogs: list[int]
) -> None:
    limits = replace(LIMITS, backlog_records=limit, clear_ratio=clear, pressured_ratio=pressured)
    before: Health | None = None
    for records in backlogs:
        health = grade(Snapshot(records=records), limits, before)
        was_ready = before is None or before.ready
        if records >= limit and records > limit * clear:
            assert not health.ready
        elif records <= limit * clear and records < limit:
            assert health.ready
        elif limit * clear < records < limit:
            assert health.ready == was_ready
        before = health


@given(st.lists(st.sampled_from(STATES), max_size=4))
def test_the_state_is_the_worst_of_the_reasons(found: list[State]) -> None:
    seen = Snapshot(
        records=10_000 if "degraded" in found else 1,
        fallback="pressured" in found,
        dead_producers=("m_0_0",) if "producer_died" in found else (),
        stalled_s=30.0 if "stuck" in found else 0.0,
    )
    assert grade(seen, LIMITS).state == max(found, key=STATES.index, default="ok")


@pytest.mark.parametrize(
    ("seen", "seconds"),
    [
        (Snapshot(records=10_000), 1),
        (Snapshot(records=10_000, records_per_s=1_000.0), 5),
        (Snapshot(records=10_000, records_per_s=999.0), 6),
        (Snapshot(records=10_000, records_per_s=1e9), 1),
        (Snapshot(records=10_000, records_per_s=1.0), 60),
        (Snapshot(records=10_000, records_per_s=0.0), 60),
        # Half of the bytes must go: half of the records, as far as anyone knows.
        (Snapshot(records=100, fill=0.5, records_per_s=10.0), 5),
        (Snapshot(records=100, fill=0.1, records_per_s=10.0), 1),
    ],
)
def test_retry_after_is_the_time_in_which_the_measured_rate_clears_the_backlog(seen: Snapshot, seconds: int) -> None:
    assert grade(seen, LIMITS).retry_after_s == seconds


class Faked:
    """A queue directory and a clock that say what they are told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.queue: dict[str, Any] = {
            "boot_id": "a",
            "in_queue": 0,
            "used_bytes": 0,
            "capacity_bytes": 1000,
            "oldest_unix_nano": None,
            "dropped": {},
        }
        self.others: list[dict[str, Any]] = []
        self.listener: dict[str, Any] = {
            "heartbeat_age_s": 0.0,
            "sink_errors": 5,
            "records_written": 100,
            "leader": "here",
            "fallback_active": False,
        }
        self.dead: list[str] = []
        self.sink: dict[str, Any] = {"name": "file", "state": "ok", "since_unix_nano": 0, "last_error": None}

    def queues(self) -> list[dict[str, Any]]:
        return [self.queue, *self.others]

    def listener_stats(self) -> dict[str, Any]:
        return self.listener

    def sinks(self) -> list[dict[str, Any]]:
        return [self.sink]

    def dead_producers(self) -> list[str]:
        return self.dead

    def clock(self) -> float:
        return self.now_s


@pytest.fixture
def faked() -> Faked:
    return Faked()


@pytest.fixture
def watch(faked: Faked, configure: Callable[..., Config]) -> Watch:
    return Watch(configure(), faked, faked.clock)


def test_a_look_takes_the_sum_of_the_records_and_the_fullest_queue(faked: Faked, watch: Watch) -> None:
    faked.queue.update(in_queue=3, used_bytes=100, oldest_unix_nano=time.time_ns() - 5 * 10**9)
    faked.others = [{**faked.queue, "boot_id": "b", "in_queue": 4, "used_bytes": 400, "oldest_unix_nano": None}]
    seen = watch.look().snapshot
    assert (seen.records, seen.fill) == (7, 0.4)
    assert seen.oldest_age_s is not None
    assert seen.oldest_age_s >= 5


def test_a_clock_that_was_set_back_makes_no_record_older_than_nothing(faked: Faked, watch: Watch) -> None:
    faked.queue["oldest_unix_nano"] = time.time_ns() + 10**12
    assert watch.look().snapshot.oldest_age_s == 0.0


def test_a_listener_that_never_came_is_waited_for_from_the_first_look_on(faked: Faked, watch: Watch) -> None:
    faked.queue["in_queue"] = 1
    faked.listener.update(heartbeat_age_s=None, leader="nobody")
    faked.now_s += 29.9
    assert watch.look().state == "ok"
    faked.now_s += 0.1
    assert watch.look().state == "stuck"


def test_what_an_earlier_life_left_does_not_make_a_new_process_stuck(faked: Faked, watch: Watch) -> None:
    faked.queue["in_queue"] = 1
    faked.listener["heartbeat_age_s"] = 86_400.0
    assert watch.look().state == "ok"


def test_losses_are_told_for_a_minute_and_what_was_lost_before_the_first_look_is_not(
    faked: Faked, configure: Callable[..., Config]
) -> None:
    faked.queue["dropped"] = {"queue_full": {"INFO": 7}}
    watch = Watch(configure(), faked, faked.clock)
    assert watch.look().state == "ok"
    faked.queue["dropped"] = {"queue_full": {"INFO": 8, "WARN": 1}, "shutdown_deadline": {"INFO": 50}}
    assert watch.look().snapshot.recent_drops == 2
    # Its process is gone; another one has lost a record too.
    faked.others = [{**faked.queue, "boot_id": "b", "dropped": {"oversize": {"INFO": 1}}}]
    faked.queue["dropped"] = {}
    for _ in range(59):
        faked.now_s += 1
        assert watch.look().snapshot.recent_drops == 3
    faked.now_s += 2
    assert watch.look().state == "ok"


def test_failed_writes_are_told_for_a_minute_also_if_each_next_try_succeeds(faked: Faked, watch: Watch) -> None:
    faked.listener["sink_errors"] = 6
    assert [reason.kind for reason in watch.look().reasons] == ["errors"]
    faked.now_s += MEMORY_S
    watch.look()
    faked.now_s += 1
    assert watch.look().state == "ok"


def test_a_sink_that_fails_is_told_with_its_name_and_why(faked: Faked, watch: Watch) -> None:
    faked.sink.update(state="hung", since_unix_nano=time.time_ns() - 10**9, last_error="io")
    faked.listener["fallback_active"] = True
    (sink, fallback) = watch.look().reasons
    assert (sink.kind, fallback.kind) == ("sink", "fallback")
    assert sink.text.startswith("sink file is hung for 1.")
    assert sink.text.endswith(" s (io)")


def test_a_named_producer_that_has_died_is_a_state_of_its_own_until_it_is_back(faked: Faked, watch: Watch) -> None:
    faked.dead = ["m_0_0", "m_0_1"]
    health = watch.look()
    assert (health.state, health.ready, health.alive) == ("producer_died", True, True)
    assert len(health.reasons) == 2
    faked.dead = []
    assert watch.look().state == "ok"


def test_the_drain_rate_is_known_after_half_a_second(faked: Faked, watch: Watch) -> None:
    faked.listener["records_written"] = 200
    faked.now_s += 0.4
    assert watch.look().snapshot.records_per_s is None
    faked.now_s += 0.6
    assert watch.look().snapshot.records_per_s == pytest.approx(100.0)


def test_thresholds_stay_reached_from_look_to_look(faked: Faked, watch: Watch) -> None:
    found = []
    for records in (10_000, 5_001, 5_000, 2_500):
        faked.queue["in_queue"] = records
        found.append(watch.look().state)
    assert found == ["degraded", "degraded", "pressured", "ok"]


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 1000)), max_size=300))
def test_what_is_remembered_of_a_counter_is_bounded_and_never_negative(steps: list[tuple[float, int]]) -> None:
    recent, now_s = Recent(), 0.0
    for step_s, total in steps:
        now_s += step_s
        recent.add(now_s, total)
        assert recent.increase >= 0
        assert len(recent._seen) <= 2 * MEMORY_S + 3
