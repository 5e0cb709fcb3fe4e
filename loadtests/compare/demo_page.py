"""The page of the demo: what logging costs by turns, as a plot and a table, with the control beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from inference_logging.read.pages.content import Plot, Table
from inference_logging.read.pages.page import Section
from inference_logging.read.pages.parts import figure, table_of
from inference_logging.read.stats.interval import Interval
from loadtests.compare import report
from loadtests.compare.demo_turns import Cost

_HEADS = ("", "without", "added by logging", "with ÷ without", "the control", "turns of each")


def write(out: Path, costs: Sequence[Cost], facts: dict[str, str], remarks: Sequence[str]) -> Path:
    """Write report.html into ``out``; return its path."""
    parts = [figure(_plot(_ratios(costs))), table_of(_table(costs))] if costs else []
    sections = [Section("By turns within one process", parts)]
    return report.write_page(out, "What recording every request and every chunk costs", sections, facts, remarks)


def _ratios(costs: Sequence[Cost]) -> list[tuple[str, Interval, Interval]]:
    """Return each ratio with its name and its control."""
    cpu = [(f"CPU time per request, {cost.name}", cost.cpu, cost.cpu_control) for cost in costs]
    return cpu + [(f"requests per second, {cost.name}", cost.rps, cost.rps_control) for cost in costs if cost.saturated]


def _plot(found: Sequence[tuple[str, Interval, Interval]]) -> Plot:
    measured = [one for _, one, _ in found]
    control = [one for _, _, one in found]
    data = {
        "labels": [name for name, _, _ in found], "unit": "x", "mark": "dot",
        "rules": [{"value": 1, "name": "the same"}],
        "series": [
            {"name": "with logging", "colour": "third", **_ends(measured)},
            {"name": "without once more (the control)", "colour": "quiet", **_ends(control)},
        ],
        "texts": [f"{one.value:.4f} (control {other.value:.4f})" for _, one, other in found],
    }  # fmt: skip
    words = "Ratio to the same server without logging, with its interval of 95 %. "
    words += "; ".join(f"{name}: {one}, the control {other}" for name, one, other in found)
    return Plot("turns", "Ratio to the same server without logging", f"{words}.", "bars", data)


def _ends(found: Sequence[Interval]) -> dict[str, list[float]]:
    return {
        "values": [one.value for one in found],
        "low": [one.low for one in found],
        "high": [one.high for one in found],
    }


def _table(costs: Sequence[Cost]) -> Table:
    rows: list[tuple[str, ...]] = []
    for cost in costs:
        added = f"{cost.added_cpu_us.value:.2f} ± {cost.added_cpu_us.half:.2f} µs"
        ratios = (str(cost.cpu), str(cost.cpu_control), str(cost.blocks))
        rows.append((f"CPU time, {cost.name}", f"{cost.unlogged_cpu_us:.1f} µs", added, *ratios))
        rate = f"{cost.unlogged_rps:,.0f}/s" if cost.saturated else f"not saturated ({cost.busy:.0%} of its core)"
        rows.append((f"requests, {cost.name}", rate, "", str(cost.rps), str(cost.rps_control), str(cost.blocks)))
    return Table("Costs", _HEADS, rows)
