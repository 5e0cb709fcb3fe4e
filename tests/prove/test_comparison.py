"""`inference-logging ab`'s estimates hold a known cost, or say where they cannot."""

from __future__ import annotations

import math
import random
import re

import pytest

from inference_logging.prove.ab.comparison import (
    FOLLOWS,
    HIGHER,
    NOT_FOUND,
    Pair,
    Row,
    Slice,
    Times,
    Window,
    compare,
)
from inference_logging.prove.ab.findings import Findings
from inference_logging.read.stats.interval import LEAST_BLOCKS

PAIRS = 30
RATE = 400.0
REQUEST_S = 0.0021
CHUNKS = 8
SAMPLES = 40
"""Comparisons, each with noise of its own: an interval of 99 % misses the truth in none or one of them."""
FEW = 12
LEAST_HOLD = 37
LEAST_FOUND = 28
"""Where slices hold requests of both arms, a cost of 5 % is not always beyond the interval."""


def a_slice(cost: float, share: float, mood: float, noise: random.Random, rate: float = RATE) -> Slice:
    """Return a slice of a second in which requests of the arm cost more, and this share of what happens is recorded."""

    def about(value: float) -> float:
        return value * math.exp(noise.gauss(0, 0.02))

    in_the_slice = 1 + share * cost
    of_the_arm = 1 + cost
    requests = round(about(rate / in_the_slice / mood))
    events = requests * (1 + CHUNKS)
    window = Window(1.0, requests, about(requests * REQUEST_S * in_the_slice * mood), round(share * events), events)
    later = requests * (CHUNKS - 1)
    times = Times(requests, about(requests * 0.003 * of_the_arm * mood), later, about(later * 0.01 * of_the_arm * mood))
    return Slice(window, times)


def pairs(cost: float, seed: int, shares: tuple[float, float] = (0.0, 1.0), rate: float = RATE) -> list[Pair]:
    """Return slices of a server that becomes 40 % slower, and by turns a quarter slower and quicker."""
    noise = random.Random(seed)
    made = []
    for number in range(PAIRS):
        mood = (1 + 0.4 * number / PAIRS) * (1 + 0.25 * math.sin(number / 3))
        off, on = (a_slice(cost, share, mood, noise, rate) for share in shares)
        # The requests of the arm without recording cost no more, wherever they end.
        made.append(Pair(off._replace(times=a_slice(0.0, 0.0, mood, noise, rate).times), on))
    return made


def rows(found: list[Pair]) -> dict[str, Row]:
    return {row.name: row for row in compare(found).rows}


def truth(name: str, cost: float) -> float:
    if name == "CPU in all":
        return 0.0  # a saturated server uses the same, and does less
    return 1 / (1 + cost) - 1 if name == "requests/s" else cost


@pytest.mark.servers
@pytest.mark.parametrize("cost", [0.0, 0.05])
@pytest.mark.parametrize("shares", [(0.0, 1.0), (0.3, 0.7)])
def test_the_interval_of_every_measure_holds_a_known_cost_in_spite_of_drift(
    cost: float, shares: tuple[float, float]
) -> None:
    held: dict[str, int] = {}
    found: dict[str, int] = {}
    for seed in range(SAMPLES):
        for name, row in rows(pairs(cost, seed, shares)).items():
            assert row.difference is not None
            held[name] = held.get(name, 0) + row.difference.holds(truth(name, cost))
            found[name] = found.get(name, 0) + (row.verdict == HIGHER)
    assert min(held.values()) >= LEAST_HOLD, held
    for name in ("time to first chunk", "time per chunk", "CPU per request"):
        # 0 % is not found, but for the one that an interval of 99 % may miss.
        assert found[name] >= LEAST_FOUND if cost else found[name] <= SAMPLES - LEAST_HOLD, found


def steady(noise: random.Random, clients: int | None, recorded: bool) -> Slice:
    """Return a slice of a second that costs nothing to record; where no client waits, requests come as they do."""
    request_s = 0.02 * math.exp(noise.gauss(0, 0.05))
    requests = round(clients / request_s if clients is not None else RATE * math.exp(noise.gauss(0, 0.05)))
    window = Window(1.0, requests, requests * REQUEST_S * math.exp(noise.gauss(0, 0.02)), recorded * requests, requests)
    return Slice(window, Times(requests, requests * request_s, 0, 0.0))


@pytest.mark.servers
@pytest.mark.parametrize("number", [LEAST_BLOCKS, PAIRS])
def test_five_questions_at_once_find_nothing_where_nothing_is_in_nineteen_of_twenty_comparisons(number: int) -> None:
    wrong = 0
    for seed in range(2 * SAMPLES):
        noise = random.Random(seed)
        made = [a_slice(0.0, share, 1.0, noise) for _ in range(number) for share in (0.0, 1.0)]
        compared = compare([Pair(*both) for both in zip(made[::2], made[1::2], strict=True)])
        wrong += any(row.verdict != NOT_FOUND for row in compared.rows)
    # 4 are expected of 80; with three standard deviations more, it is no chance.
    assert wrong <= 10


@pytest.mark.parametrize("number", [LEAST_BLOCKS, PAIRS])
def test_clients_that_wait_for_their_answers_are_seen_and_their_load_is_no_verdict(number: int) -> None:
    closed = dict.fromkeys((8, None), 0)
    for clients in closed:
        for seed in range(FEW):
            noise = random.Random(seed)
            made = [steady(noise, clients, on) for _ in range(number) for on in (False, True)]
            compared = compare([Pair(*both) for both in zip(made[::2], made[1::2], strict=True)])
            closed[clients] += compared.is_closed
            verdicts = {row.name for row in compared.rows if row.verdict == FOLLOWS}
            assert verdicts == ({"requests/s", "CPU in all"} if compared.is_closed else set())
    assert closed[8] == FEW
    assert closed[None] <= 2


def test_the_words_have_a_verdict_for_each_question_and_say_that_the_loop_is_closed() -> None:
    noise = random.Random(1)
    made = [steady(noise, 8, on) for _ in range(PAIRS) for on in (False, True)]
    compared = compare([Pair(*both) for both in zip(made[::2], made[1::2], strict=True)])
    text = Findings("queues", compared, (1, 1), 1.0, PAIRS, 0, 1, 0, 0, None).as_text()
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    following = {name for name, line in lines.items() if line.endswith(FOLLOWS)}
    assert following == {"requests/s", "CPU in all"}
    assert re.search(r"none above \d\.\d\d %$", lines["CPU per request"])
    assert lines["time per chunk"].endswith("too little traffic")
    assert "requests: 1 without recording, 1 with it (sampling still applies)" in text
    assert "A difference compares neighboring slices" in text
    assert "clients seem to wait for each answer (a closed loop)" in text
    assert "in 95 % of comparisons: each is one of 99 % (Bonferroni)" in text


def test_what_slices_hardly_separate_is_not_estimated_but_what_belongs_to_requests_is() -> None:
    compared = compare(pairs(0.05, 1, (0.45, 0.55)))
    assert not compared.is_resolved
    assert compared.contrast == pytest.approx(0.1, abs=0.01)
    assert compared.request_s == pytest.approx(0.003 + 0.07, rel=0.5)
    estimated = {row.name for row in compared.rows if row.difference is not None}
    assert estimated == {"time to first chunk", "time per chunk"}


def test_pairs_with_few_requests_are_taken_together_and_too_few_in_all_give_no_interval() -> None:
    few = rows(pairs(0.05, 1, rate=6))
    assert few["requests/s"].difference is not None
    assert few["requests/s"].off == pytest.approx(6, rel=0.5)
    too_few = rows(pairs(0.05, 1, rate=6)[: LEAST_BLOCKS - 1])
    assert (too_few["requests/s"].difference, too_few["requests/s"].off is None) == (None, False)


def test_without_traffic_streams_or_processes_there_is_no_figure() -> None:
    nothing = Slice(Window(1.0, 0, 0.0, 0, 0), Times(0, 0.0, 0, 0.0))
    compared = compare([Pair(nothing, nothing)] * PAIRS)
    assert [(row.off, row.on, row.difference) for row in compared.rows] == [(None, None, None)] * 5
    assert (compared.contrast, compared.request_s) == (1.0, 0.0)
    answer = Slice(Window(1.0, 100, 0.0, 0, 200), Times(100, 0.5, 0, 0.0))
    found = rows([Pair(answer, answer._replace(window=answer.window._replace(recorded_events=200)))] * PAIRS)
    assert {name for name, row in found.items() if row.difference is None} == {
        "time per chunk",
        "CPU per request",
        "CPU in all",
    }
