"""The report of a comparison: one HTML file with its plots inside, and plots of the same figures as a PNG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # before pyplot is imported: there may be no display

import matplotlib.pyplot as plt

from inference_logging.read.pages import page as pages
from inference_logging.read.pages.content import Plot, Table
from inference_logging.read.pages.page import Section
from inference_logging.read.pages.parts import paragraph, points, side_by_side, table_of
from inference_logging.read.stats.interval import Interval
from measure import Books
from summary import BASE, Row, Spread

GOAL = 0.985
_INK, GRID = "#1c2024", "#d5dae0"
_COLOURS = {"ours": "#1b7f4d", BASE: "#5b6470", "control": "#8c95a0"}
_OTHER = "#c8713a"
_DRAWING: dict[Any, Any] = {
    "font.size": 11, "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": GRID,
    "xtick.color": _INK, "ytick.color": _INK, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "axes.grid.axis": "y", "axes.axisbelow": True, "grid.color": GRID, "legend.frameon": False,
}  # fmt: skip


def write(out: Path, title: str, measured: Sequence[Row], facts: dict[str, str], remarks: Sequence[str]) -> Path:
    """Write report.png and report.html into `out`; return the path of the page."""
    out.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_DRAWING):
        draw(out / "report.png", measured)
    scenarios = dict.fromkeys(row.scenario for row in measured)
    sections = [_section(number, scenario, measured) for number, scenario in enumerate(scenarios)]
    return write_page(out, title, sections, facts, remarks)


def write_page(
    out: Path, title: str, sections: Sequence[Section], facts: dict[str, str], remarks: Sequence[str]
) -> Path:
    """Write report.html: what is in it, what is to be said beside, and how it was measured; return its path."""
    known = Table("How it was measured", ("", "value"), list(facts.items()))
    last = [Section("Remarks", [points(remarks)]), Section(known.title, [table_of(known, "sentences")])]
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


def draw(path: Path, measured: Sequence[Row]) -> None:
    """Draw all scenarios below each other as a picture."""
    scenarios = list(dict.fromkeys(row.scenario for row in measured))
    figure = plt.figure(figsize=(11, 6.6 * len(scenarios)), layout="constrained", facecolor="white")
    for part, scenario in zip(figure.subfigures(len(scenarios), squeeze=False)[:, 0], scenarios, strict=True):
        part.suptitle(scenario, fontsize=14, fontweight="bold")
        _scenario(part, [row for row in measured if row.scenario == scenario])
    figure.savefig(path, dpi=110)
    plt.close(figure)


def picture(draw_on: Callable[[Any], None], path: Path, height: float) -> None:
    """Draw a figure of this height, in inches, as a PNG."""
    with mpl.rc_context(_DRAWING):
        figure = plt.figure(figsize=(11, height), layout="constrained", facecolor="white")
        draw_on(figure)
        figure.savefig(path, dpi=110)
        plt.close(figure)


def interval(axes: Any, place: float, value: Interval, colour: str, label: str | None = None) -> None:
    """Draw a value with its interval across; ``colour``: ours or control."""
    around = [[value.value - value.low], [value.high - value.value]]
    axes.errorbar(value.value, place, xerr=around, fmt="o", capsize=4, color=_COLOURS[colour], label=label)


def _scenario(figure: Any, measured: Sequence[Row]) -> None:
    """Draw req/s, its ratio, CPU per request and latency."""
    places = figure.subplots(2, 2)
    _bars(places[0, 0], measured, "requests per second", lambda row: row.rps)
    _ratios(places[0, 1], measured)
    _bars(places[1, 0], measured, "server CPU per request, µs", lambda row: row.cpu_us)
    _latency(places[1, 1], measured)


def _bars(axes: Any, measured: Sequence[Row], title: str, value: Callable[[Row], Spread]) -> None:
    for place, row in enumerate(measured):
        spread = value(row)
        around = [[spread.median - spread.low], [spread.high - spread.median]]
        axes.bar(place, spread.median, yerr=around, capsize=4, color=_colour(row), ecolor=_INK)
    _finish(axes, measured, title)


def _ratios(axes: Any, measured: Sequence[Row]) -> None:
    for place, row in enumerate(measured):
        axes.plot([place] * len(row.rps_ratios), row.rps_ratios, "o", color=_colour(row), alpha=0.5)
        axes.plot([place - 0.25, place + 0.25], [row.rps_ratio.median] * 2, color=_colour(row), linewidth=3)
    axes.axhline(GOAL, color=_COLOURS["ours"], linewidth=1.2, linestyle="--", label=f"goal {GOAL}")
    axes.margins(x=0.15, y=0.15)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.1)
    _finish(axes, measured, f"req/s ÷ {BASE}, rounds and median")


def _latency(axes: Any, measured: Sequence[Row]) -> None:
    for place, row in enumerate(measured):
        axes.bar(place - 0.2, row.p50_ms, 0.38, color=_colour(row))
        axes.bar(place + 0.2, row.p99_ms, 0.38, color=_colour(row), alpha=0.45)
    _finish(axes, measured, "latency, ms: p50, and p99 paler")


def _finish(axes: Any, measured: Sequence[Row], title: str) -> None:
    axes.set_title(title, fontsize=12, loc="left")
    many = len(measured) > 3
    names = {"rotation": 20, "ha": "right", "rotation_mode": "anchor"} if many else {}
    axes.set_xticks(range(len(measured)), [row.mode for row in measured], **names)
    axes.tick_params(axis="x", length=0)


def _colour(row: Row) -> str:
    return _COLOURS.get(row.mode, _OTHER)


def _section(number: int, scenario: str, measured: Sequence[Row]) -> Section:
    """Return the plots of one scenario, also in words, and its table."""
    chosen = [row for row in measured if row.scenario == scenario]
    heads = ("mode", "req/s", f"req/s ÷ {BASE}", "CPU µs/request", f"CPU ÷ {BASE}", "p50 ms", "p99 ms", "records")
    table = Table(scenario, heads, [(row.mode, *_cells(row)) for row in chosen])
    note = paragraph("Medians; below them the least and the greatest round.", "note")
    return Section(scenario, [side_by_side(_plots(number, chosen)), table_of(table, ours={"ours"}), note])


def _plots(number: int, chosen: Sequence[Row]) -> list[Plot]:
    """Return req/s, its ratio, CPU per request and latency."""
    shared = {"labels": [row.mode for row in chosen], "ours": ["ours"]}
    ratios = {
        **shared, "unit": "x", "mark": "dot", "rules": [{"value": GOAL, "name": f"goal {GOAL}"}],
        "series": [_spreads("median of the rounds", [row.rps_ratio for row in chosen])],
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
        "Requests per second": (rates, lambda row: _rate(row.rps.median)),
        f"Requests per second ÷ {BASE}": (ratios, lambda row: row.rps_ratio.show()),
        "Server CPU per request": (cpu, lambda row: f"{_rate(row.cpu_us.median)} µs"),
        "Latency": (times, lambda row: f"p50 {row.p50_ms:.2f} ms, p99 {row.p99_ms:.2f} ms"),
    }
    return [
        Plot(f"scenario-{number}-{place}", title, "; ".join(f"{r.mode}: {text(r)}" for r in chosen) + ".", "bars", data)
        for place, (title, (data, text)) in enumerate(shown.items())
    ]


def _spreads(name: str, spreads: Sequence[Spread], factor: float = 1.0) -> dict[str, Any]:
    ends = {"values": "median", "low": "low", "high": "high"}
    return {"name": name, **{key: [getattr(one, end) * factor for one in spreads] for key, end in ends.items()}}


def _cells(row: Row) -> list[str]:
    return [
        _spread(row.rps, _rate), _spread(row.rps_ratio, "{:.3f}".format),
        _spread(row.cpu_us, _rate), _spread(row.cpu_ratio, "{:.3f}".format),
        f"{row.p50_ms:,.2f}", f"{row.p99_ms:,.2f}", books_text(row.books),
    ]  # fmt: skip


def _spread(spread: Spread, form: Callable[[float], str]) -> str:
    return f"{form(spread.median)}\n{form(spread.low)} … {form(spread.high)}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
