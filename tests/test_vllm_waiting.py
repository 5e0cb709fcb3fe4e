"""The table in which engine requests wait: each is taken or recorded, once; it is bounded; ids are the right ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_logging.integrations.vllm.records import Finished, merge
from inference_logging.integrations.vllm.waiting import NOTE_S, NOTES_LIMIT, WAITING_LIMIT, WAITING_S, Waiting

ANY_IDS: Any = object()
OTHER_IDS: Any = object()


class Table:
    """A table with a clock that is set by hand; ``recorded`` is what it recorded by itself, with which ids."""

    def __init__(self) -> None:
        self.recorded: list[tuple[Finished, Any]] = []
        self.running: dict[str, list[str]] = {}
        self.now = 1000.0
        self.waiting = Waiting(lambda entry, ids: self.recorded.append((entry, ids)), self.running, lambda: self.now)


@pytest.fixture
def table() -> Table:
    return Table()


def entry(request_id: str = "chatcmpl-1", tokens: int = 1, **values: Any) -> Finished:
    """Return a request that has ended."""
    return Finished(request_id, 0, 5, tokens, 0, "stop", 0.1, 0.2, 0.3, 0.6, 0)._replace(**values)


def test_the_longest_of_several_counts_where_any_is_known() -> None:
    merged = merge([entry(queued_s=None, e2e_s=2.0), entry(queued_s=0.4, e2e_s=None), entry(queued_s=0.1, e2e_s=1.0)])
    assert (merged.queued_s, merged.e2e_s) == (0.4, 2.0)
    assert merge([entry(queued_s=None)]).queued_s is None


def test_each_prompt_counts_once_and_its_cached_tokens_are_those_of_the_first_computed() -> None:
    entries = [entry("cmpl-x-0", cached_tokens=4), entry("cmpl-x-1", cached_tokens=2), entry("cmpl-x-0")]
    merged = merge(entries)
    assert (merged.requests, merged.input_tokens, merged.cached_tokens) == (3, 10, 2)


def test_it_holds_no_more_than_its_limit_and_records_the_oldest(table: Table) -> None:
    for at in range(WAITING_LIMIT + 10):
        table.waiting.add(entry(f"chatcmpl-{at}x"))
    assert len(table.waiting) == WAITING_LIMIT
    assert [recorded.request_id for recorded, _ in table.recorded] == [f"chatcmpl-{at}x" for at in range(10)]


def test_many_choices_under_one_id_are_bounded_too(table: Table) -> None:
    for _ in range(WAITING_LIMIT + 1):
        table.waiting.add(entry())
    assert len(table.waiting) + len(table.recorded) == WAITING_LIMIT + 1
    assert len(table.waiting) <= WAITING_LIMIT


def test_notes_are_bounded_and_the_oldest_is_forgotten(table: Table) -> None:
    for at in range(NOTES_LIMIT + 1):
        table.waiting.take(f"chatcmpl-{at}x", ANY_IDS)
    for name in ("chatcmpl-0x", f"chatcmpl-{NOTES_LIMIT}x"):
        table.waiting.add(entry(name))
    assert [recorded.request_id for recorded, _ in table.recorded] == [f"chatcmpl-{NOTES_LIMIT}x"]
    assert len(table.waiting) == 1


@pytest.mark.parametrize("engine_id", ["x", "x-0", "x_1"])
def test_what_ends_after_its_http_request_has_that_ones_ids(table: Table, engine_id: str) -> None:
    assert table.waiting.take("x", ANY_IDS) is None
    table.waiting.add(entry(engine_id))
    assert table.recorded == [(entry(engine_id), ANY_IDS)]


def test_a_part_of_the_prompts_is_taken_and_the_rest_recorded_when_it_ends(table: Table) -> None:
    table.running["cmpl-x-0"] = ["internal"]
    table.running["cmpl-x-2"] = ["internal"]
    table.waiting.add(entry("cmpl-x-1"))
    taken = table.waiting.take("cmpl-x", ANY_IDS)
    assert taken is not None
    assert taken.requests == 1
    for name in ("cmpl-x-0", "cmpl-x-2"):
        table.waiting.add(entry(name))
    assert [ids for _, ids in table.recorded] == [ANY_IDS, ANY_IDS]


def test_an_id_that_comes_again_belongs_to_the_request_that_has_it_then(table: Table) -> None:
    table.running["chatcmpl-1"] = ["first"]
    table.waiting.take("chatcmpl-1", ANY_IDS)
    table.waiting.add(entry(tokens=1))
    table.running.clear()
    table.waiting.add(entry(tokens=2))
    taken = table.waiting.take("chatcmpl-1", OTHER_IDS)
    assert taken is not None
    assert taken.output_tokens == 2
    assert table.recorded == [(entry(tokens=1), ANY_IDS)]


def test_a_note_is_not_good_for_ever(table: Table) -> None:
    table.waiting.take("chatcmpl-1", ANY_IDS)
    table.now += NOTE_S + 1.0
    table.waiting.add(entry())
    assert not table.recorded
    assert table.waiting.take("chatcmpl-1", OTHER_IDS) is not None


def test_what_waited_too_long_is_recorded_without_ids(table: Table) -> None:
    table.waiting.add(entry("chatcmpl-old"))
    table.now += WAITING_S + 1.0
    table.waiting.add(entry("chatcmpl-new"))
    table.waiting.sweep()
    assert table.recorded == [(entry("chatcmpl-old"), None)]
    assert len(table.waiting) == 1


@pytest.mark.parametrize(("ended", "runs"), [("chatcmpl-1", "chatcmpl-1"), ("cmpl-x-0", "cmpl-x-3")])
def test_what_has_ended_waits_while_the_rest_of_its_request_runs(table: Table, ended: str, runs: str) -> None:
    table.waiting.add(entry(ended))
    table.running[runs] = ["internal"]
    table.now += WAITING_S + 1.0
    table.waiting.sweep()
    assert not table.recorded
    table.running.clear()
    table.waiting.sweep()
    assert len(table.recorded) == 1


Action = Callable[[Table, int], Iterator[int]]


def _adds(table: Table, at: int) -> Iterator[int]:
    table.waiting.add(entry(f"cmpl-{at % 3}-{at % 2}", tokens=1))
    yield from ()


def _takes(table: Table, at: int) -> Iterator[int]:
    taken = table.waiting.take(f"cmpl-{at % 3}", ANY_IDS)
    yield taken.output_tokens if taken is not None else 0


def _waits(table: Table, at: int) -> Iterator[int]:
    table.now += at
    table.waiting.sweep()
    yield from ()


@given(st.lists(st.tuples(st.sampled_from([_adds, _adds, _takes, _waits]), st.integers(0, 20)), max_size=60))
def test_each_is_taken_or_recorded_exactly_once_whatever_happens(actions: list[tuple[Action, int]]) -> None:
    table = Table()
    taken = sum(tokens for act, at in actions for tokens in act(table, at))
    added = sum(act is _adds for act, _ in actions)
    assert taken + len(table.recorded) + len(table.waiting) == added
    table.waiting.clear()
    assert taken + len(table.recorded) == added


def test_one_is_merged_as_several_are() -> None:
    one = entry(cached_tokens=3, preemptions=2)
    nothing = entry(tokens=0, preemptions=0, queued_s=None, prefill_s=None, decode_s=None, e2e_s=None)
    alone, beside = merge([one]), merge([one, nothing._replace(input_tokens=5, cached_tokens=3)])
    assert alone == beside._replace(requests=1, finish_reasons=["stop"])
