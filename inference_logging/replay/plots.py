"""The plots of the page of `replay --html`: each time's distribution in both runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from inference_logging.replay.comparison import Comparison, Times
from inference_logging.stats.drawing import FIRST, SECOND, Plot, formatter, legend, log_axis, plot
from inference_logging.stats.summary import duration_text

_MOST_POINTS: Final = 300
"""Of a line; more make a page larger, and look the same."""


def plots(comparison: Comparison) -> Iterator[Plot]:
    """Draw each time that requests have in both runs."""
    yield from (_distribution(times) for times in comparison.times if times.pairs)


def _distribution(times: Times) -> Plot:
    arms = (("recorded", FIRST), ("replayed", SECOND))
    medians = [duration_text(times.quantiles(arm)[0]) for arm in (0, 1)]

    def draw(axes: Any) -> None:
        for arm, (name, colour) in enumerate(arms):
            ordered = sorted(pair[arm] for pair in times.pairs)
            shown = range(0, len(ordered), len(ordered) // _MOST_POINTS + 1)
            places = [ordered[at] for at in shown] + [ordered[-1]]
            shares = [(at + 1) / len(ordered) for at in shown] + [1.0]
            axes.plot(places, shares, color=colour, linewidth=1.8, label=name, drawstyle="steps-post", marker=".",
                      markersize=3)  # fmt: skip
        log_axis(axes, duration_text)
        axes.yaxis.set_major_formatter(formatter("{:.0%}".format))
        axes.set_ylim(0, 1.02)
        axes.set_ylabel("share of requests")
        legend(axes, 2)

    words = (
        f"Share of {len(times.pairs)} requests whose {times.name} was at most so long, on a logarithmic scale: median "
        f"{medians[0]} recorded, {medians[1]} replayed."
    )
    return plot(times.name.replace(" ", "-"), times.name.capitalize(), words, 3.0, draw)
