"""The plots of the report, as SVG within a page: colours are the page's, text is text.

Colours are drawn as placeholders and replaced by CSS variables, so that one drawing is readable in light and dark.
Names come from requests: they are shortened, and never read as mathematical notation.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

from inference_logging.cli.terminal import safe
from inference_logging.errors import MissingExtraError
from inference_logging.stats.counts import Counts, Group
from inference_logging.stats.sketch import Sketch
from inference_logging.stats.summary import count_text, duration_text, short_count

try:
    import matplotlib as mpl
    from matplotlib.dates import AutoDateLocator, DateFormatter
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter
except ImportError:
    raise MissingExtraError("a page with plots", "matplotlib", "cli") from None

INK, GRID, FIRST, SECOND, THIRD = "#010101", "#020202", "#030303", "#040404", "#050505"
VARIABLES: Final = {INK: "ink", GRID: "grid", FIRST: "first", SECOND: "second", THIRD: "third"}
"""The name of the CSS variable that takes each placeholder's place."""

_MOST_BARS: Final = 10
_LONGEST_NAME: Final = 34
_DAY_S: Final = 86400
_SECONDS_SHOWN_S: Final = 600
_DAYS_SHOWN_S: Final = 14 * _DAY_S
_LEAST_S: Final = 1e-6  # nothing is shorter on a logarithmic scale
_WIDE_RANGE: Final = 10.0
_WIDTH_INCHES: Final = 9.0
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GRID,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}


class Plot(NamedTuple):
    """A drawing: the name its ids begin with, heading, description in words, SVG element, the table it belongs to."""

    name: str
    title: str
    words: str
    svg: str
    table: str = ""


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
        _time_axis(axes)
        _legend(axes, 2)

    words = (
        f"Requests per second, by the time at which they ended, in intervals of {line.width_s} s: at most "
        f"{max(map(sum, zip(ok, failed, strict=True))):.3g} per second."
    )
    return _plot("over-time", "Requests over time", words, 3.0, draw)


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
        if drawn and max(drawn) > _WIDE_RANGE * min(drawn):
            axes.set_yscale("log")
            _powers_of_ten(axes.yaxis, *axes.get_ylim())
        else:
            axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(_seconds())
        _time_axis(axes)
        _legend(axes, 2)

    words = "Duration of requests over time: the median and the 99th percentile of each interval."
    return _plot("durations", "Duration over time", words, 3.0, draw)


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
        _log_seconds(axes)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylim(0, 1.02)
        axes.set_ylabel("share of requests")
        _legend(axes, 3)

    parts = (
        f"{name}: median {duration_text(sketch.quantile(0.5))}, 99th percentile {duration_text(sketch.quantile(0.99))}"
        for name, sketch, _ in curves
        if sketch.count
    )
    words = f"Share of requests that took at most so long, on a logarithmic scale. {'; '.join(parts)}."
    return _plot("distribution", "Times", words, 3.4, draw, "Times")


def _outcomes(whole: Group) -> Plot:
    ordered = sorted(whole.outcomes.items(), key=lambda item: (item[0] != "ok", -item[1]))[:_MOST_BARS]
    shares = [f"{count_text(count)}  ({count / whole.requests:.2%})" for _, count in ordered]

    def draw(axes: Any) -> None:
        colours = [FIRST if name == "ok" else SECOND for name, _ in ordered]
        bars = axes.barh([_short(name) for name, _ in ordered], [count for _, count in ordered], color=colours)
        axes.bar_label(bars, shares, padding=4)
        _horizontal(axes, "requests")

    words = "Requests by outcome: " + ", ".join(f"{safe(name)} {count_text(count)}" for name, count in ordered) + "."
    return _plot("outcomes", "Outcomes", words, _height(len(ordered)), draw, "Outcomes")


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
        axes.set_yticks(places, [_short(name) for name in names])
        axes.set_ylim(len(names) - 0.5, -0.5)
        _log_seconds(axes)
        _names_axis(axes, "duration")
        _legend(axes, 2)

    listed = (f"{safe(n)}: {duration_text(a)}, {duration_text(b)}" for n, a, b in zip(names, p50, p99, strict=True))
    words = "Median and 99th percentile of the duration by route, the most used first. " + "; ".join(listed) + "."
    return _plot("routes", "By route", words, _height(len(shown)), draw, "By route")


def _tokens(models: dict[str, Group]) -> Plot:
    shown = list(models.items())[:_MOST_BARS]
    names = [name for name, _ in shown]

    def draw(axes: Any) -> None:
        read = [group.input_tokens for _, group in shown]
        written = [group.output_tokens for _, group in shown]
        _paired(axes, names, (read, "input"), (written, "output"), count_text)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
        _horizontal(axes, "tokens")

    listed = (f"{safe(n)}: {count_text(g.input_tokens)} in, {count_text(g.output_tokens)} out" for n, g in shown)
    words = "Tokens by model. " + "; ".join(listed) + "."
    return _plot("tokens", "Tokens by model", words, _height(2 * len(shown)), draw, "Tokens by model")


def _plot(
    name: str, title: str, words: str, height_inches: float, draw: Callable[[Any], None], table: str = ""
) -> Plot:
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # The page's own fonts are used to show the text; only its width is guessed here.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
        draw(figure.add_subplot())
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return Plot(name, title, words, for_page(written.getvalue(), name, VARIABLES), table)


def for_page(svg: str, name: str, variables: Mapping[str, str]) -> str:
    """Make one element of a document that matplotlib wrote: ids that begin with ``name``, the page's colours and font.

    ``variables``: the CSS variable that replaces each colour, ``#rrggbb``.
    """
    svg = svg[svg.index("<svg ") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", svg)
    svg = re.sub(r'(<svg [^>]*?) width="[^"]*"', r"\1", svg)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    svg = re.sub(r"'DejaVu Sans'[^;\"]*", "inherit", svg)
    for placeholder, variable in variables.items():
        svg = svg.replace(placeholder, f"var(--{variable})")
    return svg


def _intervals(counts: Counts) -> tuple[list[float], list[Any]]:
    """Return the ends of the intervals, as matplotlib's days, and the requests of each; None for an empty one."""
    line = counts.time_line
    indices = range(min(line.intervals), max(line.intervals) + 1)
    ends = [index * line.width_s / _DAY_S for index in [*indices, indices.stop]]
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
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    _legend(axes, 2)


def _horizontal(axes: Any, label: str) -> None:
    axes.invert_yaxis()
    axes.margins(x=0.18)
    axes.set_xlim(left=0)
    _names_axis(axes, label)


def _names_axis(axes: Any, label: str) -> None:
    axes.set_xlabel(label)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def _legend(axes: Any, columns: int) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.2)


def _time_axis(axes: Any) -> None:
    """Label points in time so that each is clear by itself; if there is only one day, it is below."""
    axes.margins(x=0)
    begin, end = (datetime.fromtimestamp(days * _DAY_S, timezone.utc) for days in axes.get_xlim())
    span_s = (end - begin).total_seconds()
    form = "%H:%M:%S" if span_s < _SECONDS_SHOWN_S else "%H:%M" if begin.date() == end.date() else "%m-%d %H:%M"
    form = "%Y-%m-%d" if span_s > _DAYS_SHOWN_S else form
    axes.xaxis.set_major_locator(AutoDateLocator(tz=timezone.utc, maxticks=8))  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(DateFormatter(form, tz=timezone.utc))  # type: ignore[no-untyped-call]
    days = f"{begin:%Y-%m-%d}" if begin.date() == end.date() else f"{begin:%Y-%m-%d} to {end:%Y-%m-%d}"
    axes.set_xlabel(f"UTC, {days}")


def _log_seconds(axes: Any) -> None:
    """Make the horizontal axis one of times on a logarithmic scale, with room beside what is drawn."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    # Labels beside the outermost marks take a share of the width, whatever range that is.
    room = max(1.6, (high / low) ** 0.16)
    axes.set_xlim(low / room, high * room)
    _powers_of_ten(axes.xaxis, low / room, high * room)
    axes.xaxis.set_major_formatter(_seconds())


def _powers_of_ten(axis: Any, low: float, high: float) -> None:
    """Label as many points as are readable."""
    few = high > _WIDE_RANGE**3 * low
    axis.set_major_locator(LogLocator(subs=(1.0,) if few else (1.0, 2.0, 5.0), numticks=30))
    axis.set_minor_locator(NullLocator())


def _seconds() -> Any:
    return FuncFormatter(lambda value, _: duration_text(value) if value > 0 else "0")


def _height(bars: int) -> float:
    return 1.1 + 0.36 * bars


def _short(name: str) -> str:
    name = safe(name)
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
