"""`inference-logging bench` counts what arrived, stalls count, and what is not measured is there with its reason."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import inference_logging
from inference_logging.prove.bench import run as bench
from inference_logging.prove.bench.cell import Order, _measure_load
from inference_logging.prove.bench.child import child
from inference_logging.prove.bench.loops import Schedule, Timings, closed, paced, space
from inference_logging.prove.bench.peers import NAMES, Opened, peer
from inference_logging.prove.bench.record import FIRST_NUMBER, WARM_UP_NUMBER, count_arrived, fields, wrong_fields
from inference_logging.prove.bench.result import FIGURES, Result
from inference_logging.prove.bench.text import bytes_text, share_text, time_text
from inference_logging.read.stats.interval import quantile
from loadtests import results
from loadtests.cost import bench_peers
from loadtests.cost.bench_peers import goals
from tests.kit.command_line import run

LOSSY = {"fapilog", "fapilog-production", "opentelemetry"}
"""What these accept may be dropped, by their documentation."""
TINY = Order("", 1, "closed", 256, 0.02, 500.0)
STALL_NS = 50_000_000
MS = 1_000_000


class Clock:
    """A clock that goes on only where a call lets it, or where somebody sleeps."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


def stalling(clock: Clock, at: int, stall_ns: int = STALL_NS) -> Any:
    """Return a call that takes no time, but for the one with the number ``at``."""

    def call(number: int) -> None:
        if number == at:
            clock.now_ns += stall_ns

    return call


def test_in_an_open_loop_a_stall_counts_in_each_call_that_it_delays() -> None:
    clock, timings = Clock(), Timings(space(10))
    schedule = Schedule(first_ns=5 * MS, interval_ns=10 * MS, calls=10)
    paced(stalling(clock, at=3), timings, 0, schedule, clock, clock.sleep)
    assert [taken // MS for taken in timings.times()] == [0, 0, 0, 50, 40, 30, 20, 10, 0, 0]
    assert (timings.calls, timings.not_made, timings.ended_ns) == (10, 0, 95 * MS)


def test_in_a_closed_loop_the_same_stall_counts_once() -> None:
    clock, timings = Clock(), Timings(space(10))
    closed(stalling(clock, at=3), timings, 0, 10**12, clock)
    assert [taken // MS for taken in timings.times()] == [0, 0, 0, 50, 0, 0, 0, 0, 0, 0]


def test_calls_that_are_never_made_count_as_long_as_they_have_waited() -> None:
    clock, timings = Clock(), Timings(space(4))
    paced(stalling(clock, at=1, stall_ns=1000 * MS), timings, 0, Schedule(0, 10 * MS, 4), clock, clock.sleep)
    assert [taken // MS for taken in timings.times()] == [0, 1000, 990, 980]
    assert (timings.calls, timings.not_made) == (2, 2)


def test_a_refused_call_is_counted_and_not_timed() -> None:
    clock, timings = Clock(), Timings(space(6))
    closed(lambda number: number % 2 == 0, timings, 0, 10**12, clock)
    assert (timings.calls, timings.refused, len(timings.times())) == (6, 3, 3)


def test_the_threads_of_an_open_loop_share_one_rate() -> None:
    schedules = [Schedule.of_thread(thread, 16, 0, 4000.0, 0.3) for thread in range(16)]
    due = sorted(schedule.due_ns(position) for schedule in schedules for position in range(schedule.calls))
    assert due == [pytest.approx(number * 250_000, abs=2) for number in range(1200)]


def test_a_peer_that_cannot_keep_the_rate_is_marked() -> None:
    opened = Opened(lambda _number: time.sleep(0.005), drain=lambda: None)
    timings = Timings(space(50))
    order = replace(TINY, loop="open", seconds=0.05, rate_per_s=1000.0)
    figures = _measure_load(order, opened, [timings])
    assert figures["kept_up"] is False
    assert figures["calls"] + timings.not_made == 50
    assert figures["max_ns"] > figures["p50_ns"] > 5 * MS


def test_quantiles_are_values_that_were_measured() -> None:
    values = list(range(1, 1001))
    assert [quantile(values, share) for share in (0.5, 0.99, 0.999, 1.0)] == [500, 990, 999, 1000]
    assert quantile([7], 0.999) == 7


def test_a_record_that_arrives_twice_counts_once_and_warm_up_does_not_count(tmp_path: Path) -> None:
    numbers = [FIRST_NUMBER, FIRST_NUMBER + 1, FIRST_NUMBER + 1, WARM_UP_NUMBER]
    (tmp_path / "lines").write_text("".join(json.dumps(fields(number, "")) + "\n" for number in numbers))
    (tmp_path / "access").write_text(f'"POST /?number={FIRST_NUMBER + 2}&text=x"\n')
    arrived = count_arrived(tmp_path)
    assert (arrived.records, arrived.repeated) == (3, 1)


def test_a_line_with_another_value_is_noticed() -> None:
    line = {"message": "request done", "data": fields(FIRST_NUMBER, "text")}
    assert wrong_fields(json.dumps(line).encode(), "text") == []
    line["data"] = {**fields(FIRST_NUMBER, "text"), "caller": "***"}
    assert wrong_fields(json.dumps(line).encode(), "text") == ["caller"]


@pytest.mark.servers
@pytest.mark.parametrize("name", NAMES)
def test_every_peer_writes_what_it_accepts(name: str) -> None:
    measured = peer(name)
    if (absent := bench.missing(measured.modules)) is not None:
        pytest.skip(absent)
    if name == "ours-native-logger" and not hasattr(inference_logging, "install_logger"):
        pytest.skip("this build has no install_logger")
    found = bench.ask(replace(TINY, peer=name))
    assert found["problem"] is None
    assert found["accepted"] > 0
    if not measured.writes:
        assert (found["arrived"], found["arrived_ratio"]) == (0, None)
    elif name not in LOSSY:
        assert (found["arrived"], found["arrived_ratio"]) == (found["accepted"], 1)
    else:
        assert 0 < found["arrived"] <= found["accepted"]


def figures(order: Order, **changed: Any) -> dict[str, Any]:
    """Return what a cell answers, as if it had been measured."""
    if order.loop == "call":
        return {"filtered_ns": 50.0, "problem": None} | changed
    values: dict[str, Any] = dict.fromkeys(FIGURES, 1.0)
    counts = {"calls": 10, "accepted": 10, "refused": 0, "arrived": 10}
    rest = {"seconds": 0.1, "drain_s": 0.0, "end_to_end_s": 0.1, "drained": True, "problem": None}
    return {**values, **counts, **rest, "kept_up": True if order.loop == "open" else None, **changed}


def measured(monkeypatch: pytest.MonkeyPatch, answer: Any, **planned: Any) -> Result:
    """Run a plan whose cells get their figures from ``answer``."""
    monkeypatch.setattr(bench, "ask", answer)
    plan = {"threads": (1, 64), "sizes": (256,), "peers": ("empty", "stdlib-queue", "ours-event"), "rounds": 2}
    return bench.run(bench.Plan(**{**plan, **planned}), "bench")


def test_a_missing_library_is_a_row_that_says_so_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = replace(peer("structlog"), modules=(("no_such_module.at_all", "no-such-distribution"),))
    monkeypatch.setattr(bench, "peers", lambda _names: iter([absent, peer("ours-event")]))
    result = measured(monkeypatch, figures)
    rows = {row["name"]: row["missing"] for row in result["peers"]}
    assert rows == {
        "structlog": "not installed: no-such-distribution (pip install 'inferlog[bench]')",
        "ours-event": None,
    }
    assert {cell["peer"] for cell in result["cells"]} == {"ours-event"}


def test_a_peer_that_works_nowhere_is_a_row_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(order: Order) -> dict[str, Any]:
        return {"problem": "ImportError: too old"} if order.peer == "stdlib-queue" else figures(order)

    result = measured(monkeypatch, answer)
    assert {row["name"]: row["missing"] for row in result["peers"]}["stdlib-queue"] == (
        "does not work here: ImportError: too old"
    )
    assert {cell["peer"] for cell in result["cells"]} == {"empty", "ours-event"}


def test_goals_are_judged_by_the_figures_or_say_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(order: Order) -> dict[str, Any]:
        if order.peer == "ours-event" and order.loop == "open":
            return figures(order, arrived=9, arrived_ratio=0.9)
        return figures(order, p999_ns=3.0 if order.threads == 64 else 2.0)

    verdicts = {goal["name"]: (goal["value"], goal["verdict"]) for goal in goals(measured(monkeypatch, answer))}
    assert verdicts["p99.9 of a call, 64 threads ÷ 1 thread, closed loop, 256 B, ours (the empty call: 1.50)"] == (
        1.5,
        "reached",
    )
    assert verdicts["arrived ÷ accepted, the least of all cells of ours"] == (0.9, "not reached")
    assert verdicts["native logger: enabled call, QueueHandler ÷ ours"] == (
        None,
        "not measured: ours-native-logger: not asked for",
    )


def test_what_is_kept_has_the_goals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result: Any = {**measured(monkeypatch, figures), "quick": False}
    results.keep("peers", result, tmp_path)
    assert results.newest(tmp_path)["peers"].result["goals"] == goals(result)


def test_a_goal_that_is_not_reached_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(order: Order) -> dict[str, Any]:
        return figures(order, p50_ns=140.0 if order.peer == "stdlib-queue" else 10.0)

    result = measured(monkeypatch, answer, peers=("stdlib-queue", "ours-native-logger"))
    (verdict,) = (goal["verdict"] for goal in goals(result) if "QueueHandler ÷ ours" in goal["name"])
    assert verdict.startswith("not reached: the record has ten attributes, ")


def test_a_child_that_ends_without_an_answer_is_a_problem(tmp_path: Path) -> None:
    found = child("inference_logging.prove.bench.cell", "no JSON", tmp_path / "answer.json", 60)
    assert found["problem"].startswith("the process ended with 1: json.decoder.JSONDecodeError")


WRONG = {
    "--peers": ("ours,empty", "'ours' is not one of empty, "),
    "--threads": ("1,0", "'0' is not a whole number from 1 to 256"),
    "--loops": ("open,half", "'half' is not one of closed, open"),
    "--sizes": ("256,1e3", "'1e3' is not a whole number from 256 to 32,768"),
    "--rounds": ("0", "0 is not in the range 1<=x<=100"),
    "--seconds": ("-1", "-1.0 is not in the range 0.01<=x<=60"),
}


@pytest.mark.parametrize("option", WRONG)
def test_a_wrong_option_is_an_error_that_names_it_and_its_value(option: str) -> None:
    value, message = WRONG[option]
    done = run("bench", option, value)
    assert (done.code, done.out) == (2, "")
    assert f"Invalid value for '{option}': {message}" in done.err


@pytest.mark.servers
def test_the_command_prints_every_cell_as_json() -> None:
    done = run(
        "bench", "--quick", "--peers", "empty,stdlib-sync,ours-event", "--threads", "1,2", "--loops", "closed,open",
        "--seconds", "0.02", "--json",
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    result = json.loads(done.out)
    cells = [(cell["peer"], cell["threads"], cell["loop"]) for cell in result["cells"]]
    assert len(set(cells)) == len(cells) == 3 * 2 * 2
    assert {time["peer"] for time in result["filtered"]} == {"empty", "stdlib-sync"}
    for cell in result["cells"]:
        assert cell["problem"] is None
        assert cell["arrived"] == (0 if cell["peer"] == "empty" else cell["accepted"])


@pytest.mark.servers
def test_the_example_prints_tables() -> None:
    done = run("bench", "--quick", "--peers", "empty,ours-event", "--threads", "1")
    assert (done.code, done.err) == (0, "")
    assert "1 thread, closed loop, records of 256 B" in done.out
    assert re.search(r"^ours, event  .* 100 %", done.out, re.MULTILINE)


@pytest.mark.servers
def test_the_method_of_fapilog_counts_every_record_of_the_burst() -> None:
    pytest.importorskip("fapilog", reason="fapilog is not installed")
    result = bench_peers.compared(1, lambda _step: None, quick=True)
    assert [goal["verdict"] for goal in bench_peers.goals_of_method(result)][1:] == ["reached", "reached"]
    burst = result["bursts"]["ours"]
    assert (burst["submitted"], burst["arrived"], burst["unexplained"]) == (500, 500, 0)


def test_units_are_those_that_people_read() -> None:
    assert [time_text(value) for value in (0.5, 260, 8900, 2e6, 3e9, 0)] == [
        "0.5 ns",
        "260 ns",
        "8.9 µs",
        "2 ms",
        "3 s",
        "0 s",
    ]
    assert [bytes_text(value) for value in (100, 4096, 65536, 3 << 30)] == ["100 B", "4 KiB", "64 KiB", "3 GiB"]
    assert [share_text(value) for value in (0, 1e-9, 0.1234, 1)] == ["0", "< 0.01 %", "12.34 %", "100 %"]
    assert share_text(1 - 1e-9) == "> 99.99 %"
