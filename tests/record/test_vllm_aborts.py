"""Requests of vLLM's engine: what it says of those that end before their answer, and a vLLM that lacks something."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from inference_logging._native import RequestIds
from inference_logging.record.integrations.vllm import needs
from inference_logging.record.integrations.vllm.records import ID_CHARACTERS, REQUEST_FIELDS, EngineRequests, Finished
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


@pytest.mark.parametrize("internal", [True, False])
def test_an_aborted_request_is_taken_with_its_tokens_so_far(attached: Any, internal: bool) -> None:
    stat_logger, processor = attached
    times = {"queued_ts": 10.0, "scheduled_ts": 10.5, "first_token_ts": 11.5, "last_token_ts": 13.5}
    given = iter(["i" if internal else "chatcmpl-1"])
    taken = taken_after(
        stat_logger,
        lambda: processor.run("i", "chatcmpl-1", num_generation_tokens=9, arrival_time=time.time() - 60.0, **times),
        lambda: processor.abort_requests(given, internal),
    )
    assert (taken.finish_reasons, taken.asked) == (["abort"], None), "by its own request"
    assert (taken.input_tokens, taken.output_tokens) == (5, 9)
    assert (taken.queued_s, taken.prefill_s, taken.decode_s) == (0.5, 1.0, 2.0)
    assert taken.e2e_s >= 60.0


@pytest.mark.parametrize(
    ("times", "decode_s"),
    [
        pytest.param({}, None, id="before-the-first-token"),
        pytest.param({"first_token_ts": 11.5, "last_token_ts": 13.5}, 2.0, id="engine-without-statistics"),
    ],
)
def test_an_aborted_request_has_no_time_before_its_first_token_that_the_engine_does_not_report(
    attached: Any, times: dict[str, float], decode_s: float | None
) -> None:
    stat_logger, processor = attached
    taken = taken_after(
        stat_logger,
        lambda: processor.run("i", "chatcmpl-1", arrival_time=time.time(), **times),
        lambda: processor.abort_requests(["i"], internal=True),
    )
    assert (taken.output_tokens, taken.queued_s, taken.prefill_s, taken.decode_s) == (0, None, None, decode_s)


def test_the_children_of_an_aborted_parent_are_each_seen_once(attached: Any) -> None:
    stat_logger, processor = attached
    processor.children["parent"] = ["a", "b"]
    taken = taken_after(
        stat_logger,
        *(lambda at=at, child=child: processor.run(child, "chatcmpl-1", at) for at, child in enumerate("ab")),
        lambda: processor.abort_requests(["parent"], internal=True),
    )
    assert taken.requests == 2


def test_what_runs_still_as_an_answer_breaks_off_counts_with_what_it_has_come_to(
    attached: Any, records: Records
) -> None:
    stat_logger, processor = attached
    taken = taken_after(
        stat_logger, lambda: processor.run("i", "chatcmpl-1", num_generation_tokens=9), with_running=True
    )
    assert (taken.requests, taken.input_tokens, taken.output_tokens) == (1, 5, 9)
    assert (taken.finish_reasons, taken.asked) == ([], None)
    processor.abort_requests(["i"], internal=True)
    assert not records.named("engine.request")


def test_a_request_that_another_one_aborts_was_asked_for(attached: Any) -> None:
    stat_logger, processor = attached

    def elsewhere() -> None:
        with ThreadPoolExecutor() as thread:
            abort = partial(processor.abort_requests, ["chatcmpl-1"], internal=False)
            thread.submit(during_a_request, lambda ids: abort() and None).result()

    taken = taken_after(stat_logger, lambda: processor.run("i", "chatcmpl-1"), elsewhere)
    assert (taken.finish_reasons, taken.asked) == (["abort"], True)


@pytest.mark.parametrize("call", ["pause_generation", "sleep", None])
def test_what_an_engine_gives_up_was_asked_for_while_it_is_paused(engine: Any, call: str | None) -> None:
    stat_logger, client = engine(), AsyncLLM()
    stat_logger.attach(client)
    processor = client.output_processor

    async def paused() -> None:
        task = asyncio.create_task(getattr(client, call)(mode="abort")) if call else None
        await asyncio.sleep(0)
        processor.end("i", finish_reason=FinishReason.ABORT)
        if task is not None:
            await task

    taken = taken_after(stat_logger, lambda: processor.run("i", "chatcmpl-1"), paused)
    assert (taken.finish_reasons, taken.asked) == (["abort"], call is not None)


def test_without_middleware_each_finished_request_is_recorded_at_once(engine: Any, records: Records) -> None:
    engine().record(None, finished(num_cached_tokens=4, num_preemptions=1), engine_idx=2)
    (record,) = records.named("engine.request")
    assert {name: record[name] for name in REQUEST_FIELDS} == {
        "engine.request_id": "chatcmpl-1",
        "engine.index": 2,
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "engine.finish_reasons": ["length"],
        "engine.queued_s": 0.001,
        "engine.prefill_s": 0.002,
        "engine.decode_s": 0.003,
        "engine.e2e_s": 0.5,
        "engine.preemptions": 1,
    }
    assert "trace_id" not in record


def test_a_record_never_has_the_ids_of_the_context_in_which_vllm_happens_to_run(engine: Any, records: Records) -> None:
    stat_logger = engine()
    during_a_request(lambda ids: stat_logger.record(None, finished()))
    (record,) = records.named("engine.request")
    assert "request_id" not in record


def test_a_request_takes_what_has_ended_of_it_once(attached: Any, records: Records) -> None:
    stat_logger, processor = attached
    taken = taken_after(
        stat_logger, lambda: processor.run("i", "chatcmpl-1"), lambda: stat_logger.record(None, processor.end("i"))
    )
    assert (taken.request_id, taken.requests, taken.asked) == ("chatcmpl-1", 1, None)
    assert (taken.input_tokens, taken.output_tokens, taken.finish_reasons) == (5, 7, ["length"])
    assert (taken.queued_s, taken.prefill_s, taken.decode_s, taken.e2e_s) == (0.001, 0.002, 0.003, 0.5)
    assert not records.named("engine.request")


def test_two_requests_of_one_id_have_each_its_own_numbers(attached: Any, records: Records) -> None:
    stat_logger, processor = attached
    taken: list[Any] = []

    def first(ids: RequestIds) -> None:
        processor.run("a", "chatcmpl-1")
        with ThreadPoolExecutor() as elsewhere:
            elsewhere.submit(during_a_request, second).result()
        processor.end("a", num_generation_tokens=11)
        taken.append(stat_logger.take(ids, with_running=False))

    def second(ids: RequestIds) -> None:
        processor.run("b", "chatcmpl-1")
        processor.end("b", num_generation_tokens=22)
        taken.append(stat_logger.take(ids, with_running=False))

    during_a_request(first)
    assert [numbers.output_tokens for numbers in taken] == [22, 11]
    assert not records.named("engine.request")


def test_a_retry_with_the_id_of_a_request_that_never_came_to_the_engine_has_its_numbers(attached: Any) -> None:
    stat_logger, processor = attached
    assert taken_after(stat_logger) is None
    taken = taken_after(stat_logger, lambda: processor.run("i", "chatcmpl-1"), lambda: processor.end("i"))
    assert taken.requests == 1


@pytest.mark.parametrize("name", ["beam_search-1f-beam-{}", "chatcmpl-x_{}", "embd-x-{}", "generative-scoring-x-{}"])
def test_whatever_vllm_calls_them_all_requests_that_begin_in_one_are_its_own(attached: Any, name: str) -> None:
    stat_logger, processor = attached

    async def beam(at: int) -> None:
        processor.run(f"i{at}", name.format(at))

    async def beams() -> None:
        await asyncio.gather(*(asyncio.create_task(beam(at)) for at in range(3)))

    taken = taken_after(stat_logger, beams, *(lambda at=at: processor.end(f"i{at}") for at in range(3)))
    assert (taken.requests, taken.input_tokens, taken.output_tokens) == (3, 15, 21)
    assert taken.request_id == name.format(0)


def test_choices_of_a_prompt_are_taken_as_one_and_the_prompt_counts_once(attached: Any) -> None:
    stat_logger, processor = attached
    taken = taken_after(
        stat_logger,
        *(lambda at=at: processor.run(f"{at}_i", "chatcmpl-1", at) for at in range(2)),
        lambda: processor.end("1_i", num_cached_tokens=4, decode_time=0.1),
        lambda: processor.end("0_i", num_cached_tokens=0, decode_time=0.3, finish_reason=FinishReason.STOP),
    )
    assert (taken.requests, taken.input_tokens, taken.output_tokens, taken.cached_tokens) == (2, 5, 14, 0)
    assert (taken.finish_reasons, taken.decode_s) == (["length", "stop"], 0.3)


def test_what_ends_after_the_http_request_is_recorded_at_once_with_its_ids(attached: Any, records: Records) -> None:
    _, processor = attached

    def work(ids: RequestIds) -> None:
        processor.run("a", "chatcmpl-1")
        assert attached[0].take(ids, with_running=False) is None

    of_request = during_a_request(work)
    processor.abort_requests(["a"], internal=True)
    (record,) = records.named("engine.request")
    assert (record["request_id"], record["trace_id"]) == (of_request.request_id, of_request.trace_id)
    assert record["engine.index"] == 3


def test_what_begins_after_the_http_request_is_recorded_with_its_ids_when_it_ends(
    attached: Any, records: Records
) -> None:
    _, processor = attached
    context: list[contextvars.Context] = []
    of_request = during_a_request(lambda ids: context.append(contextvars.copy_context()))
    context[0].run(processor.run, "background", "resp_1")
    processor.end("background")
    (record,) = records.named("engine.request")
    assert record["request_id"] == of_request.request_id


def test_a_request_that_the_engine_refused_has_no_numbers(attached: Any) -> None:
    stat_logger, processor = attached
    steps = (lambda: processor.run("i", "chatcmpl-1"), lambda: processor.finish("i"))
    assert taken_after(stat_logger, *steps, with_running=True) is None


def test_a_request_that_is_not_recorded_leaves_no_record_of_the_engine(attached: Any, records: Records) -> None:
    stat_logger, processor = attached
    processor.run("i", "chatcmpl-1")
    stat_logger.record(None, processor.end("i"))
    processor.run("j", "chatcmpl-2")
    processor.abort_requests(["j"], internal=True)
    assert not records.named("engine.request")


def test_what_began_before_the_middleware_was_there_is_recorded_by_itself(engine: Any, records: Records) -> None:
    stat_logger, client = engine(), AsyncLLM()
    processor = client.output_processor
    processor.run("i", "chatcmpl-1")
    stat_logger.attach(client)
    stat_logger.record(None, processor.end("i"))
    assert len(records.named("engine.request")) == 1


def test_more_input_for_a_request_that_runs_is_part_of_it(attached: Any) -> None:
    stat_logger, processor = attached
    more = (lambda: processor.run("i", "chatcmpl-1"),) * 2
    assert taken_after(stat_logger, *more, lambda: processor.end("i")).requests == 1


@pytest.mark.parametrize("queued_time", [-1234.5, 0.0], ids=["never-scheduled", "engine-without-statistics"])
def test_a_schedule_that_the_engine_does_not_report_gives_neither_queued_nor_prefill_time(
    engine: Any, records: Records, queued_time: float
) -> None:
    engine().record(None, finished(queued_time=queued_time, prefill_time=1236.0))
    (record,) = records.named("engine.request")
    assert (record["engine.queued_s"], record["engine.prefill_s"]) == (None, None)


def test_an_id_of_a_client_is_cut(engine: Any, records: Records) -> None:
    name = "chatcmpl-" + "x" * 60_000
    engine().record(None, finished(name))
    (record,) = records.named("engine.request")
    assert record["engine.request_id"] == name[:ID_CHARACTERS]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_longest_of_several_counts_where_any_is_known(order: tuple[int, int]) -> None:
    of_request, whole = EngineRequests(), Finished("cmpl-1", 0, 5, 1, 0, "stop", 0.4, None, 0.1, 1.0, 0)
    for at in order:
        of_request.add((whole, whole._replace(queued_s=None, decode_s=0.3, e2e_s=2.0))[at])
    assert (of_request.queued_s, of_request.prefill_s, of_request.decode_s, of_request.e2e_s) == (0.4, None, 0.3, 2.0)


def test_a_batch_counts_in_the_interval_of_its_engine(engine: Any, records: Records, timers: Timers) -> None:
    stat_logger = engine((0, 1), speculative_config=object())
    stat_logger.record(SchedulerStats(num_running_reqs=4), IterationStats(tokens=3, prompt_tokens=8), engine_idx=1)
    ((delay_s, end),) = timers
    end()
    (record,) = records.named("engine.stats")
    assert delay_s == 3.0
    assert (record["engine.index"], record["engine.running"]) == (1, 4)
    assert (record["engine.generation_tokens"], record["engine.prompt_tokens"]) == (3, 8)
    assert record["engine.spec_decode_drafts"] == 0


# fixtures


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
