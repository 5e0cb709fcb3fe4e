"""Requests that end before their answer: what vLLM's engine says of those that it aborts or gives up."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from inference_logging.testing import Records
from tests.fake_vllm import AsyncLLM, FinishReason
from tests.fake_vllm_engine import attached, during_a_request, engine, modules, records, taken_after, timers

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


def test_a_request_aborted_before_its_first_token_has_no_times_but_its_own(attached: Any) -> None:
    stat_logger, processor = attached
    taken = taken_after(
        stat_logger,
        lambda: processor.run("i", "chatcmpl-1", arrival_time=time.time()),
        lambda: processor.abort_requests(["i"], internal=True),
    )
    assert (taken.output_tokens, taken.queued_s, taken.prefill_s, taken.decode_s) == (0, None, None, None)


def test_an_aborted_request_of_an_engine_without_statistics_has_no_time_before_its_first_token(attached: Any) -> None:
    stat_logger, processor = attached
    taken = taken_after(
        stat_logger,
        lambda: processor.run("i", "chatcmpl-1", arrival_time=time.time(), first_token_ts=11.5, last_token_ts=13.5),
        lambda: processor.abort_requests(["i"], internal=True),
    )
    assert (taken.queued_s, taken.prefill_s, taken.decode_s) == (None, None, 2.0)


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
