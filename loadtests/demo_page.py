"""The page of the demo: what logging costs by turns, as a plot and a table, with the control beside it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import report
from demo_turns import Cost
from inference_logging.stats.interval import Interval

HEIGHT = 3.6
_HEADS = ("", "without", "added by logging", "with ÷ without", "the control", "turns of each")


def write(out: Path, costs: Sequence[Cost], facts: dict[str, str], remarks: Sequence[str]) -> Path:
    """Write report.html and report.png into ``out``; return the path of the page."""
    out.mkdir(parents=True, exist_ok=True)
    title = "What recording every request and every chunk costs"
    section = "<h2>By turns within one process</h2>\n"
    if costs:
        words = "; ".join(f"{name}: {found}" for name, found, _ in _ratios(costs))
        draw = partial(_draw, _ratios(costs))
        report.picture(draw, out / "report.png", HEIGHT)
        section += report.plot(draw, "turns", title, words, HEIGHT) + _table(costs)
    page = out / "report.html"
    page.write_text(report.page_of(title, section, facts, remarks), encoding="utf-8")
    return page


def _ratios(costs: Sequence[Cost]) -> list[tuple[str, Interval, Interval]]:
    """Return each ratio with its name and its control."""
    cpu = [(f"CPU time per request, {cost.name}", cost.cpu, cost.cpu_control) for cost in costs]
    return cpu + [(f"requests per second, {cost.name}", cost.rps, cost.rps_control) for cost in costs if cost.saturated]


def _draw(found: Sequence[tuple[str, Interval, Interval]], figure: Any) -> None:
    axes = figure.subplots()
    for place, (_, measured, control) in enumerate(reversed(found)):
        is_first = place == 0
        report.interval(axes, place + 0.12, measured, "ours", "with logging" if is_first else None)
        report.interval(axes, place - 0.12, control, "control", "without once more (the control)" if is_first else None)
    axes.axvline(1.0, linewidth=1, linestyle="--", color=report.GRID)
    axes.set_yticks(range(len(found)), [name for name, _, _ in reversed(found)])
    axes.grid(visible=True, axis="x")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    axes.set_xlabel("ratio to the same server without logging, with its interval of 95 %")


def _table(costs: Sequence[Cost]) -> str:
    rows = []
    for cost in costs:
        added = f"{cost.added_cpu_us.value:.2f} ± {cost.added_cpu_us.half:.2f} µs"
        rows.append(
            (f"CPU time, {cost.name}", f"{cost.unlogged_cpu_us:.1f} µs", added, cost.cpu, cost.cpu_control, cost.blocks)
        )
        rate = f"{cost.unlogged_rps:,.0f}/s" if cost.saturated else f"not saturated ({cost.busy:.0%} of its core)"
        rows.append((f"requests, {cost.name}", rate, "", cost.rps, cost.rps_control, cost.blocks))
    return report.table(_HEADS, rows)
