"""`engine.stats`: what an engine did in an interval, and nothing from an idle one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from inference_logging.record.integrations.vllm.stats import SPECULATION_FIELDS, STATS_FIELDS, Statistics
from inference_logging.testing import Records, capture_records
from tests.fake_vllm import PrefixCacheStats, SchedulerStats, SpecDecodingStats

BUSY = SchedulerStats(
    num_running_reqs=2,
    num_waiting_reqs=1,
    num_skipped_waiting_reqs=3,
    kv_cache_usage=0.25,
    prefix_cache_stats=PrefixCacheStats(queries=10, hits=4),
)


@pytest.fixture
def records() -> Iterator[Records]:
    with capture_records(engine_stats_interval_s=3.0) as captured:
        yield captured


class Timers:
    """What was to be called later, and a clock that is set by hand."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, Callable[[], None]]] = []
        self.now = 100.0

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.asked.append((delay_s, call))

    def fire(self) -> None:
        """Let the only timer's time come."""
        ((delay_s, call),) = self.asked
        self.asked.clear()
        self.now += delay_s
        call()


@pytest.fixture
def timers() -> Timers:
    return Timers()


def statistics(records: Records, timers: Timers, *, speculates: bool = False, failed: Any = None) -> Statistics:
    """Return the intervals of a logger whose records are captured."""
    return Statistics(records.logger, timers.later, failed, speculates=speculates, clock=lambda: timers.now)


def test_an_interval_counts_its_work_and_shows_the_last_state(records: Records, timers: Timers) -> None:
    interval = statistics(records, timers).interval(7)
    interval.see(BUSY)
    interval.see(BUSY)
    interval.count(prompt_tokens=30, generation_tokens=6, preemptions=1, finished=2)
    timers.fire()
    (record,) = records.named("engine.stats")
    assert {name: record[name] for name in STATS_FIELDS} == {
        "engine.index": 7,
        "engine.interval_s": 3.0,
        "engine.running": 2,
        "engine.waiting": 4,
        "engine.kv_cache_usage": 0.25,
        "engine.prefix_cache_queries": 20,
        "engine.prefix_cache_hits": 8,
        "engine.prompt_tokens": 30,
        "engine.prompt_tokens_per_s": 10.0,
        "engine.generation_tokens": 6,
        "engine.generation_tokens_per_s": 2.0,
        "engine.preemptions": 1,
        "engine.finished": 2,
    }
    assert not set(SPECULATION_FIELDS) & set(record)


def test_an_idle_engine_writes_nothing_and_the_last_record_shows_that_nothing_runs(
    records: Records, timers: Timers
) -> None:
    several = statistics(records, timers)
    several.interval(0).see(BUSY)
    timers.fire()
    assert not timers.asked
    several.interval(0).see(SchedulerStats())
    timers.fire()
    assert not timers.asked
    assert [record["engine.running"] for record in records.named("engine.stats")] == [2, 0]


def test_one_timer_serves_all_engines_and_each_has_its_record(records: Records, timers: Timers) -> None:
    several = statistics(records, timers)
    for index in (0, 1, 0):
        several.interval(index).count(1, 1, 0, 0)
    timers.fire()
    found = {record["engine.index"]: record["engine.prompt_tokens"] for record in records.named("engine.stats")}
    assert found == {0: 2, 1: 1}


def test_what_the_engine_did_not_report_is_null(records: Records, timers: Timers) -> None:
    statistics(records, timers).interval(0).count(1, 1, 0, 0)
    timers.fire()
    (record,) = records.named("engine.stats")
    reported = ("engine.running", "engine.waiting", "engine.kv_cache_usage", "engine.prefix_cache_queries")
    assert [record[name] for name in reported] == [None] * 4
    assert record["engine.prompt_tokens"] == 1


@pytest.mark.parametrize(("drafted", "rate"), [(8, 0.75), (0, None)])
def test_where_there_is_speculation_its_acceptance_is_recorded(
    records: Records, timers: Timers, drafted: int, rate: float | None
) -> None:
    interval = statistics(records, timers, speculates=True).interval(0)
    drafts = SpecDecodingStats(num_drafts=drafted // 4, num_draft_tokens=drafted, num_accepted_tokens=drafted * 3 // 4)
    interval.see(SchedulerStats(spec_decoding_stats=drafts))
    timers.fire()
    values = [records.named("engine.stats")[0][name] for name in SPECULATION_FIELDS]
    assert values == [drafted // 4, drafted, drafted * 3 // 4, rate]


def test_an_error_while_recording_is_reported_and_goes_no_further(records: Records, timers: Timers) -> None:
    failed: list[Exception] = []
    statistics(records, timers, failed=failed.append).interval(0).generation_tokens = "many"  # type: ignore[assignment]
    timers.fire()
    assert [type(error) for error in failed] == [TypeError]
