"""Drawings for pages: SVG elements whose colours are the page's, and whose text is text.

Colours are drawn as placeholders and replaced by CSS variables, so that one drawing is readable in light and dark.
Names come from strangers (requests, results): they are shortened, and never read as mathematical notation.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any, Final, NamedTuple

from inference_logging.cli.terminal import safe
from inference_logging.errors import MissingExtraError

try:
    import matplotlib as mpl
    from matplotlib.dates import AutoDateLocator, DateFormatter
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
except ImportError:
    raise MissingExtraError("a page with plots", "matplotlib", "cli") from None

INK, GRID, FIRST, SECOND, THIRD, QUIET = "#010101", "#020202", "#030303", "#040404", "#050505", "#060606"
VARIABLES: Final = {INK: "ink", GRID: "grid", FIRST: "first", SECOND: "second", THIRD: "third", QUIET: "quiet"}
"""The name of the CSS variable that takes each placeholder's place."""

WIDE_RANGE: Final = 10.0
"""From here on an axis is logarithmic."""
DAY_S: Final = 86400
_SECONDS_SHOWN_S: Final = 600
_DAYS_SHOWN_S: Final = 14 * DAY_S
_LONGEST_NAME: Final = 34
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


def plot(
    name: str,
    title: str,
    words: str,
    height_inches: float,
    draw: Callable[[Any], None],
    table: str = "",
    *,
    panels: int = 1,
) -> Plot:
    """Draw: ``draw`` gets the axes, or the array of them if there are several ``panels`` beside each other."""
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # The page's own fonts are used to show the text; only its width is guessed here.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
        draw(figure.subplots(1, panels, sharey=True))
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


def horizontal(axes: Any, label: str) -> None:
    """Finish an axis of horizontal bars, the first on top."""
    axes.invert_yaxis()
    axes.margins(x=0.18)
    axes.set_xlim(left=0)
    names_axis(axes, label)


def names_axis(axes: Any, label: str) -> None:
    """Let the vertical axis hold names, and label the horizontal one."""
    axes.set_xlabel(label)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def legend(axes: Any, columns: int) -> None:
    """Put the legend above the drawing."""
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.2)


def time_axis(axes: Any) -> None:
    """Label points in time so that each is clear by itself; if there is only one day, it is below."""
    axes.margins(x=0)
    begin, end = (datetime.fromtimestamp(days * DAY_S, timezone.utc) for days in axes.get_xlim())
    span_s = (end - begin).total_seconds()
    form = "%H:%M:%S" if span_s < _SECONDS_SHOWN_S else "%H:%M" if begin.date() == end.date() else "%m-%d %H:%M"
    form = "%Y-%m-%d" if span_s > _DAYS_SHOWN_S else form
    axes.xaxis.set_major_locator(AutoDateLocator(tz=timezone.utc, maxticks=8))  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(DateFormatter(form, tz=timezone.utc))  # type: ignore[no-untyped-call]
    days = f"{begin:%Y-%m-%d}" if begin.date() == end.date() else f"{begin:%Y-%m-%d} to {end:%Y-%m-%d}"
    axes.set_xlabel(f"UTC, {days}")


def log_axis(axes: Any, text: Callable[[float], str]) -> None:
    """Make the horizontal axis logarithmic, with room beside what is drawn."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    # Labels beside the outermost marks take a share of the width, whatever range that is.
    room = max(1.6, (high / low) ** 0.16)
    axes.set_xlim(low / room, high * room)
    powers_of_ten(axes.xaxis, low / room, high * room)
    axes.xaxis.set_major_formatter(formatter(text))


def powers_of_ten(axis: Any, low: float, high: float) -> None:
    """Label as many points as are readable."""
    few = high > WIDE_RANGE**3 * low
    axis.set_major_locator(LogLocator(subs=(1.0,) if few else (1.0, 2.0, 5.0), numticks=30))
    axis.set_minor_locator(NullLocator())


def formatter(text: Callable[[float], str]) -> Any:
    """Return the formatter of an axis; ``text`` gives the label of a value above 0."""
    return FuncFormatter(lambda value, _: text(value) if value > 0 else "0")


def height_of(bars: int) -> float:
    """Return the height in inches of a drawing with so many bars."""
    return 1.1 + 0.36 * bars


def short(name: str, longest: int = _LONGEST_NAME) -> str:
    """Return a name that is safe to show, cut where it is too long for an axis."""
    name = safe(name)
    return name if len(name) <= longest else name[: longest - 1] + "…"
