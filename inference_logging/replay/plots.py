"""The plots of the page of `replay --html`: each time's distribution in both runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inference_logging.replay.comparison import Comparison, Times
from inference_logging.stats.drawing import FIRST, SECOND, Plot, formatter, legend, log_axis, plot
from inference_logging.stats.summary import duration_text


def plots(comparison: Comparison) -> Iterator[Plot]:
    """Draw each time that requests have in both runs."""
    yield from (_distribution(times) for times in comparison.times if times.pairs)


def _distribution(times: Times) -> Plot:
    arms = (("recorded", FIRST), ("replayed", SECOND))
    medians = [duration_text(times.quantiles(arm)[0]) for arm in (0, 1)]

    def draw(axes: Any) -> None:
        for arm, (name, colour) in enumerate(arms):
            ordered = sorted(pair[arm] for pair in times.pairs)
            shares = [(at + 1) / len(ordered) for at in range(len(ordered))]
            axes.plot(ordered, shares, color=colour, linewidth=1.8, label=name, drawstyle="steps-post", marker=".",
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
