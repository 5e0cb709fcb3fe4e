"""The report of a comparison: one HTML file with its plots inside, and the same plots as a PNG."""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # before pyplot is imported: there may be no display

import matplotlib.pyplot as plt

from inference_logging.stats.drawing import for_page
from inference_logging.stats.interval import Interval
from measure import Books
from summary import BASE, Row, Spread

GOAL = 0.985
_INK, GRID = "#1c2024", "#d5dae0"
_COLOURS = {"ours": "#1b7f4d", BASE: "#5b6470", "control": "#8c95a0"}
_OTHER = "#c8713a"
_VARIABLES = {
    _INK: "ink", GRID: "grid", _COLOURS["ours"]: "ours", _COLOURS[BASE]: "base", _COLOURS["control"]: "control",
    _OTHER: "other",
}  # fmt: skip
_DRAWING: dict[Any, Any] = {
    "svg.fonttype": "none", "font.size": 11, "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": GRID,
    "xtick.color": _INK, "ytick.color": _INK, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "axes.grid.axis": "y", "axes.axisbelow": True, "grid.color": GRID, "legend.frameon": False,
}  # fmt: skip
_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2024; --quiet: #5b6470; --grid: #d5dae0; --ours: #1b7f4d;
  --base: #5b6470; --control: #8c95a0; --other: #c8713a; --panel: #f5f7f9; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e6e9ec; --quiet: #9aa4af; --grid: #3a424b;
  --ours: #4fbf86; --base: #a9b2bc; --control: #77818c; --other: #e8935c; --panel: #1d2227; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem;
  background: var(--paper); color: var(--ink); }
h2 { margin-top: 2.4rem; } p, small { color: var(--quiet); } code { background: var(--panel); padding: 0 .3em; }
.wide { overflow-x: auto; } svg { display: block; width: 100%; min-width: 44rem; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0; }
td, th { padding: .35rem 1.2rem .35rem 0; border-bottom: 1px solid var(--grid); text-align: right; vertical-align: top;
  white-space: nowrap; }
td small { display: block; } th[scope=row], table.facts td, th:first-child { text-align: left; }
table.facts td { white-space: normal; overflow-wrap: anywhere; } tr.ours { font-weight: 600; }
tr.ours small { font-weight: 400; }
"""


def write(out: Path, title: str, measured: Sequence[Row], facts: dict[str, str], remarks: Sequence[str]) -> Path:
    """Write report.png and report.html into `out`; return the path of the page."""
    out.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_DRAWING):
        draw(out / "report.png", measured)
        scenarios = dict.fromkeys(row.scenario for row in measured)
        sections = "".join(_section(number, scenario, measured) for number, scenario in enumerate(scenarios))
    page = out / "report.html"
    page.write_text(page_of(title, sections, facts, remarks), encoding="utf-8")
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


def plot(draw_on: Callable[[Any], None], name: str, title: str, words: str, height: float) -> str:
    """Return a drawing as part of a page, with its description in words; ``name`` is unique within the page."""
    with mpl.rc_context(_DRAWING):
        figure = plt.figure(figsize=(11, height), layout="constrained")
        draw_on(figure)
        begin, inner = _svg(figure, name).split(">", 1)
    return (
        f'<div class="wide" tabindex="0">{begin} role="img" aria-labelledby="{name}-title {name}-words">'
        f'<title id="{name}-title">{_text(title)}</title><desc id="{name}-words">{_text(words)}.</desc>{inner}</div>\n'
    )


def interval(axes: Any, place: float, value: Interval, colour: str, label: str | None = None) -> None:
    """Draw a value with its interval across; ``colour``: ours or control."""
    around = [[value.value - value.low], [value.high - value.value]]
    axes.errorbar(value.value, place, xerr=around, fmt="o", capsize=4, color=_COLOURS[colour], label=label)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table; the first cell of a row is its name."""
    columns = "".join(f'<th scope="col">{_text(head)}</th>' for head in heads)
    lines = "".join(
        f'<tr><th scope="row">{_text(str(name))}</th>{"".join(f"<td>{_text(str(cell))}</td>" for cell in cells)}</tr>\n'
        for name, *cells in rows
    )
    body = f"<thead><tr>{columns}</tr></thead>\n<tbody>{lines}</tbody>"
    return f'<div class="wide" tabindex="0"><table>{body}</table></div>\n'


def _svg(figure: Any, name: str) -> str:
    """Write a figure as part of a page: text stays text, colours are the page's."""
    written = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    return for_page(written.getvalue(), name, _VARIABLES)


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


def page_of(title: str, sections: str, facts: dict[str, str], remarks: Sequence[str]) -> str:
    """Return a page: its title, what is in it, what is to be said beside, and how it was measured."""
    listed = "".join(f"<li>{_text(line)}</li>" for line in remarks)
    known = "".join(
        f'<tr><th scope="row">{_text(name)}</th><td><code>{_text(value)}</code></td></tr>'
        for name, value in facts.items()
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{_text(title)}</h1>\n"
        f"{sections}\n<h2>Remarks</h2>\n<ul>{listed}</ul>\n<h2>How it was measured</h2>\n"
        f'<div class="wide"><table class="facts">{known}</table></div>\n</main>\n</body>\n</html>\n'
    )


def _section(number: int, scenario: str, measured: Sequence[Row]) -> str:
    """Return the plots of one scenario, also in words, and its table."""
    chosen = [row for row in measured if row.scenario == scenario]
    words = "; ".join(f"{row.mode}: {_rate(row.rps.median)} requests per second" for row in chosen)
    title = f"Plots of {scenario}"
    drawn = plot(lambda figure: _scenario(figure, chosen), f"scenario-{number}", title, words, 6.4)
    heads = ("mode", "req/s", f"req/s ÷ {BASE}", "CPU µs/request", f"CPU ÷ {BASE}", "p50 ms", "p99 ms", "records")
    columns = "".join(f'<th scope="col">{_text(head)}</th>' for head in heads)
    lines = "".join(
        f'<tr class="{_text(row.mode)}"><th scope="row">{_text(row.mode)}</th>{"".join(_cells(row))}</tr>\n'
        for row in chosen
    )
    return (
        f"<h2>{_text(scenario)}</h2>\n{drawn}"
        '<div class="wide" tabindex="0"><table><thead><tr>'
        f"{columns}</tr></thead>\n<tbody>{lines}</tbody>"
        "</table></div>\n<p>Medians; below them the least and the greatest round.</p>\n"
    )


def _cells(row: Row) -> list[str]:
    spreads = [
        _spread(row.rps, _rate), _spread(row.rps_ratio, "{:.3f}".format),
        _spread(row.cpu_us, _rate), _spread(row.cpu_ratio, "{:.3f}".format),
    ]  # fmt: skip
    plain = (f"{row.p50_ms:,.2f}", f"{row.p99_ms:,.2f}", books_text(row.books))
    return [*spreads, *(f"<td>{_text(cell)}</td>" for cell in plain)]


def _spread(spread: Spread, form: Callable[[float], str]) -> str:
    return f"<td>{form(spread.median)}<small>{form(spread.low)} … {form(spread.high)}</small></td>"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _text(text: str) -> str:
    return html.escape(text)
