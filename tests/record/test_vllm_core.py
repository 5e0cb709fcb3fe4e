"""vLLM's engine core and its statistics: requests with their times, and what an engine did in an interval."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from inference_logging.record.integrations.vllm import core, needs
from inference_logging.record.integrations.vllm.stats import SPECULATION_FIELDS, STATS_FIELDS, Statistics
from inference_logging.testing import Records, capture_records
from tests.kit import fake_vllm
from tests.kit.fake_vllm import (
    EngineCoreEvent,
    EngineCoreEventType,
    EngineCoreOutput,
    EngineCoreOutputs,
    FinishReason,
    PrefillStats,
    PrefixCacheStats,
    Request,
    SchedulerStats,
    SpecDecodingStats,
)
from tests.kit.support import wait_until

QUEUED, SCHEDULED, PREEMPTED = (EngineCoreEventType(kind) for kind in (1, 2, 3))


@pytest.fixture
def records() -> Iterator[Records]:
    with capture_records(engine_records="on", engine_stats_interval_s=0.05) as captured:
        yield captured


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch, records: Records) -> Callable[..., Any]:
    """Make a scheduler that is followed."""
    modules = fake_vllm.install(monkeypatch)
    core.follow_schedulers()
    core.follow_schedulers()
    made: Callable[..., Any] = modules["vllm.v1.core.sched.scheduler"].Scheduler
    return made


def events(*kinds: tuple[EngineCoreEventType, float]) -> list[EngineCoreEvent]:
    """Return events with their times."""
    return [EngineCoreEvent(kind, at) for kind, at in kinds]


def step(*outputs: EngineCoreOutput, at: float = 0.0, stats: SchedulerStats | None = None) -> dict[int, Any]:
    """Return what the scheduler returns after a step."""
    return {0: EngineCoreOutputs(list(outputs), at, stats)}


def test_a_finished_request_is_recorded_with_its_times_and_tokens(
    scheduler: Callable[..., Any], records: Records
) -> None:
    engine = scheduler()
    engine.requests["r"] = request = Request("r")
    begin = events((QUEUED, 10.0), (SCHEDULED, 10.5))
    prefill = PrefillStats(num_prompt_tokens=9, num_cached_tokens=4)
    engine.update_from_output(step(EngineCoreOutput("r", [1], None, begin, prefill), at=11.5))
    again = events((PREEMPTED, 12.0), (SCHEDULED, 12.5))
    engine.update_from_output(step(EngineCoreOutput("r", [2], None, again), at=13.0))
    del engine.requests["r"]
    request.num_output_tokens = 3
    engine.update_from_output(step(EngineCoreOutput("r", [3], FinishReason.LENGTH), at=14.0))
    (record,) = records.named("engine.request")
    assert {name: value for name, value in record.items() if name.startswith(("engine.", "gen_ai."))} == {
        "engine.request_id": "r",
        "engine.index": 1,
        "gen_ai.usage.input_tokens": 9,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "engine.finish_reasons": ["length"],
        "engine.queued_s": 0.5,
        "engine.prefill_s": 1.0,
        "engine.decode_s": 2.5,
        "engine.e2e_s": 4.0,
        "engine.preemptions": 1,
    }


def test_one_that_ends_with_its_first_output_has_that_outputs_tokens(
    scheduler: Callable[..., Any], records: Records
) -> None:
    begin = events((QUEUED, 10.0), (SCHEDULED, 10.5))
    scheduler().update_from_output(step(EngineCoreOutput("r", [1, 2], FinishReason.STOP, begin, PrefillStats())))
    assert records.named("engine.request")[0]["gen_ai.usage.output_tokens"] == 2


def test_an_aborted_request_is_recorded_once_whether_or_not_it_had_begun(
    scheduler: Callable[..., Any], records: Records
) -> None:
    engine = scheduler()
    begun, waiting = Request("begun", FinishReason.ABORT), Request("waiting", FinishReason.ABORT)
    engine.requests["begun"] = begun
    begin = events((QUEUED, 10.0), (SCHEDULED, 10.5))
    engine.update_from_output(step(EngineCoreOutput("begun", [1], None, begin, PrefillStats()), at=11.5))
    begun.num_output_tokens = 1
    waiting.events = events((QUEUED, 11.0))
    assert engine.finish_requests([begun, waiting]) == [begun, waiting]
    first, second = records.named("engine.request")
    assert [record["engine.finish_reasons"] for record in (first, second)] == [["abort"], ["abort"]]
    assert (first["gen_ai.usage.output_tokens"], first["engine.queued_s"], first["engine.prefill_s"]) == (1, 0.5, 1.0)
    assert (second["gen_ai.usage.input_tokens"], second["engine.queued_s"], second["engine.prefill_s"]) == (
        5,
        None,
        None,
    )
    assert second["engine.e2e_s"] > 0.0


def test_one_that_ends_by_an_error_is_recorded_by_its_output_only(
    scheduler: Callable[..., Any], records: Records
) -> None:
    engine = scheduler()
    engine.finish_requests([Request("r", FinishReason.STOP)])
    engine.update_from_output(step(EngineCoreOutput("r", [], FinishReason.STOP)))
    assert len(records.named("engine.request")) == 1


def test_what_has_ended_is_forgotten(scheduler: Callable[..., Any], records: Records) -> None:
    engine = scheduler()
    follower = engine.update_from_output.__closure__
    for at in range(100):
        engine.update_from_output(step(EngineCoreOutput(f"r{at}", [1], None, None, PrefillStats())))
        engine.update_from_output(step(EngineCoreOutput(f"r{at}", [2], FinishReason.STOP)))
    (held,) = [cell.cell_contents for cell in follower if isinstance(cell.cell_contents, core.Follower)]
    assert not held._progress


def test_the_engines_state_is_recorded_after_work(scheduler: Callable[..., Any], records: Records) -> None:
    engine = scheduler()
    output = EngineCoreOutput("r", [1, 2], None, None, PrefillStats(num_prompt_tokens=9))
    engine.update_from_output(step(output, stats=SchedulerStats(num_running_reqs=1)))
    (record,) = wait_until(lambda: records.named("engine.stats"), "the interval's end")
    assert (record["engine.index"], record["engine.running"]) == (1, 1)
    assert (record["engine.prompt_tokens"], record["engine.generation_tokens"]) == (9, 2)


def test_without_vllms_statistics_it_says_what_is_gone_without(
    scheduler: Callable[..., Any], records: Records, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = scheduler(log_stats=False)
    engine.update_from_output(step(EngineCoreOutput("r", [1], FinishReason.STOP, None, PrefillStats())))
    assert "--disable-log-stats" in capsys.readouterr().err
    (record,) = records.named("engine.request")
    assert (record["gen_ai.usage.output_tokens"], record["engine.queued_s"]) == (1, None)


def test_an_error_of_ours_ends_the_records_and_not_the_engine(
    scheduler: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    engine = scheduler()
    broken = {0: SimpleNamespace()}
    assert engine.update_from_output(broken) is broken
    assert engine.update_from_output(broken) is broken
    assert capsys.readouterr().err.count("no more engine records: AttributeError") == 1


LACKS = [(where, name) for where, names in needs.SCHEDULED.items() for name in names]


@pytest.mark.parametrize(("where", "name"), LACKS, ids=[f"{where[1]}.{name}" for where, name in LACKS])
def test_what_vllm_lacks_is_reported_by_name_and_the_engine_is_left_alone(
    scheduler: Callable[..., Any],
    records: Records,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    where: tuple[str, str],
    name: str,
) -> None:
    module, kind = where
    rest = dict.fromkeys(set(needs.SCHEDULED[where]) - {name})
    monkeypatch.setattr(sys.modules[module], kind, type(kind, (), {"__annotations__": rest}))
    engine = scheduler()
    assert f"{module}.{kind}.{name}" in capsys.readouterr().err
    assert "update_from_output" not in vars(engine)


def test_a_vllm_without_that_scheduler_starts_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_vllm.install(monkeypatch)
    monkeypatch.setitem(sys.modules, "vllm.v1.core.sched.scheduler", None)
    core.follow_schedulers()
    assert "there are no engine records" in capsys.readouterr().err


def test_nothing_is_opened_before_there_is_a_scheduler(
    monkeypatch: pytest.MonkeyPatch, configure: Any, tmp_path: Path
) -> None:
    fake_vllm.install(monkeypatch)
    threads = threading.active_count()
    core.follow_schedulers()
    assert threading.active_count() == threads
    assert not list(tmp_path.iterdir())


BUSY = SchedulerStats(
    num_running_reqs=2,
    num_waiting_reqs=1,
    num_skipped_waiting_reqs=3,
    kv_cache_usage=0.25,
    prefix_cache_stats=PrefixCacheStats(queries=10, hits=4),
)


@pytest.fixture
def kept() -> Iterator[Records]:
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


def statistics(kept: Records, timers: Timers, *, speculates: bool = False, failed: Any = None) -> Statistics:
    """Return the intervals of a logger whose records are captured."""
    return Statistics(kept.logger, timers.later, failed, speculates=speculates, clock=lambda: timers.now)


def test_an_interval_counts_its_work_and_shows_the_last_state(kept: Records, timers: Timers) -> None:
    interval = statistics(kept, timers).interval(7)
    interval.see(BUSY)
    interval.see(BUSY)
    interval.count(prompt_tokens=30, generation_tokens=6, preemptions=1, finished=2)
    timers.fire()
    (record,) = kept.named("engine.stats")
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
    kept: Records, timers: Timers
) -> None:
    several = statistics(kept, timers)
    several.interval(0).see(BUSY)
    timers.fire()
    assert not timers.asked
    several.interval(0).see(SchedulerStats())
    timers.fire()
    assert not timers.asked
    assert [record["engine.running"] for record in kept.named("engine.stats")] == [2, 0]


def test_one_timer_serves_all_engines_and_each_has_its_record(kept: Records, timers: Timers) -> None:
    several = statistics(kept, timers)
    for index in (0, 1, 0):
        several.interval(index).count(1, 1, 0, 0)
    timers.fire()
    found = {record["engine.index"]: record["engine.prompt_tokens"] for record in kept.named("engine.stats")}
    assert found == {0: 2, 1: 1}


def test_what_the_engine_did_not_report_is_null(kept: Records, timers: Timers) -> None:
    statistics(kept, timers).interval(0).count(1, 1, 0, 0)
    timers.fire()
    (record,) = kept.named("engine.stats")
    reported = ("engine.running", "engine.waiting", "engine.kv_cache_usage", "engine.prefix_cache_queries")
    assert [record[name] for name in reported] == [None] * 4
    assert record["engine.prompt_tokens"] == 1


@pytest.mark.parametrize(("drafted", "rate"), [(8, 0.75), (0, None)])
def test_where_there_is_speculation_its_acceptance_is_recorded(
    kept: Records, timers: Timers, drafted: int, rate: float | None
) -> None:
    interval = statistics(kept, timers, speculates=True).interval(0)
    drafts = SpecDecodingStats(num_drafts=drafted // 4, num_draft_tokens=drafted, num_accepted_tokens=drafted * 3 // 4)
    interval.see(SchedulerStats(spec_decoding_stats=drafts))
    timers.fire()
    values = [kept.named("engine.stats")[0][name] for name in SPECULATION_FIELDS]
    assert values == [drafted // 4, drafted, drafted * 3 // 4, rate]


def test_an_error_while_recording_is_reported_and_goes_no_further(kept: Records, timers: Timers) -> None:
    failed: list[Exception] = []
    statistics(kept, timers, failed=failed.append).interval(0).generation_tokens = "many"  # type: ignore[assignment]
    timers.fire()
    assert [type(error) for error in failed] == [TypeError]
