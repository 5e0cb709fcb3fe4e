"""A vLLM of another shape: what it lacks is reported and gone without, and its requests are as they were."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from inference_logging._native import RequestIds
from inference_logging.record.integrations.vllm import needs
from inference_logging.testing import Records, capture_records
from tests.kit.fake_vllm import AsyncLLM, FinishReason, IterationStats, RequestState, SchedulerStats
from tests.record.fake_vllm_engine import (
    Timers,
    attached,
    during_a_request,
    engine,
    finished,
    modules,
    records,
    taken_after,
    timers,
)

__all__ = ["attached", "engine", "modules", "records", "timers"]  # fixtures


def test_detaching_gives_vllm_its_methods_back_and_what_has_ended_can_be_taken(engine: Any) -> None:
    stat_logger, client = engine(), AsyncLLM()
    processor = client.output_processor
    stat_logger.attach(client)
    stat_logger.attach(client)
    taken = taken_after(
        stat_logger,
        lambda: processor.run("i", "chatcmpl-1"),
        lambda: processor.end("i"),
        stat_logger.detach,
        stat_logger.detach,
    )
    assert taken.requests == 1
    assert vars(client) == {"output_processor": processor}
    assert not [value for value in vars(processor).values() if callable(value)]


def test_statistics_of_another_shape_end_their_part_and_nothing_else(
    engine: Any, records: Records, timers: Timers, capsys: pytest.CaptureFixture[str]
) -> None:
    stat_logger = engine()
    for _ in range(3):
        stat_logger.record(SchedulerStats(), SimpleNamespace(finished_requests=[object()]))
    stat_logger.record(SchedulerStats(num_running_reqs=2))
    reported = capsys.readouterr().err
    assert reported.count("no more records of engine requests: AttributeError") == 1
    assert reported.count("no more engine.stats records: AttributeError") == 1
    assert len([log for log in records.logs if log["severity_text"] == "WARN"]) == 2


@pytest.mark.parametrize("step", ["add_request", "_update_stats_from_finished", "abort_requests"])
def test_a_request_of_another_shape_is_vllms_as_it_was(
    attached: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    stat_logger, processor = attached

    def work(ids: RequestIds) -> None:
        if step == "add_request":
            monkeypatch.setattr(RequestState, "inference_logging", property(), raising=False)
        processor.run("i", "chatcmpl-1")
        processor.request_states["i"].stats = processor._ending = None
        if step == "abort_requests":
            assert processor.abort_requests(["i"], internal=True) == ["i"]
        else:
            state, batch = processor.request_states["i"], IterationStats()
            processor._update_stats_from_finished(state, FinishReason.STOP, batch)
            assert batch.finished_requests == [None]
        assert stat_logger.take(ids, with_running=True) is None

    during_a_request(work)
    assert capsys.readouterr().err.count("no more records of engine requests") == 1


NEEDS = {**needs.FINISHED, **needs.JOINED}
LACKS = [(where, name) for where, names in NEEDS.items() for name in (None, *names)]


@pytest.mark.parametrize(("where", "name"), LACKS, ids=[f"{where[1]}.{name}" for where, name in LACKS])
def test_what_vllm_lacks_is_reported_by_name_at_start_and_gone_without(
    engine: Any,
    modules: dict[str, Any],
    records: Records,
    capsys: pytest.CaptureFixture[str],
    where: tuple[str, str],
    name: str | None,
) -> None:
    module, kind = where
    delattr(modules[module], kind)
    if name is not None:
        setattr(modules[module], kind, type(kind, (), {"__annotations__": dict.fromkeys(set(NEEDS[where]) - {name})}))
    stat_logger = engine()
    reported = capsys.readouterr().err
    assert f"{module}.{kind}" + (f".{name}" if name else "") in reported
    assert any(f"{module}.{kind}" in log["message"] for log in records.logs)
    stat_logger.attach(AsyncLLM())
    stat_logger.record(SchedulerStats(), finished())
    assert len(records.named("engine.request")) == (where not in needs.FINISHED), "joined to nothing, but on record"
    assert "no more" not in capsys.readouterr().err


@pytest.mark.parametrize("where", list(needs.GAUGES), ids=lambda where: where[1])
def test_without_the_engines_statistics_its_requests_are_recorded_all_the_same(
    engine: Any, modules: dict[str, Any], records: Records, capsys: pytest.CaptureFixture[str], where: tuple[str, str]
) -> None:
    delattr(modules[where[0]], where[1])
    stat_logger = engine()
    assert f"there are no engine.stats records: this vLLM has no {where[0]}.{where[1]}" in capsys.readouterr().err
    stat_logger.record(SchedulerStats(), finished())
    assert len(records.named("engine.request")) == 1


def test_an_interval_of_zero_means_no_statistics(modules: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    with capture_records(engine_records="on", engine_stats_interval_s=0):
        module = importlib.import_module("inference_logging.record.integrations.vllm.engine")
        # Without an event loop an interval could not begin.
        module.EngineStatLogger(SimpleNamespace(), [0]).record(SchedulerStats(), IterationStats())
    assert capsys.readouterr().err == ""


def test_a_later_version_may_give_record_more(engine: Any, records: Records) -> None:
    engine().record(None, finished(), None, 0, something_new=object())
    assert len(records.named("engine.request")) == 1
