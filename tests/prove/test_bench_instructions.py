"""Benchmarks by instructions and by turns: counts, bounds and ratios that are there; no figure is judged here."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from inference_logging.read.stats.interval import Interval
from inference_logging.record.asgi.lifespan import ASGIApp
from loadtests import harness
from loadtests.instructions import bench_instructions
from loadtests.instructions.bench_instructions import FIGURES, Counts, Toolchain
from loadtests.turns import bench_turns
from loadtests.turns.bench_turns_arms import COMPARED, LOGGED, OURS, THINNEST_AGAIN
from loadtests.turns.bench_turns_inside import row as row_of
from loadtests.turns.bench_turns_inside import rows_of
from loadtests.turns.bench_turns_rows import Block, Case, doubt, verdict
from loadtests.turns.bench_turns_rows import rows_of as arm_rows
from loadtests.turns.bench_turns_server import Slices, Switch
from loadtests.turns.profile_turns import ARMS as ARMS_PROFILED
from loadtests.turns.profile_turns import SAMPLES_PER_S, added, per_request

JUDGED = [figure for figure in FIGURES if figure.tolerance is not None]
HERE = Toolchain("x86_64", "CPython 3.11.2, built with PGO", "rustc 1.95.0")
SAMPLE = """# callgrind format
version: 1
part: 2
thread: 3

desc: Trigger: Client Request: get/0
positions: instr
events: Ir

ob=/lib/libc.so.6
fn=memcpy
0x1000 10

ob=/package/inference_logging/_native.abi3.so
fn=begin
0x1038 10
0x103c 10
cob=/lib/libc.so.6
cfn=memcpy
calls=10 0x1000
0x1040 1000
0x1044 4
fn=finish
0x2000 20

totals: 54
"""


def sample() -> Counts:
    counts, dump = Counts(), bench_instructions.read(SAMPLE.splitlines(keepends=True))
    assert (dump.name, dump.thread) == ("get/0", 3)
    counts.add(dump.counts, 1 / 10)  # of ten requests
    return counts


def row(instructions: float, native: float = 100) -> dict[str, dict[str, float]]:
    return {"get": {"instructions": instructions, "native_instructions": native}}


def test_instructions_are_counted_where_they_are_and_not_in_callers() -> None:
    counts = sample()
    assert counts.total().instructions == pytest.approx(5.4)
    assert counts.total("_native").instructions == pytest.approx(4.4)


def test_a_code_line_counts_where_it_runs_at_least_every_other_time() -> None:
    native = sample().total("_native")
    assert native.lines == {0x1038 >> 6, 0x2000 >> 6}  # 0x1044, on a line of its own, ran four times of ten
    (counts := sample()).add(sample(), -1)
    assert counts.total().instructions == pytest.approx(0), "what runs without logging too is taken off"
    assert not counts.total().lines


@pytest.mark.parametrize(("instructions", "sentences"), [(1049, 0), (1051, 1), (500, 0)])
def test_five_percent_above_the_bound_is_too_much(instructions: float, sentences: int) -> None:
    assert len(list(bench_instructions.exceeded(row(instructions), row(1000), JUDGED))) == sentences


def test_the_native_modules_own_instructions_have_a_bound_of_their_own() -> None:
    (sentence,) = bench_instructions.exceeded(row(1000, 103), row(1000, 100), JUDGED)
    assert sentence == "GET, bare ASGI, per request: 103.0 native instructions are +3.0% above the bound of 100"


def test_of_a_request_of_fastapi_only_native_instructions_are_judged() -> None:
    bound = {"fastapi": row(1000)["get"]}
    assert not list(bench_instructions.exceeded({"fastapi": row(2000, 102)["get"]}, bound, JUDGED))
    (sentence,) = bench_instructions.exceeded({"fastapi": row(2000, 103)["get"]}, bound, JUDGED)
    assert "103.0 native instructions" in sentence


def test_a_row_without_a_bound_fails() -> None:
    (first, _) = bench_instructions.exceeded(row(1000), {}, JUDGED)
    assert "--update" in first


def test_another_interpreter_leaves_only_native_instructions_to_be_judged(capsys: pytest.CaptureFixture[str]) -> None:
    other = Toolchain("x86_64", "CPython 3.13.1, built without PGO", "rustc 1.95.0")
    assert bench_instructions.judged_figures(HERE, HERE) == JUDGED
    assert capsys.readouterr().out == ""
    assert [figure.key for figure in bench_instructions.judged_figures(other, HERE)] == ["native_instructions"]
    assert "only native instructions are judged" in capsys.readouterr().out
    assert bench_instructions.judged_figures(Toolchain("aarch64", "", ""), HERE) == []


def test_the_noted_bounds_are_those_of_all_rows(tmp_path: Path) -> None:
    noted, bounds = bench_instructions.read_bounds()
    assert list(bounds) == list(bench_instructions.ROWS)
    assert {figure.key for figure in JUDGED} <= set.intersection(*(set(row) for row in bounds.values()))
    assert {name for names in bench_instructions.TOGETHER for name in names} == set(bounds)
    bench_instructions.write_bounds(noted, bounds, tmp_path / "bounds.json")
    assert bench_instructions.read_bounds(tmp_path / "bounds.json") == (noted, bounds)


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


@pytest.mark.servers
def test_a_known_cost_is_found_under_noise_and_outliers() -> None:
    request, stream, chunk = rows_of("a", rounds(1.5, 0.1))
    assert [row["name"] for row in (request, stream, chunk)] == ["a", "a, stream of 64", "a, one chunk"]
    assert Interval(**request["added_us"]).holds(1.5)
    assert Interval(**chunk["added_us"]).holds(0.1)
    assert request["verdict"] == "goal ≤ 2 µs: reached"
    assert Interval(**stream["added_us"]).holds(9.4)
    assert chunk["verdict"] == "goal ≤ 0.12 µs: reached"
    request, _, chunk = rows_of("a", rounds(2.5, 0.2))
    assert request["verdict"] == "goal ≤ 2 µs: not reached"
    assert chunk["verdict"] == "goal ≤ 0.12 µs: not reached"


@pytest.mark.servers
def test_a_control_off_one_is_not_measured() -> None:
    request, _, chunk = rows_of("a", rounds(1.5, 0.1, control=1.05))
    assert request["verdict"] == "goal ≤ 2 µs: not measured: the control is off 1"
    assert chunk["verdict"] == "goal ≤ 0.12 µs: not measured: the control is off 1"


def test_a_goal_within_the_interval_is_said_to_be_close() -> None:
    assert row_of("a", [[1.9, 2.0, 2.1]], 2.0, None)["verdict"] == "goal ≤ 2 µs: reached, but within noise of the goal"


def test_a_control_wider_than_the_claim_is_not_measured() -> None:
    wide = Interval(1.0, 0.99, 1.01)
    assert verdict(True, doubt(wide, 0.015)) == "not measured: the control is wider than the claim"
    assert verdict(True, doubt(wide, 0.030)) == "reached"
    assert verdict(False, doubt(wide, 0.030)) == "not reached"


def test_a_sample_belongs_to_the_arm_of_its_slice_and_what_nothing_takes_is_taken_off() -> None:
    places = [("kernel", "write"), ("native", "send"), ("native", "finish")]
    begun = [(arm * 1000, arm) for arm in range(len(ARMS_PROFILED))] + [(5000, -1)]
    samples = [(arm * 1000 + at, places[0]) for arm in range(len(ARMS_PROFILED)) for at in range(10)]
    samples += [(2000 + at, places[1]) for at in range(6)] + [(2999, places[2]), (5001, places[2])]
    taken = per_request(begun, samples, requests=2)
    us = 1e6 / SAMPLES_PER_S / 2
    assert added(taken, 0) == [("native", 0.0, pytest.approx(7 * us), 0.0), ("kernel", 0.0, 0.0, 0.0)]
    (first, _, send, _), (second, _, finish, _) = added(taken, 1)[:2]
    assert (first, second) == ("send", "finish")
    assert send == pytest.approx(6 * us)
    assert finish == pytest.approx(us)


def peers(cost: dict[str, float], process: int) -> list[Block]:
    """Return blocks of a process in which each arm adds so many microseconds to one of 100."""
    noise = random.Random(10 + process)
    return [
        tuple(round(64_000 * (100 + cost.get(arm, 1.0) * (arm != "nothing") + noise.gauss(0, 0.5))) for arm in COMPARED)
        for _ in range(100)
    ]


def test_a_multiple_of_the_thinnest_wrapper_is_found_and_the_control_holds_one() -> None:
    found = arm_rows(Case("a", most_times=2.0), [peers({OURS: 5.0}, process) for process in range(3)])
    rows = {row["arm"]: row for row in found}
    assert Interval(**rows[OURS]["times_thinnest"]).holds(5.0)
    assert Interval(**rows[THINNEST_AGAIN]["times_thinnest"]).holds(1.0)
    assert rows[OURS]["added_us"]["value"] == pytest.approx(5.0, abs=0.3)
    assert rows[OURS]["verdict"] == "goal ≤ 2 × the thinnest wrapper: not reached"


def test_a_multiple_of_nothing_is_not_claimed() -> None:
    nothing = dict.fromkeys(COMPARED, 0.0)
    found = arm_rows(Case("a", most_times=2.0), [peers(nothing, process) for process in range(3)])
    assert {row["times_thinnest"] for row in found} == {None}
    judged = next(row["verdict"] for row in found if row["arm"] == OURS)
    assert judged == "goal ≤ 2 × the thinnest wrapper: not measured: the thinnest wrapper's cost is within noise"


def test_a_control_that_costs_more_is_said_to_be_off() -> None:
    found = arm_rows(Case("a"), [peers({THINNEST_AGAIN: 3.0}, process) for process in range(3)])
    assert next(row for row in found if row["arm"] == THINNEST_AGAIN)["verdict"] == "the control is off 1"


def test_each_arm_gets_whole_slices_and_its_own_time() -> None:
    now = [0]
    seen: list[int] = []

    def arm(number: int) -> ASGIApp:
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
    assert all(min(block) > 0 for block in found)


@pytest.mark.servers
def test_the_quick_run_without_a_server_gives_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tmp_path / "turns.json"
    monkeypatch.setattr(sys, "argv", ["bench_turns.py", "inside", "--quick", "--json", str(result)])
    bench_turns.main()
    found = json.loads(result.read_text(encoding="utf-8"))
    rows = found["parts"]["inside"]
    assert len(rows) == 6
    assert "PGO" in found["machine"]["python"]
    lines = capsys.readouterr().out.splitlines()
    for one in rows:
        assert any(line.startswith(one["name"]) and one["verdict"] in line for line in lines), one
