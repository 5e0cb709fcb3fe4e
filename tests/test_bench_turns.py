"""The benchmark by turns finds a ratio that is there, and says when it cannot; no figure of ours is judged here."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from inference_logging.read.stats.interval import Interval
from loadtests import harness
from loadtests.turns import bench_turns
from loadtests.turns.bench_turns_arms import COMPARED, OURS, THINNEST_AGAIN
from loadtests.turns.bench_turns_inside import rows_of
from loadtests.turns.bench_turns_peers import Workload
from loadtests.turns.bench_turns_report import Case, Row, doubt, verdict
from loadtests.turns.bench_turns_slices import LOGGED, App, Block, Slices, Switch

ARMS = 3


def rounds(added_us: float, chunk_us: float, control: float = 1.0) -> list[dict[str, Any]]:
    """Return what three processes find: an application of 10 µs, noise of 1 % and an outlier in one of 30 batches."""
    noise = random.Random(1)

    def batch(number: int, cost: float) -> dict[str, dict[str, float]]:
        times = {"none": 10.0, "old": 10 + cost, "control": (10 + cost) * control}
        outlier = 5.0 if number % 30 == 0 else 1.0
        return {arm: {"cpu_us": us * outlier * noise.gauss(1, 0.01), "listener_us": 1.0} for arm, us in times.items()}

    costs = {"GET": added_us, "POST of JSON": 2 * added_us, "stream of 64 chunks": 2 * added_us + 64 * chunk_us}
    return [
        {"kinds": {kind: {"batches": [batch(at, cost) for at in range(200)]} for kind, cost in costs.items()}}
        for _ in range(3)
    ]


def test_a_known_cost_is_found_under_noise_and_outliers() -> None:
    request, stream, chunk = rows_of("a", rounds(1.5, 0.1))
    assert [row.name for row in (request, stream, chunk)] == ["a", "a, stream of 64", "a, one chunk"]
    assert request.added_us.holds(1.5)
    assert chunk.added_us.holds(0.1)
    assert request.verdict() == "goal ≤ 2 µs: reached"
    assert stream.added_us.holds(9.4)
    assert chunk.verdict() == "goal ≤ 0.12 µs: reached"
    request, _, chunk = rows_of("a", rounds(2.5, 0.2))
    assert request.verdict() == "goal ≤ 2 µs: not reached"
    assert chunk.verdict() == "goal ≤ 0.12 µs: not reached"


def test_a_control_off_one_is_not_measured() -> None:
    request, _, chunk = rows_of("a", rounds(1.5, 0.1, control=1.05))
    assert request.verdict() == "goal ≤ 2 µs: not measured: the control is off 1"
    assert chunk.verdict() == "goal ≤ 0.12 µs: not measured: the control is off 1"


def test_a_goal_within_the_interval_is_said_to_be_close() -> None:
    assert Row("a", Interval(2.0, 1.9, 2.1), 2.0, None).verdict() == (
        "goal ≤ 2 µs: reached, but within noise of the goal"
    )


def test_a_control_wider_than_the_claim_is_not_measured() -> None:
    wide = Interval(1.0, 0.99, 1.01)
    assert verdict(True, doubt(wide, 0.015)) == "not measured: the control is wider than the claim"
    assert verdict(True, doubt(wide, 0.030)) == "reached"
    assert verdict(False, doubt(wide, 0.030)) == "not reached"


def peers(added: dict[str, float], process: int) -> list[Block]:
    """Return blocks of a process in which each arm adds so many microseconds to one of 100."""
    noise = random.Random(10 + process)
    return [
        tuple(
            round(64_000 * (100 + added.get(arm, 1.0) * (arm != "nothing") + noise.gauss(0, 0.5))) for arm in COMPARED
        )
        for _ in range(100)
    ]


def test_a_multiple_of_the_thinnest_wrapper_is_found_and_the_control_holds_one() -> None:
    found = Workload.of(Case("a", least_ratio=0.97), [peers({OURS: 5.0}, process) for process in range(3)])
    rows = {peer.arm: peer for peer in found.peers}
    ours, control = rows[OURS].times, rows[THINNEST_AGAIN].times
    assert ours is not None
    assert control is not None
    assert ours.holds(5.0)
    assert control.holds(1.0)
    assert rows[OURS].added_us.value == pytest.approx(5.0, abs=0.3)
    assert rows[OURS].verdict == "goal ≥ 0.970: not reached"


def test_a_multiple_of_nothing_is_not_claimed() -> None:
    nothing = dict.fromkeys(COMPARED, 0.0)
    found = Workload.of(Case("a"), [peers(nothing, process) for process in range(3)])
    assert {peer.times for peer in found.peers} == {None}


def test_a_control_that_costs_more_is_said_to_be_off() -> None:
    found = Workload.of(Case("a"), [peers({THINNEST_AGAIN: 3.0}, process) for process in range(3)])
    assert next(peer for peer in found.peers if peer.arm == THINNEST_AGAIN).verdict == "the control is off 1"


def test_each_arm_gets_whole_slices_and_its_own_time() -> None:
    now = [0]
    seen: list[int] = []

    def arm(number: int) -> App:
        async def app(_scope: Any, _receive: Any, _send: Any) -> None:
            seen.append(number)
            now[0] += number + 1

        return app

    slices = Slices(ARMS, lambda: now[0])
    switch = Switch([arm(number) for number in range(ARMS)], slices)

    async def serve(requests: int) -> None:
        for _ in range(requests):
            await switch({}, _nothing, _nothing)

    switch.restart(4)
    asyncio.run(serve(4 * 3 * 3 + 1))
    assert slices.blocks == [(4, 8, 12)] * 2  # the first block warms up
    assert {tuple(seen[at : at + 4]) for at in range(0, 36, 4)} == {(0,) * 4, (1,) * 4, (2,) * 4}
    switch.pause()
    assert switch.served == [seen.count(number) for number in range(ARMS)]
    asyncio.run(serve(4 * 3 * 2 + 1))
    assert slices.blocks == [(4, 8, 12)] * 3  # neither the block before the pause nor the one after it
    switch.pause()
    assert switch.served[LOGGED] == seen.count(LOGGED)


async def _nothing(*_: Any) -> Any:
    return {}


@pytest.mark.servers
def test_a_server_has_an_arm_for_each_package_and_records_what_ours_served() -> None:
    if (wrk := harness.find_wrk()) is None:
        pytest.skip("wrk is missing")
    with bench_turns.running(COMPARED) as server:
        load = bench_turns.Load(wrk, 1, 1, 1, least_blocks=1)
        found = server.measure(load, "/v1/chat/completions", Case("POST", 2))
        server.stop()  # raises unless each request to an arm of ours has its record
    assert all(min(block) > 0 for block in found["blocks"])


@pytest.mark.servers
def test_the_quick_run_without_a_server_gives_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tmp_path / "turns.json"
    monkeypatch.setattr(sys, "argv", ["bench_turns.py", "inside", "--quick", "--json", str(result)])
    bench_turns.main()
    found = json.loads(result.read_text(encoding="utf-8"))
    assert len(found["rows"]) == 6
    assert "PGO" in found["machine"]["python"]
    lines = capsys.readouterr().out.splitlines()
    for row in found["rows"]:
        assert any(line.startswith(row["name"]) and row["verdict"] in line for line in lines), row
