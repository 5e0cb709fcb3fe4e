"""Engine records in the processes that serve: what vLLM's statistics and its aborts become."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from inference_logging import InferenceLoggingMiddleware
from inference_logging._native import RequestIds
from inference_logging.context import REQUEST
from inference_logging.integrations.vllm import needs
from inference_logging.integrations.vllm.records import ID_CHARACTERS, REQUEST_FIELDS
from inference_logging.testing import Records, capture_records
from tests import fake_vllm
from tests.fake_vllm import FinishedRequestStats, FinishReason, IterationStats, OutputProcessor, SchedulerStats
from tests.support import Client, Receive, Send, http_scope, serve_one

Timers = list[tuple[float, Callable[[], None]]]


@pytest.fixture
def records() -> Iterator[Records]:
    with capture_records(engine_records="on", engine_stats_interval_s=3.0) as captured:
        yield captured


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return fake_vllm.install(monkeypatch)


@pytest.fixture
def timers() -> Timers:
    """Return what the event loop was asked to call later."""
    return []


@pytest.fixture
def engine(
    records: Records, modules: dict[str, Any], timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Make the stat logger as vLLM does."""

    def make(engine_indexes: tuple[int, ...] = (0,), **config: object) -> Any:
        module = importlib.import_module("inference_logging.integrations.vllm.engine")
        monkeypatch.setattr(module, "_later", lambda delay_s, call: timers.append((delay_s, call)))
        return module.EngineStatLogger(
            vllm_config=SimpleNamespace(**{"speculative_config": None, **config}), engine_indexes=list(engine_indexes)
        )

    return make


@pytest.fixture
def ids(records: Records) -> Callable[[], RequestIds]:
    """Serve a request and return its ids, as the middleware has them."""

    def serve() -> RequestIds:
        found: list[RequestIds] = []

        async def app(scope: Any, receive: Receive, send: Send) -> None:
            found.append(REQUEST.get())  # type: ignore[arg-type] # inside a request there are ids

        serve_one(InferenceLoggingMiddleware(app), http_scope(), Client())
        return found[0]

    return serve


def finished(request_id: str = "chatcmpl-1", **values: Any) -> IterationStats:
    """Return the statistics of a batch in which one request ended."""
    return IterationStats(FinishedRequestStats(request_id=request_id, **values))


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


def test_a_record_never_has_the_ids_of_the_context_in_which_vllm_happens_to_run(
    engine: Any, records: Records, ids: Callable[[], RequestIds]
) -> None:
    token = REQUEST.set(ids())
    try:
        engine().record(None, finished())
    finally:
        REQUEST.reset(token)
    (record,) = records.named("engine.request")
    assert "request_id" not in record


def test_an_attached_middleware_takes_what_has_ended_once(engine: Any, records: Records) -> None:
    stat_logger = engine()
    stat_logger.attach(OutputProcessor())
    stat_logger.record(None, finished())
    taken = stat_logger.take("chatcmpl-1", None)
    assert taken.requests == 1
    assert (taken.input_tokens, taken.output_tokens, taken.finish_reasons) == (5, 7, ["length"])
    assert (taken.queued_s, taken.prefill_s, taken.decode_s, taken.e2e_s) == (0.001, 0.002, 0.003, 0.5)
    assert stat_logger.take("chatcmpl-1", None) is None
    assert not records.named("engine.request")


def test_choices_of_a_prompt_are_taken_as_one_and_the_prompt_counts_once(engine: Any) -> None:
    stat_logger = engine()
    stat_logger.attach(OutputProcessor())
    stat_logger.record(None, finished(num_cached_tokens=0, decode_time=0.1))
    stat_logger.record(None, finished(num_cached_tokens=4, decode_time=0.3, finish_reason=FinishReason.STOP))
    taken = stat_logger.take("chatcmpl-1", None)
    assert (taken.requests, taken.input_tokens, taken.output_tokens, taken.cached_tokens) == (2, 5, 14, 0)
    assert (taken.finish_reasons, taken.decode_s) == (["length", "stop"], 0.3)


@pytest.mark.parametrize("separator", ["-", "_"])
def test_several_prompts_are_taken_as_one(engine: Any, separator: str) -> None:
    stat_logger = engine()
    stat_logger.attach(OutputProcessor())
    for at in (1, 0, 2):
        stat_logger.record(None, finished(f"cmpl-x{separator}{at}"))
    taken = stat_logger.take("cmpl-x", None)
    assert (taken.requests, taken.input_tokens, taken.output_tokens) == (3, 15, 21)


@pytest.mark.parametrize("internal", [True, False])
def test_an_aborted_request_is_taken_with_its_tokens_so_far(engine: Any, internal: bool) -> None:
    stat_logger, processor = engine((3,)), OutputProcessor()
    stat_logger.attach(processor)
    times = {"queued_ts": 10.0, "scheduled_ts": 10.5, "first_token_ts": 11.5, "last_token_ts": 13.5}
    processor.run("i", "chatcmpl-1", num_generation_tokens=9, arrival_time=time.time() - 60.0, **times)
    assert processor.abort_requests(iter(["i" if internal else "chatcmpl-1"]), internal) == ["i"]
    taken = stat_logger.take("chatcmpl-1", None)
    assert (taken.finish_reasons, taken.input_tokens, taken.output_tokens) == (["abort"], 5, 9)
    assert (taken.queued_s, taken.prefill_s, taken.decode_s) == (0.5, 1.0, 2.0)
    assert taken.e2e_s >= 60.0


def test_a_request_aborted_before_its_first_token_has_no_times_but_its_own(engine: Any) -> None:
    stat_logger, processor = engine(), OutputProcessor()
    stat_logger.attach(processor)
    processor.run("i", "chatcmpl-1", arrival_time=time.time())
    processor.abort_requests(["i"], internal=True)
    taken = stat_logger.take("chatcmpl-1", None)
    assert (taken.output_tokens, taken.queued_s, taken.prefill_s, taken.decode_s) == (0, None, None, None)


def test_an_aborted_request_of_an_engine_without_statistics_has_no_time_before_its_first_token(engine: Any) -> None:
    stat_logger, processor = engine(), OutputProcessor()
    stat_logger.attach(processor)
    processor.run("i", "chatcmpl-1", arrival_time=time.time(), first_token_ts=11.5, last_token_ts=13.5)
    processor.abort_requests(["i"], internal=True)
    taken = stat_logger.take("chatcmpl-1", None)
    assert (taken.queued_s, taken.prefill_s, taken.decode_s) == (None, None, 2.0)


def test_the_children_of_an_aborted_parent_are_each_seen_once(engine: Any) -> None:
    stat_logger, processor = engine(), OutputProcessor()
    stat_logger.attach(processor)
    for child in ("a", "b"):
        processor.run(child, "chatcmpl-1", num_generation_tokens=2)
    processor.children["parent"] = ["a", "b"]
    processor.abort_requests(["parent"], internal=True)
    assert stat_logger.take("chatcmpl-1", None).requests == 2


def test_what_is_aborted_after_the_http_request_is_recorded_at_once_with_its_ids(
    engine: Any, records: Records, ids: Callable[[], RequestIds]
) -> None:
    stat_logger, processor, of_request = engine(), OutputProcessor(), ids()
    stat_logger.attach(processor)
    for child in ("a", "b"):
        processor.run(child, "chatcmpl-1")
    assert stat_logger.take("chatcmpl-1", of_request) is None
    processor.abort_requests(["a", "b"], internal=True)
    found = records.named("engine.request")
    assert [record["request_id"] for record in found] == [of_request.request_id] * 2
    assert {record["trace_id"] for record in found} == {of_request.trace_id}


def test_pooling_requests_do_not_wait(engine: Any, records: Records) -> None:
    stat_logger = engine()
    stat_logger.attach(OutputProcessor())
    stat_logger.record(None, finished("embd-1-0", max_tokens_param=None))
    assert len(records.named("engine.request")) == 1


@pytest.mark.parametrize("queued_time", [-1234.5, 0.0], ids=["never-scheduled", "engine-without-statistics"])
def test_a_schedule_that_the_engine_does_not_report_gives_neither_queued_nor_prefill_time(
    engine: Any, records: Records, queued_time: float
) -> None:
    engine().record(None, finished(queued_time=queued_time, prefill_time=1236.0))
    (record,) = records.named("engine.request")
    assert (record["engine.queued_s"], record["engine.prefill_s"]) == (None, None)


def test_what_nobody_takes_is_recorded_when_it_has_waited_long_enough(
    engine: Any, records: Records, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat_logger = engine()
    stat_logger.attach(OutputProcessor())
    stat_logger.record(None, finished())
    ((_, sweep),) = [timer for timer in timers if timer[0] != 3.0]
    sweep()
    assert not records.named("engine.request")
    since = time.monotonic()
    monkeypatch.setattr(stat_logger._waiting, "_clock", lambda: since + 60.0)
    timers[-1][1]()
    assert len(records.named("engine.request")) == 1


def test_detaching_records_what_waits_and_gives_vllm_its_method_back(engine: Any, records: Records) -> None:
    stat_logger, processor = engine(), OutputProcessor()
    stat_logger.attach(processor)
    stat_logger.attach(processor)
    stat_logger.record(None, finished())
    stat_logger.detach()
    stat_logger.detach()
    assert "abort_requests" not in vars(processor)
    assert len(records.named("engine.request")) == 1
    assert stat_logger.take("chatcmpl-1", None) is None


def test_an_id_of_a_client_is_cut(engine: Any, records: Records) -> None:
    stat_logger = engine()
    stat_logger.attach(OutputProcessor())
    name = "chatcmpl-" + "x" * 60_000
    stat_logger.record(None, finished(name))
    assert stat_logger.take(name, None) is None
    (record,) = records.named("engine.request")
    assert record["engine.request_id"] == name[:ID_CHARACTERS]


def test_statistics_of_another_shape_end_their_part_and_nothing_else(
    engine: Any, records: Records, timers: Timers, capsys: pytest.CaptureFixture[str]
) -> None:
    stat_logger, processor = engine(), OutputProcessor()
    stat_logger.attach(processor)
    for _ in range(3):
        stat_logger.record(SchedulerStats(), SimpleNamespace(finished_requests=[object()]))
    stat_logger.record(SchedulerStats(num_running_reqs=2))
    assert stat_logger.take("chatcmpl-1", None) is None
    reported = capsys.readouterr().err
    assert reported.count("no more records of engine requests: AttributeError") == 1
    assert reported.count("no more engine.stats records: AttributeError") == 1
    assert len([log for log in records.logs if log["severity_text"] == "WARN"]) == 2


def test_an_abort_of_another_shape_is_vllms_as_it_was(engine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    stat_logger, processor = engine(), OutputProcessor()
    stat_logger.attach(processor)
    processor.run("i", "chatcmpl-1")
    processor.request_states["i"].stats = None  # type: ignore[assignment]
    assert processor.abort_requests(["i"], internal=True) == ["i"]
    assert capsys.readouterr().err.count("no more engine records of aborted requests") == 1
    stat_logger.record(None, finished("chatcmpl-2"))
    assert stat_logger.take("chatcmpl-2", None) is not None


def test_an_error_of_vllms_own_abort_is_vllms(engine: Any) -> None:
    stat_logger, processor = engine(), OutputProcessor()
    stat_logger.attach(processor)
    processor.request_states["broken"] = SimpleNamespace()  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        processor.abort_requests(["broken"], internal=True)


NEEDS = {**needs.FINISHED, **needs.ABORTED}
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
    stat_logger.attach(OutputProcessor())
    stat_logger.record(SchedulerStats(), finished())
    assert (stat_logger.take("chatcmpl-1", None) is None) == (where in needs.FINISHED)
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
        module = importlib.import_module("inference_logging.integrations.vllm.engine")
        # Without an event loop an interval could not begin.
        module.EngineStatLogger(SimpleNamespace(), [0]).record(SchedulerStats(), IterationStats())
    assert capsys.readouterr().err == ""


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


def test_a_later_version_may_give_record_more(engine: Any, records: Records) -> None:
    engine().record(None, finished(), None, 0, something_new=object())
    assert len(records.named("engine.request")) == 1
