"""What a comparison or the demo has found, and its report: one HTML file with its plots inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from inference_logging.read.pages import page as pages
from inference_logging.read.pages.content import Plot, Table
from inference_logging.read.pages.page import Section
from inference_logging.read.pages.parts import figure, paragraph, points, side_by_side, table_of
from inference_logging.read.stats.interval import Interval, bootstrap, ratio
from loadtests.compare.demo_turns import Cost
from loadtests.compare.load import SATURATED, Load
from loadtests.compare.measure import Books

BASE = "none"
GOAL = 0.985


class Row(NamedTuple):
    """One mode of one scenario over all rounds: medians, and ratios to the server without logging of the same round.

    A machine that becomes slower for a minute then moves both sides of a ratio.
    """

    scenario: str
    mode: str
    loads: tuple[Load, ...]
    rps: Interval
    rps_ratio: Interval
    cpu_us: Interval
    cpu_ratio: Interval
    p50_ms: float
    p99_ms: float
    busy: float
    failures: int
    books: Books

    @property
    def saturated(self) -> bool:
        """Whether the server was what limited req/s."""
        return self.busy >= SATURATED


Rounds = dict[str, dict[str, list[Load]]]
"""Loads by scenario, mode and round."""


def rows(rounds: Rounds, books: dict[tuple[str, str], Books]) -> list[Row]:
    """Return one row per scenario and mode, in the order in which they were measured."""
    return [
        _row(scenario, mode, loads, modes[BASE], books[scenario, mode])
        for scenario, modes in rounds.items()
        for mode, loads in modes.items()
    ]


def _row(scenario: str, mode: str, loads: Sequence[Load], base: Sequence[Load], books: Books) -> Row:
    rps, cpu_us = [load.rps for load in loads], [load.cpu_us for load in loads]
    return Row(
        scenario, mode, tuple(loads),
        bootstrap(rps), ratio(rps, [load.rps for load in base]),
        bootstrap(cpu_us), ratio(cpu_us, [load.cpu_us for load in base]),
        median(load.p50_ms for load in loads), median(load.p99_ms for load in loads),
        median(load.busy for load in loads), sum(load.failures for load in loads), books,
    )  # fmt: skip


def write(out: Path, title: str, measured: Sequence[Row], facts: dict[str, str], remarks: Sequence[str]) -> Path:
    """Write report.html into `out`; return its path."""
    scenarios = dict.fromkeys(row.scenario for row in measured)
    sections = [_section(number, scenario, measured) for number, scenario in enumerate(scenarios)]
    return write_page(out, title, sections, facts, remarks)


def write_page(
    out: Path, title: str, sections: Sequence[Section], facts: dict[str, str], remarks: Sequence[str]
) -> Path:
    """Write report.html: what is in it, what is to be said beside, and how it was measured; return its path."""
    known = Table("How it was measured", ("", "value"), list(facts.items()))
    last = [Section("Remarks", [points(remarks)]), Section(known.title, [table_of(known, "sentences")])]
    out.mkdir(parents=True, exist_ok=True)
    page = out / "report.html"
    pages.write(page, pages.document(title, (), [*sections, *last]))
    return page


def books_text(books: Books) -> str:
    """Return the comparison of requests and records in words."""
    if books.records is None:
        return f"none; {books.accepted:,} requests"
    sign = "=" if books.balanced else "≠"
    lost = f", {books.dropped:,} dropped" if books.dropped else ""
    return f"{books.records:,} {sign} {books.accepted:,}{lost}"


def _section(number: int, scenario: str, measured: Sequence[Row]) -> Section:
    """Return the plots of one scenario, also in words, and its table."""
    chosen = [row for row in measured if row.scenario == scenario]
    heads = ("mode", "req/s", f"req/s ÷ {BASE}", "CPU µs/request", f"CPU ÷ {BASE}", "p50 ms", "p99 ms", "records")
    table = Table(scenario, heads, [(row.mode, *_cells(row)) for row in chosen])
    note = paragraph("Medians of the rounds, and mean ratios; below them their intervals of 95 %.", "note")
    return Section(scenario, [side_by_side(_plots(number, chosen)), table_of(table, ours={"ours"}), note])


def _plots(number: int, chosen: Sequence[Row]) -> list[Plot]:
    """Return req/s, its ratio, CPU per request and latency."""
    shared = {"labels": [row.mode for row in chosen], "ours": ["ours"]}
    ratios = {
        **shared, "unit": "x", "mark": "dot", "rules": [{"value": GOAL, "name": f"goal {GOAL}"}],
        "series": [_spreads("mean of the rounds", [row.rps_ratio for row in chosen])],
    }  # fmt: skip
    times = {
        **shared, "unit": "s", "mark": "dot", "log": False,
        "series": [
            {"name": "p50", "values": [row.p50_ms * 1e-3 for row in chosen]},
            {"name": "p99", "values": [row.p99_ms * 1e-3 for row in chosen]},
        ],
    }  # fmt: skip
    rates = {**shared, "unit": "1/s", "series": [_spreads("", [row.rps for row in chosen])]}
    cpu = {**shared, "unit": "s", "series": [_spreads("", [row.cpu_us for row in chosen], 1e-6)]}

    shown: dict[str, tuple[dict[str, Any], Callable[[Row], str]]] = {
        "Requests per second": (rates, lambda row: _rate(row.rps.value)),
        f"Requests per second ÷ {BASE}": (ratios, lambda row: str(row.rps_ratio)),
        "Server CPU per request": (cpu, lambda row: f"{_rate(row.cpu_us.value)} µs"),
        "Latency": (times, lambda row: f"p50 {row.p50_ms:.2f} ms, p99 {row.p99_ms:.2f} ms"),
    }
    return [
        Plot(f"scenario-{number}-{place}", title, "; ".join(f"{r.mode}: {text(r)}" for r in chosen) + ".", "bars", data)
        for place, (title, (data, text)) in enumerate(shown.items())
    ]


def _spreads(name: str, spreads: Sequence[Interval], factor: float = 1.0) -> dict[str, Any]:
    ends = {"values": "value", "low": "low", "high": "high"}
    return {"name": name, **{key: [getattr(one, end) * factor for one in spreads] for key, end in ends.items()}}


def _cells(row: Row) -> list[str]:
    return [
        _spread(row.rps, _rate), _spread(row.rps_ratio, "{:.3f}".format),
        _spread(row.cpu_us, _rate), _spread(row.cpu_ratio, "{:.3f}".format),
        f"{row.p50_ms:,.2f}", f"{row.p99_ms:,.2f}", books_text(row.books),
    ]  # fmt: skip


def _spread(spread: Interval, form: Callable[[float], str]) -> str:
    return f"{form(spread.value)}\n{form(spread.low)} … {form(spread.high)}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def write_costs(out: Path, costs: Sequence[Cost], facts: dict[str, str], remarks: Sequence[str]) -> Path:
    """Write the page of the demo: what logging costs by turns, with the control beside it; return its path."""
    found = [(f"CPU time per request, {cost.name}", cost.cpu, cost.cpu_control) for cost in costs]
    found += [(f"requests per second, {cost.name}", cost.rps, cost.rps_control) for cost in costs if cost.saturated]
    data = {
        "labels": [name for name, _, _ in found], "unit": "x", "mark": "dot",
        "rules": [{"value": 1, "name": "the same"}],
        "series": [
            {"colour": "third", **_spreads("with logging", [one for _, one, _ in found])},
            {"colour": "quiet", **_spreads("without once more (the control)", [one for _, _, one in found])},
        ],
        "texts": [f"{one.value:.4f} (control {other.value:.4f})" for _, one, other in found],
    }  # fmt: skip
    title = "Ratio to the same server without logging"
    words = "; ".join(f"{name}: {one}, the control {other}" for name, one, other in found)
    plot = Plot("turns", title, f"{title}, with its interval of 95 %. {words}.", "bars", data)
    heads = ("", "without", "added by logging", "with ÷ without", "the control", "turns of each")
    table = Table("Costs", heads, [row for cost in costs for row in _cost_rows(cost)])
    sections = [Section("By turns within one process", [figure(plot), table_of(table)] if costs else [])]
    return write_page(out, "What recording every request and every chunk costs", sections, facts, remarks)


def _cost_rows(cost: Cost) -> Iterator[tuple[str, ...]]:
    added = f"{cost.added_cpu_us.value:.2f} ± {cost.added_cpu_us.half:.2f} µs"
    ratios, turns = (str(cost.cpu), str(cost.cpu_control)), str(cost.blocks)
    yield f"CPU time, {cost.name}", f"{cost.unlogged_cpu_us:.1f} µs", added, *ratios, turns
    rate = f"{cost.unlogged_rps:,.0f}/s" if cost.saturated else f"not saturated ({cost.busy:.0%} of its core)"
    yield f"requests, {cost.name}", rate, "", str(cost.rps), str(cost.rps_control), turns
