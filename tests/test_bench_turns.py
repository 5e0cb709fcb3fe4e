"""The benchmark by turns finds a ratio that is there, and says when it cannot; no figure of ours is judged here."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from inference_logging.read.stats.interval import Interval
from loadtests.turns import bench_turns
from loadtests.turns.bench_turns_arms import COMPARED, OURS, THINNEST_AGAIN
from loadtests.turns.bench_turns_peers import Workload
from loadtests.turns.bench_turns_ratio import across, ratio, trimmed_interval, verdict
from loadtests.turns.bench_turns_report import Case, Row
from loadtests.turns.bench_turns_slices import LOGGED, App, Block, Slices, Switch
from loadtests.turns.wrk import find_wrk, run_wrk

ARMS = 3


def blocks(logged: float, control: float, count: int = 2000) -> list[Block]:
    """Return blocks of a machine that drifts, with noise of 2 % on each slice and an outlier in one of 30."""
    noise = random.Random(1)
    found = []
    for number in range(count):
        mood = 1e6 * (1 + number / count)
        slices = [mood * cost * noise.gauss(1, 0.02) for cost in (1.0, logged, control)]
        if number % 30 == 0:
            slices[noise.randrange(3)] *= 10
        found.append(tuple(map(int, slices)))
    return found


def test_a_known_ratio_is_found_under_drift_noise_and_outliers() -> None:
    row = Row.of(Case("a", least_ratio=0.970), blocks(1 / 0.98, 1.0), 1.0)
    assert row.ratio.holds(0.98)
    assert row.ratio.half < 0.003
    assert row.is_precise
    assert row.verdict() == "goal ≥ 0.970: reached"
    assert Row.of(Case("a", least_ratio=0.985), blocks(1 / 0.98, 1.0), 1.0).verdict() == "goal ≥ 0.985: not reached"


def test_added_microseconds_are_judged_per_request() -> None:
    row = Row.of(Case("a", requests=64, most_added_us=2.0), blocks(1.1, 1.0), 1.0)  # of 1.5 ms for a slice
    assert row.added_us.value == pytest.approx(2.34, rel=0.05)
    assert row.verdict() == "goal ≤ 2 µs: not reached"
    assert Row.of(Case("a", requests=128, most_added_us=2.0), blocks(1.1, 1.0), 1.0).verdict() == "goal ≤ 2 µs: reached"


def test_a_goal_within_the_interval_is_said_to_be_close() -> None:
    row = Row.of(Case("a", least_ratio=0.98), blocks(1 / 0.98, 1.0), 1.0)
    assert row.verdict().endswith("reached, but within noise of the goal")


def test_a_control_off_one_is_not_measured() -> None:
    row = Row.of(Case("a", least_ratio=0.970), blocks(1 / 0.98, 1.01), 1.0)
    assert row.verdict() == "goal ≥ 0.970: not measured: the control is off 1"


def test_a_control_wider_than_the_claim_is_not_measured() -> None:
    wide = Interval(1.0, 0.99, 1.01)
    assert verdict(True, wide, distance=0.015) == "not measured: the control is wider than the claim"
    assert verdict(True, wide, distance=0.030) == "reached"
    assert verdict(False, wide, distance=0.030) == "not reached"


def test_a_case_without_goal_claims_what_it_measured() -> None:
    assert Row.of(Case("a"), blocks(1 / 0.98, 1.0), 1.0).verdict() == "measured"
    assert Row.of(Case("a"), blocks(1.0, 1.0), 1.0).verdict() == "not measured: the control is wider than the claim"


def test_the_interval_of_a_single_value_is_that_value() -> None:
    assert trimmed_interval([2.5]) == Interval(2.5, 2.5, 2.5)
    assert ratio([3.0], [2.0]).value == pytest.approx(1.5)


def test_processes_that_differ_widen_the_interval() -> None:
    found = across([Interval(value, value - 0.001, value + 0.001) for value in (0.96, 0.97, 0.98, 0.99)])
    assert found.value == pytest.approx(0.975)
    assert found.half == pytest.approx(3.182 * 0.01291 / 2, rel=1e-3)
    assert across([Interval(1.0, 0.9, 1.1)]) == Interval(1.0, 0.9, 1.1)


def peers(added: dict[str, float], process: int) -> list[Block]:
    """Return blocks of a process in which each arm adds so many microseconds to one of 100."""
    noise = random.Random(10 + process)
    return [
        tuple(
            round(64_000 * (100 + added.get(arm, 1.0) * (arm != "nothing") + noise.gauss(0, 0.5))) for arm in COMPARED
        )
        for _ in range(400)
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
    if find_wrk() is None:
        pytest.skip("wrk is missing")
    with bench_turns.running(COMPARED) as server:
        url, script = server.target("/v1/chat/completions")
        server.ask("restart?2")
        run_wrk(shutil.which("wrk") or "", url, 1, 1, script)
        server.stop()  # raises unless each request to an arm of ours has its record


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
