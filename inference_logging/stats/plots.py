"""The plots of the page of `stats --html`: each has its figures in words as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from typing import Any, Final

from inference_logging.cli.terminal import safe
from inference_logging.stats.counts import Counts, Group
from inference_logging.stats.drawing import (
    DAY_S,
    FIRST,
    GRID,
    SECOND,
    THIRD,
    WIDE_RANGE,
    Plot,
    formatter,
    height_of,
    horizontal,
    legend,
    log_axis,
    names_axis,
    plot,
    powers_of_ten,
    short,
    time_axis,
)
from inference_logging.stats.sketch import Sketch
from inference_logging.stats.summary import count_text, duration_text, short_count

_MOST_BARS: Final = 10
_LEAST_S: Final = 1e-6  # nothing is shorter on a logarithmic scale


def plots(counts: Counts) -> Iterator[Plot]:
    """Draw each plot that has data."""
    whole = counts.total()
    models = {name: group for name, group in counts.by_model().items() if group.input_tokens or group.output_tokens}
    has_course = len(counts.time_line.intervals) > 1
    if has_course:
        yield _over_time(counts)
    if whole.requests:
        yield _outcomes(whole)
    if whole.duration.count:
        if has_course:
            yield _durations_over_time(counts)
        yield _distribution(whole)
        yield _routes(counts.by_route())
    if models:
        yield _tokens(models)


def _over_time(counts: Counts) -> Plot:
    line = counts.time_line
    beginnings, intervals = _intervals(counts)
    ok = [interval.ok / line.width_s if interval else 0.0 for interval in intervals]
    failed = [interval.failed / line.width_s if interval else 0.0 for interval in intervals]

    def draw(axes: Any) -> None:
        axes.stairs(ok, beginnings, fill=True, color=FIRST, label="ok")
        both = [a + b for a, b in zip(ok, failed, strict=True)]
        axes.stairs(both, beginnings, baseline=ok, fill=True, color=SECOND, label="not ok")
        axes.set_ylabel("requests per second")
        axes.set_ylim(bottom=0)
        time_axis(axes)
        legend(axes, 2)

    words = (
        f"Requests per second, by the time at which they ended, in intervals of {line.width_s} s: at most "
        f"{max(map(sum, zip(ok, failed, strict=True))):.3g} per second."
    )
    return plot("over-time", "Requests over time", words, 3.0, draw)


def _durations_over_time(counts: Counts) -> Plot:
    beginnings, intervals = _intervals(counts)
    middles = [(a + b) / 2 for a, b in pairwise(beginnings)]

    def draw(axes: Any) -> None:
        drawn: list[float] = []
        for share, name, colour in ((0.5, "p50", FIRST), (0.99, "p99", SECOND)):
            heights = [interval.duration.quantile(share) if interval else None for interval in intervals]
            seconds = [height if height is not None else float("nan") for height in heights]
            drawn += [height for height in heights if height]
            axes.plot(middles, seconds, color=colour, linewidth=1.6, marker=".", markersize=4, label=name)
        axes.set_ylabel("duration")
        if drawn and max(drawn) > WIDE_RANGE * min(drawn):
            axes.set_yscale("log")
            powers_of_ten(axes.yaxis, *axes.get_ylim())
        else:
            axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(formatter(duration_text))
        time_axis(axes)
        legend(axes, 2)

    words = "Duration of requests over time: the median and the 99th percentile of each interval."
    return plot("durations", "Duration over time", words, 3.0, draw)


def _distribution(whole: Group) -> Plot:
    curves = [
        ("duration", whole.duration, FIRST),
        ("time to first chunk", whole.first_chunk, SECOND),
        ("time per chunk", whole.chunk_gap, THIRD),
    ]

    def draw(axes: Any) -> None:
        for name, sketch, colour in curves:
            if sketch.count:
                axes.plot(*_cumulated(sketch), color=colour, linewidth=1.8, label=name, drawstyle="steps-post")
        log_axis(axes, duration_text)
        axes.yaxis.set_major_formatter(formatter("{:.0%}".format))
        axes.set_ylim(0, 1.02)
        axes.set_ylabel("share of requests")
        legend(axes, 3)

    parts = (
        f"{name}: median {duration_text(sketch.quantile(0.5))}, 99th percentile {duration_text(sketch.quantile(0.99))}"
        for name, sketch, _ in curves
        if sketch.count
    )
    words = f"Share of requests that took at most so long, on a logarithmic scale. {'; '.join(parts)}."
    return plot("distribution", "Times", words, 3.4, draw, "Times")


def _outcomes(whole: Group) -> Plot:
    ordered = sorted(whole.outcomes.items(), key=lambda item: (item[0] != "ok", -item[1]))[:_MOST_BARS]
    shares = [f"{count_text(count)}  ({count / whole.requests:.2%})" for _, count in ordered]

    def draw(axes: Any) -> None:
        colours = [FIRST if name == "ok" else SECOND for name, _ in ordered]
        bars = axes.barh([short(name) for name, _ in ordered], [count for _, count in ordered], color=colours)
        axes.bar_label(bars, shares, padding=4)
        horizontal(axes, "requests")

    words = "Requests by outcome: " + ", ".join(f"{safe(name)} {count_text(count)}" for name, count in ordered) + "."
    return plot("outcomes", "Outcomes", words, height_of(len(ordered)), draw, "Outcomes")


def _routes(groups: dict[str, Group]) -> Plot:
    shown = [(name, group) for name, group in groups.items() if group.duration.count][:_MOST_BARS]
    names = [name for name, _ in shown]
    p50, p99 = ([max(group.duration.quantile(share) or 0.0, _LEAST_S) for _, group in shown] for share in (0.5, 0.99))

    def draw(axes: Any) -> None:
        places = range(len(names))
        axes.hlines(places, p50, p99, color=GRID, linewidth=2)
        for values, label, colour, side in ((p50, "p50", FIRST, "right"), (p99, "p99", SECOND, "left")):
            axes.scatter(values, places, s=60, color=colour, label=label, zorder=2)
            for place, value in zip(places, values, strict=True):
                gap = (-8 if side == "right" else 8, 0)
                axes.annotate(
                    duration_text(value), (value, place), gap, textcoords="offset points", ha=side, va="center"
                )
        axes.set_yticks(places, [short(name) for name in names])
        axes.set_ylim(len(names) - 0.5, -0.5)
        log_axis(axes, duration_text)
        names_axis(axes, "duration")
        legend(axes, 2)

    listed = (f"{safe(n)}: {duration_text(a)}, {duration_text(b)}" for n, a, b in zip(names, p50, p99, strict=True))
    words = "Median and 99th percentile of the duration by route, the most used first. " + "; ".join(listed) + "."
    return plot("routes", "By route", words, height_of(len(shown)), draw, "By route")


def _tokens(models: dict[str, Group]) -> Plot:
    shown = list(models.items())[:_MOST_BARS]
    names = [name for name, _ in shown]

    def draw(axes: Any) -> None:
        read = [group.input_tokens for _, group in shown]
        written = [group.output_tokens for _, group in shown]
        _paired(axes, names, (read, "input"), (written, "output"), count_text)
        axes.xaxis.set_major_formatter(formatter(short_count))
        horizontal(axes, "tokens")

    listed = (f"{safe(n)}: {count_text(g.input_tokens)} in, {count_text(g.output_tokens)} out" for n, g in shown)
    words = "Tokens by model. " + "; ".join(listed) + "."
    return plot("tokens", "Tokens by model", words, height_of(2 * len(shown)), draw, "Tokens by model")


def _intervals(counts: Counts) -> tuple[list[float], list[Any]]:
    """Return the ends of the intervals, as matplotlib's days, and the requests of each; None for an empty one."""
    line = counts.time_line
    indices = range(min(line.intervals), max(line.intervals) + 1)
    ends = [index * line.width_s / DAY_S for index in [*indices, indices.stop]]
    return ends, [line.intervals.get(index) for index in indices]


def _cumulated(sketch: Sketch) -> tuple[list[float], list[float]]:
    bars = [bar for bar in sketch.bars() if bar[1] > 0] or [(_LEAST_S, _LEAST_S, 0.0)]
    zeros = sketch.zeros
    shares = [(zeros + sum_) / sketch.count for sum_ in accumulate(weight for _, _, weight in bars)]
    return [bars[0][0], *(upper for _, upper, _ in bars)], [zeros / sketch.count, *shares]


def _paired(
    axes: Any,
    names: list[str],
    first: tuple[list[float], str],
    second: tuple[list[float], str],
    text: Callable[[float], str],
) -> None:
    for offset, (values, label), colour in ((-0.2, first, FIRST), (0.2, second, SECOND)):
        places = [place + offset for place in range(len(names))]
        bars = axes.barh(places, values, 0.38, color=colour, label=label)
        axes.bar_label(bars, [text(value) for value in values], padding=4)
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    legend(axes, 2)
