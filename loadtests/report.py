"""The report of a comparison: one HTML file with its plots inside, and the same plots as a PNG."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # before pyplot is imported: there may be no display

import matplotlib.pyplot as plt

from measure import Books
from summary import BASE, Row, Spread

GOAL = 0.985
_COLOURS = {"ours": "#1b7f4d", BASE: "#555555", "control": "#999999"}
_OTHER = "#c8813a"
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:76em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.3em .8em;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child{text-align:left}tr.ours{font-weight:600}img{max-width:100%}code{background:#f4f4f4}"
)


def write(out: Path, title: str, measured: Sequence[Row], facts: dict[str, str], remarks: Sequence[str]) -> Path:
    """Write report.png and report.html into `out`; return the path of the page."""
    out.mkdir(parents=True, exist_ok=True)
    picture = out / "report.png"
    draw(picture, measured)
    page = out / "report.html"
    page.write_text(_page(title, measured, facts, remarks, picture.read_bytes()), encoding="utf-8")
    return page


def books_text(books: Books) -> str:
    """Return the comparison of requests and records in words."""
    if books.records is None:
        return f"none; {books.accepted:,} requests"
    sign = "=" if books.balanced else "≠"
    lost = f", {books.dropped:,} dropped" if books.dropped else ""
    return f"{books.records:,} {sign} {books.accepted:,}{lost}"


def draw(path: Path, measured: Sequence[Row]) -> None:
    """Draw one line of plots per scenario: req/s, its ratio, CPU per request, latency."""
    scenarios = list(dict.fromkeys(row.scenario for row in measured))
    figure, grid = plt.subplots(len(scenarios), 4, figsize=(18, 3.6 * len(scenarios)), squeeze=False)
    for line, scenario in zip(grid, scenarios, strict=True):
        of_scenario = [row for row in measured if row.scenario == scenario]
        _bars(line[0], of_scenario, "requests per second", lambda row: row.rps)
        _ratios(line[1], of_scenario)
        _bars(line[2], of_scenario, "server CPU per request, µs", lambda row: row.cpu_us)
        _latency(line[3], of_scenario)
        line[0].set_ylabel(scenario, fontsize=13, fontweight="bold")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _bars(axes: Any, measured: Sequence[Row], title: str, value: Callable[[Row], Spread]) -> None:
    for place, row in enumerate(measured):
        spread = value(row)
        around = [[spread.median - spread.low], [spread.high - spread.median]]
        axes.bar(place, spread.median, yerr=around, capsize=4, color=_colour(row))
    _finish(axes, measured, title)


def _ratios(axes: Any, measured: Sequence[Row]) -> None:
    for place, row in enumerate(measured):
        axes.plot([place] * len(row.rps_ratios), row.rps_ratios, "o", color=_colour(row), alpha=0.5)
        axes.plot([place - 0.25, place + 0.25], [row.rps_ratio.median] * 2, color=_colour(row), linewidth=3)
    axes.axhline(1, color="#aaaaaa", linewidth=1)
    axes.axhline(GOAL, color=_COLOURS["ours"], linewidth=1, linestyle="--", label=f"goal {GOAL}")
    axes.legend(loc="lower left", fontsize=9)
    _finish(axes, measured, f"req/s ÷ {BASE}, each round and median")


def _latency(axes: Any, measured: Sequence[Row]) -> None:
    for place, row in enumerate(measured):
        axes.bar(place - 0.2, row.p50_ms, 0.38, color=_colour(row), label="p50" if not place else None)
        axes.bar(place + 0.2, row.p99_ms, 0.38, color=_colour(row), alpha=0.45, label="p99" if not place else None)
    axes.legend(fontsize=9)
    _finish(axes, measured, "latency, ms")


def _finish(axes: Any, measured: Sequence[Row], title: str) -> None:
    axes.set_title(title, fontsize=11)
    axes.set_xticks(range(len(measured)), [row.mode for row in measured], rotation=25, ha="right", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def _colour(row: Row) -> str:
    return _COLOURS.get(row.mode, _OTHER)


def _page(title: str, measured: Sequence[Row], facts: dict[str, str], remarks: Sequence[str], picture: bytes) -> str:
    tables = "".join(_table(scenario, measured) for scenario in dict.fromkeys(row.scenario for row in measured))
    listed = "".join(f"<li>{html.escape(line)}</li>" for line in remarks)
    known = "".join(
        f"<tr><td>{html.escape(k)}</td><td><code>{html.escape(v)}</code></td></tr>" for k, v in facts.items()
    )
    image = base64.b64encode(picture).decode()
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style><h1>{html.escape(title)}</h1>"
        f'<img alt="plots of the tables below" src="data:image/png;base64,{image}">'
        f"{tables}<h2>Remarks</h2><ul>{listed}</ul><h2>How it was measured</h2><table>{known}</table></html>\n"
    )


def _table(scenario: str, measured: Sequence[Row]) -> str:
    heads = ("mode", "req/s", f"req/s ÷ {BASE}", "CPU µs/request", f"CPU ÷ {BASE}", "p50 ms", "p99 ms", "records")
    lines = "".join(
        f'<tr class="{row.mode}">' + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(row)) + "</tr>"
        for row in measured
        if row.scenario == scenario
    )
    return (
        f"<h2>{html.escape(scenario)}</h2><p>Median (least … greatest) over rounds.</p>"
        f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{lines}</table>"
    )


def _cells(row: Row) -> tuple[str, ...]:
    spreads = (row.rps.show(",.0f"), row.rps_ratio.show(), row.cpu_us.show(".1f"), row.cpu_ratio.show())
    return (row.mode, *spreads, f"{row.p50_ms:.2f}", f"{row.p99_ms:.2f}", books_text(row.books))
