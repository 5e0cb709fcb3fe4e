"""What a comparison has found, and its report: tables for a terminal, and one HTML file with its plots inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from inference_logging.prove.bench.text import number_text
from inference_logging.read.pages import page as pages
from inference_logging.read.pages.content import Plot, Table
from inference_logging.read.pages.page import Section
from inference_logging.read.pages.parts import points, side_by_side, table_of
from inference_logging.read.stats.interval import Interval, bootstrap, ratio
from loadtests.compare.load import Load
from loadtests.compare.measure import Books

BASE: Final = "none"
GOAL: Final = 0.985
_NOTE: Final = "Medians of the rounds, and mean ratios with their intervals of 95 %."


class Row(NamedTuple):
    """One mode of one scenario over all rounds: medians, and ratios to the server without logging of the same round.

    A machine that becomes slower for a minute then moves both sides of a ratio.
    """

    mode: str
    rps: Interval
    rps_ratio: Interval
    cpu_us: Interval
    cpu_ratio: Interval
    p50_ms: float
    p99_ms: float
    busy: float
    failures: int
    books: Books

    @classmethod
    def of(cls, mode: str, loads: Sequence[Load], base: Sequence[Load], books: Books) -> Row:
        """Evaluate the rounds of a mode beside those without logging."""
        rps, cpu_us = [load.rps for load in loads], [load.cpu_us for load in loads]
        return cls(
            mode,
            bootstrap(rps), ratio(rps, [load.rps for load in base]),
            bootstrap(cpu_us), ratio(cpu_us, [load.cpu_us for load in base]),
            median(load.p50_ms for load in loads), median(load.p99_ms for load in loads),
            median(load.busy for load in loads), sum(load.failures for load in loads), books,
        )  # fmt: skip

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        rates = number_text(self.rps.value), str(self.rps_ratio), number_text(self.cpu_us.value), str(self.cpu_ratio)
        times = f"{self.p50_ms:.2f}", f"{self.p99_ms:.2f}"
        return self.mode, *rates, *times, f"{self.busy:.0%}", str(self.books)


Rows = dict[str, list[Row]]
"""By scenario."""


def table(scenario: str, rows: Sequence[Row]) -> Table:
    """Return the table of one scenario."""
    heads = ("mode", "req/s", f"÷ {BASE}", "CPU µs", f"÷ {BASE}", "p50 ms", "p99 ms", "busy", "records")
    return Table(scenario, heads, [row.cells() for row in rows], _NOTE)


def write(out: Path, measured: Rows, facts: dict[str, str], remarks: Sequence[str]) -> Path:
    """Write report.html into ``out``: plots and tables, what is to be said beside, how it was measured."""
    known = Table("How it was measured", ("", "value"), list(facts.items()))
    sections = [
        Section(scenario, [side_by_side(_plots(scenario, rows)), table_of(table(scenario, rows), ours={"ours"})])
        for scenario, rows in measured.items()
    ]
    sections += [Section("Remarks", [points(remarks)]), Section(known.title, [table_of(known, "sentences")])]
    out.mkdir(parents=True, exist_ok=True)
    page = out / "report.html"
    pages.write(page, pages.document("Request logging compared", (), sections))
    return page


def _plots(scenario: str, rows: Sequence[Row]) -> list[Plot]:
    """Return req/s, its ratio, CPU per request and latency; each also in words."""
    rates = {"unit": "1/s", "series": [_spreads([row.rps for row in rows])]}
    ratios = {
        "unit": "x", "mark": "dot", "rules": [{"value": GOAL, "name": f"goal {GOAL}"}],
        "series": [_spreads([row.rps_ratio for row in rows])],
    }  # fmt: skip
    cpu = {"unit": "s", "series": [_spreads([row.cpu_us for row in rows], 1e-6)]}
    times = {
        "unit": "s", "mark": "dot", "log": False,
        "series": [
            {"name": "p50", "values": [row.p50_ms * 1e-3 for row in rows]},
            {"name": "p99", "values": [row.p99_ms * 1e-3 for row in rows]},
        ],
    }  # fmt: skip
    shown: dict[str, tuple[dict[str, Any], Callable[[Row], str]]] = {
        "Requests per second": (rates, lambda row: number_text(row.rps.value)),
        f"Requests per second ÷ {BASE}": (ratios, lambda row: str(row.rps_ratio)),
        "Server CPU per request": (cpu, lambda row: f"{number_text(row.cpu_us.value)} µs"),
        "Latency": (times, lambda row: f"p50 {row.p50_ms:.2f} ms, p99 {row.p99_ms:.2f} ms"),
    }
    labels = {"labels": [row.mode for row in rows], "ours": ["ours"]}
    return [
        Plot(
            f"{scenario}-{place}", title, "; ".join(f"{row.mode}: {text(row)}" for row in rows) + ".", "bars",
            {**labels, **data},
        )
        for place, (title, (data, text)) in enumerate(shown.items())
    ]  # fmt: skip


def _spreads(spreads: Sequence[Interval], factor: float = 1.0) -> dict[str, Any]:
    ends = {"values": "value", "low": "low", "high": "high"}
    return {"name": "", **{key: [getattr(one, end) * factor for one in spreads] for key, end in ends.items()}}
