"""The plot of one quantity that grows: the cost with its interval, and the same work without logging beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from inference_logging.bench.figures import bytes_text, time_text
from inference_logging.bench.plots import reach_of
from inference_logging.bench.result import Estimate
from inference_logging.bench.series import Series
from inference_logging.cli.terminal import safe
from inference_logging.stats.drawing import FIRST, QUIET, Plot, formatter, legend, plot, powers_of_ten

_HEIGHT_INCHES: Final = 3.2
_MUCH: Final = 20


def growth_plot(series: Series) -> Plot:
    """Draw a series."""
    places = [point["x"] for point in series["points"]]

    def draw(axes: Any) -> None:
        _line(axes, places, series["points"], FIRST, "with logging")
        _line(axes, places, [point["control"] for point in series["points"]], QUIET, series["control_title"])
        axes.set_xscale("log")
        axes.set_xticks(places, [_place_text(series, place) for place in places])
        axes.set_xticks([], minor=True)
        axes.set_xlabel(safe(series["x_title"]))
        axes.set_ylabel(safe(series["y_title"]))
        ends = [end for point in series["points"] for end in (point["high"], point["control"]["low"])]
        if max(ends) > _MUCH * min(ends) > 0:
            axes.set_yscale("log")
            powers_of_ten(axes.yaxis, *axes.get_ylim())
        else:
            axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(formatter(time_text))
        legend(axes, 2)

    listed = (
        f"{_place_text(series, point['x'])}: {time_text(point['value'])}, "
        f"without {time_text(point['control']['value'])}"
        for point in series["points"]
    )
    words = f"{series['sentence']} {'; '.join(listed)}."
    return plot(f"growth-{series['name']}", series["title"], words, _HEIGHT_INCHES, draw)


def _line(axes: Any, places: Sequence[int], points: Sequence[Estimate], colour: str, label: str) -> None:
    values, reach = reach_of(points)
    axes.errorbar(places, values, yerr=reach, color=colour, linewidth=1.8, marker="o", markersize=5, capsize=3,
                  label=label)  # fmt: skip


def _place_text(series: Series, place: int) -> str:
    return bytes_text(place) if series["name"] == "record-bytes" else f"{place:,}"
