"""The plots of the benchmark's page: each has its figures in words as well, and ours in a colour of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from inference_logging.bench.figures import Text, bytes_text, share_text, threads_text, time_text
from inference_logging.bench.result import CallTime, Cell, Estimate, PeerEntry, Result
from inference_logging.cli.terminal import safe
from inference_logging.stats.drawing import (
    FIRST,
    GRID,
    INK,
    QUIET,
    SECOND,
    THIRD,
    Plot,
    formatter,
    log_axis,
    names_axis,
    plot,
    powers_of_ten,
    short,
)
from inference_logging.stats.summary import short_count

_COLOURS: Final = (FIRST, THIRD, SECOND)
_LEAST_BYTES: Final = 4096  # one page, the unit in which the kernel counts
_LABEL_INCHES: Final = 0.21
_LONGEST_TITLE: Final = 42
_QUANTILES: Final = (("p50_ns", "p50", FIRST), ("p99_ns", "p99", THIRD), ("p999_ns", "p99.9", SECOND))
_LOSS_COLOURS: Final = {"lost": SECOND, "late": QUIET, "refused": THIRD}
LOOP_NAMES: Final = {"closed": "closed loop", "open": "open loop"}


class Cells:
    """The cells of a result, by what they were measured with."""

    def __init__(self, result: Result) -> None:
        self.all = result["cells"]
        self.peers: dict[str, PeerEntry] = {peer["name"]: peer for peer in result["peers"]}
        self.threads = sorted({cell["threads"] for cell in self.all})
        self.sizes = sorted({cell["record_bytes"] for cell in self.all})
        self.loops = [loop for loop in LOOP_NAMES if any(cell["loop"] == loop for cell in self.all)]
        self._found = {
            (cell["peer"], cell["threads"], str(cell["loop"]), cell["record_bytes"]): cell for cell in self.all
        }

    def cell(self, peer: str, threads: int, loop: str, record_bytes: int) -> Cell | None:
        """Return a cell, or None if it was not measured."""
        return self._found.get((peer, threads, loop, record_bytes))

    def estimate(self, peer: str, threads: int, loop: str, record_bytes: int, figure: str) -> Estimate | None:
        """Return a figure of a cell, or None if it was not measured."""
        cell = self.cell(peer, threads, loop, record_bytes)
        return cell["figures"].get(figure) if cell else None

    def title(self, peer: str) -> str:
        """Return what a peer is called on the page."""
        return self.peers[peer]["title"] if peer in self.peers else peer

    def is_ours(self, peer: str) -> bool:
        """Return whether a peer is a part of this package."""
        return peer in self.peers and self.peers[peer]["ours"]


def latency(cells: Cells, loop: str, record_bytes: int) -> Plot | None:
    """Draw the quantiles of a call, a panel for each number of threads, on logarithmic axes."""
    names = [name for name in cells.peers if _points(cells, name, cells.threads, loop, record_bytes, "p50_ns")]
    if not names:
        return None

    def draw(panels: Any) -> None:
        shown = _list(panels)
        for axes, threads in zip(shown, cells.threads, strict=True):
            _quantiles(axes, cells, names, (threads, loop, record_bytes))
            axes.set_xscale("log")
            names_axis(axes, threads_text(threads))
        ends = [end for axes in shown for end in axes.get_xlim()]
        for axes in shown:
            axes.set_xlim(min(ends), max(ends))
            _ticks(axes, _powers(10, min(ends), max(ends), most=4), time_text)
        _name(shown[0], cells, names)
        _legend_above(shown[0])

    least = cells.threads[0]
    listed = []
    for name in names:
        found = (cells.estimate(name, least, loop, record_bytes, figure) for figure, _, _ in _QUANTILES)
        listed.append(f"{safe(cells.title(name))}: {', '.join(time_text(one['value']) for one in found if one)}")
    words = f"p50, p99 and p99.9 of a call, {threads_text(least)}, {LOOP_NAMES[loop]}. {'; '.join(listed)}."
    title = f"Latency of a call, {LOOP_NAMES[loop]}"
    return plot(f"latency-{loop}", title, words, _height(len(names)), draw, panels=len(cells.threads))


def _quantiles(axes: Any, cells: Cells, names: Sequence[str], where: tuple[int, str, int]) -> None:
    for figure, label, colour in _QUANTILES:
        found = {place: cells.estimate(name, *where, figure) for place, name in enumerate(names)}
        values = {place: one["value"] for place, one in found.items() if one and one["value"] > 0}
        axes.scatter(list(values.values()), list(values), s=34, color=colour, label=label, zorder=3)
    for place, name in enumerate(names):
        ends = [cells.estimate(name, *where, figure) for figure in ("p50_ns", "max_ns")]
        if ends[0] and ends[1] and ends[0]["value"] > 0:
            low, high = ends[0]["value"], ends[1]["value"]
            axes.hlines([place], low, high, color=GRID, linewidth=1.6, zorder=1)
            axes.plot([high], [place], marker="|", markersize=9, color=QUIET, linestyle="none", zorder=2,
                      label="longest" if place == 0 else None)  # fmt: skip


def throughput(cells: Cells, loop: str, record_bytes: int) -> Plot | None:
    """Draw records per second against the number of threads, a line for each peer, named at its end."""
    lines = {name: _points(cells, name, cells.threads, loop, record_bytes, "records_per_s") for name in cells.peers}
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return None

    def draw(axes: Any) -> None:
        for name, points in lines.items():
            colour, width = (FIRST, 2.2) if cells.is_ours(name) else (QUIET, 1.0)
            values, reach = reach_of(points.values())
            axes.errorbar(
                list(points), values, yerr=reach, color=colour, linewidth=width, marker="o", markersize=3, capsize=2
            )
        _threads_axis(axes, cells.threads)
        axes.set_yscale("log")
        powers_of_ten(axes.yaxis, *axes.get_ylim())
        axes.yaxis.set_major_formatter(formatter(short_count))
        axes.set_ylabel("records per second")
        _name_lines(axes, cells, lines)

    most = cells.threads[-1]
    listed = (
        f"{safe(cells.title(name))}: {short_count(next(iter(points.values()))['value'])} to "
        f"{short_count(list(points.values())[-1]['value'])}"
        for name, points in lines.items()
    )
    words = f"Records per second with {cells.threads[0]} to {threads_text(most)}. {'; '.join(listed)}."
    height = max(4.2, _LABEL_INCHES * len(lines) + 1.2)
    return plot("throughput", "Throughput against threads", words, height, draw)


def _name_lines(axes: Any, cells: Cells, lines: Mapping[str, Mapping[int, Estimate]]) -> None:
    """Write the names beside the last points, spread so that none lies over another."""
    axes.figure.draw_without_rendering()  # the layout decides how high the axes are
    ends = sorted((list(points.values())[-1]["value"], name) for name, points in lines.items())
    to_inches = axes.transData.transform
    dots_per_inch = axes.figure.dpi
    wanted = [float(to_inches((cells.threads[-1], value))[1]) / dots_per_inch for value, _ in ends]
    placed = spread(wanted, _LABEL_INCHES)
    for (value, name), at, place in zip(ends, wanted, placed, strict=True):
        colour = FIRST if cells.is_ours(name) else INK
        axes.annotate(
            short(cells.title(name), _LONGEST_TITLE), (max(lines[name]), value), (26, (place - at) * 72),
            color=colour, fontsize=9.5, textcoords="offset points", va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": GRID, "linewidth": 0.8,
                        "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 4},
        )  # fmt: skip


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Return places at least ``gap`` apart in the order of ``wanted`` (ascending), each group around its middle."""
    groups: list[list[float]] = []
    for place in wanted:
        groups.append([place])
        while len(groups) > 1 and _span(groups[-1], gap)[0] < _span(groups[-2], gap)[1]:
            last = groups.pop()
            groups[-1] += last
    return [_span(group, gap)[0] + gap / 2 + gap * at for group in groups for at in range(len(group))]


def _span(group: Sequence[float], gap: float) -> tuple[float, float]:
    middle = sum(group) / len(group)
    return middle - gap * len(group) / 2, middle + gap * len(group) / 2


class Loss(NamedTuple):
    """What became of the calls of a peer in all cells of one kind of loop."""

    calls: int
    lost: int
    late: int
    refused: int

    def shares(self) -> Iterator[tuple[str, float]]:
        """Iterate over the shares of the calls that left no record."""
        for name, count in (("lost", self.lost), ("late", self.late), ("refused", self.refused)):
            yield name, count / self.calls

    def text(self) -> str:
        """Return the shares in words."""
        return ", ".join(f"{share_text(share)} {name}" for name, share in self.shares() if share) or "0"


def losses(cells: Cells, loop: str) -> dict[str, Loss]:
    """Return the losses of the peers whose records arrive somewhere."""
    found = {}
    for name, peer in cells.peers.items():
        rounds = [
            one
            for cell in cells.all
            if peer["writes"] and (cell["peer"], cell["loop"]) == (name, loop)
            for one in cell["rounds"]
        ]
        missing = [(one["drained"], max(one["accepted"] - one["arrived"], 0)) for one in rounds]
        if calls := sum(one["calls"] for one in rounds):
            lost, late = (sum(count for drained, count in missing if drained is was) for was in (True, False))
            found[name] = Loss(calls, lost, late, sum(one["refused"] for one in rounds))
    return found


def loss(cells: Cells) -> Plot | None:
    """Draw which share of the calls left no record, a panel for each kind of loop."""
    found = {loop: losses(cells, loop) for loop in cells.loops}
    names = [name for name in cells.peers if any(name in of_loop for of_loop in found.values())]
    if not names:
        return None

    def draw(panels: Any) -> None:
        for axes, (loop, of_loop) in zip(_list(panels), found.items(), strict=True):
            for place, name in enumerate(names):
                if name not in of_loop:
                    continue
                left = 0.0
                for share_of, share in of_loop[name].shares():
                    label = share_of if place == 0 else None
                    axes.barh([place], [share], 0.6, [left], color=_LOSS_COLOURS[share_of], label=label)
                    left += share
                axes.annotate(of_loop[name].text(), (left, place), (5, 0), textcoords="offset points", va="center",
                              fontsize=9.5, color=INK)  # fmt: skip
            axes.set_xlim(0, 2)  # room for the text beside a bar of 100 %
            _ticks(axes, [0, 0.5, 1], "{:.0%}".format)
            names_axis(axes, LOOP_NAMES[loop])
        _name(_list(panels)[0], cells, names)
        _legend_above(_list(panels)[0])

    listed = (
        f"{safe(cells.title(name))}: {one.text()} in the {LOOP_NAMES[loop]}"
        for loop, of_loop in found.items()
        for name, one in of_loop.items()
    )
    words = f"Share of the calls that left no record, all cells together. {'; '.join(listed)}."
    return plot("loss", "Loss", words, _height(len(names)), draw, panels=len(found))


def by_threads(
    cells: Cells, name: str, title: str, figure: str, where: tuple[str, int], axis: str, text: Text, least: float
) -> Plot | None:
    """Draw one figure of every peer, a mark for each number of threads, on a logarithmic axis from ``least``."""
    lines = {peer: _points(cells, peer, cells.threads, *where, figure) for peer in cells.peers}
    lines = {peer: points for peer, points in lines.items() if points}
    if not lines:
        return None

    def draw(axes: Any) -> None:
        for step, (threads, colour) in enumerate(zip(cells.threads, _COLOURS, strict=False)):
            places = [place + 0.22 * (step - 1) for place, points in enumerate(lines.values()) if threads in points]
            found = [points[threads] for points in lines.values() if threads in points]
            values, reach = reach_of(found, least)
            axes.errorbar(values, places, xerr=reach, color=colour, linestyle="none", marker="o", markersize=5,
                          capsize=2, label=threads_text(threads))  # fmt: skip
        log_axis(axes, text)
        if text is bytes_text:
            low, high = axes.get_xlim()
            _ticks(axes, _powers(2, low, high, most=8), text)
        names_axis(axes, axis)
        _name(axes, cells, list(lines))
        _legend_above(axes)

    listed = (
        f"{safe(cells.title(peer))}: {', '.join(text(one['value']) for one in points.values())}"
        for peer, points in lines.items()
    )
    counts = ", ".join(map(str, cells.threads))
    words = f"{title}, with {counts} threads, {LOOP_NAMES[where[0]]}. {'; '.join(listed)}."
    return plot(name, title, words, _height(len(lines)), draw)


def memory(cells: Cells, loop: str, record_bytes: int) -> Plot | None:
    """Draw how much memory each peer took at most."""
    title, where = "Peak memory above the start", (loop, record_bytes)
    return by_threads(cells, "memory", title, "peak_bytes", where, "memory", bytes_text, _LEAST_BYTES)


def interpreter_cpu(cells: Cells, loop: str, record_bytes: int) -> Plot | None:
    """Draw what a record takes of the interpreter's CPU time."""
    title, where = "Interpreter CPU per record", (loop, record_bytes)
    return by_threads(cells, "cpu", title, "interpreter_cpu_ns", where, "CPU time", time_text, 1.0)


def single_calls(cells: Cells, enabled: Sequence[CallTime], filtered: Sequence[CallTime]) -> Plot | None:
    """Draw what a call takes on one thread: one that makes a record, and one that is filtered out."""
    kinds = {"makes a record": enabled, "is filtered out": filtered}
    found = {kind: {one["peer"]: one["ns"] for one in times} for kind, times in kinds.items()}
    names = [name for name in cells.peers if any(name in of_kind for of_kind in found.values())]
    if not names:
        return None

    def draw(axes: Any) -> None:
        for (kind, of_kind), colour in zip(found.items(), (FIRST, SECOND), strict=True):
            measured = [(place, of_kind[name]) for place, name in enumerate(names) if name in of_kind]
            values, reach = reach_of(one for _, one in measured)
            axes.errorbar(values, [place for place, _ in measured], xerr=reach, color=colour, linestyle="none",
                          marker="o", markersize=6, capsize=3, label=kind)  # fmt: skip
        log_axis(axes, time_text)
        names_axis(axes, "time per call")
        _name(axes, cells, names)
        _legend_above(axes)

    listed = (
        f"{safe(cells.title(name))}: "
        + ", ".join(f"{time_text(times[name]['value'])} ({kind})" for kind, times in found.items() if name in times)
        for name in names
    )
    words = f"Time of a call on one thread. {'; '.join(listed)}."
    return plot("calls", "A call that makes a record, and one that is filtered out", words, _height(len(names)), draw)


def _points(
    cells: Cells, peer: str, threads: Sequence[int], loop: str, record_bytes: int, figure: str
) -> dict[int, Estimate]:
    found = {count: cells.estimate(peer, count, loop, record_bytes, figure) for count in threads}
    return {count: one for count, one in found.items() if one}


def _list(panels: Any) -> list[Any]:
    return list(panels) if hasattr(panels, "__len__") else [panels]


def _name(axes: Any, cells: Cells, names: Sequence[str]) -> None:
    """Write the peers' names, the first on top, ours in their colour."""
    axes.set_yticks(range(len(names)), [short(cells.title(name), _LONGEST_TITLE) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        label.set_color(FIRST if cells.is_ours(name) else INK)


def _legend_above(axes: Any) -> None:
    """Put the legend above the whole drawing, where it makes no panel wider."""
    handles, labels = axes.get_legend_handles_labels()
    axes.figure.legend(handles, labels, loc="outside upper left", ncols=len(labels))


def _ticks(axes: Any, places: Sequence[float], text: Text) -> None:
    axes.set_xticks(places)
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter(formatter(text))


def _powers(base: int, low: float, high: float, most: int) -> list[float]:
    """Return powers of ``base`` from ``low`` to ``high``, every second, third, … so that there are at most ``most``."""
    exponents = range(math.ceil(math.log(low, base)), math.floor(math.log(high, base)) + 1)
    step = 1
    while len(chosen := [exponent for exponent in exponents if exponent % step == 0]) > most:
        step += 1
    return [float(base**exponent) for exponent in chosen]


def reach_of(found: Iterable[Estimate], least: float = 0.0) -> tuple[list[float], list[list[float]]]:
    """Return values and how far their intervals reach to either side, as matplotlib wants them."""
    listed = list(found)
    values = [max(one["value"], least) for one in listed]
    below = [max(value - max(one["low"], least), 0.0) for value, one in zip(values, listed, strict=True)]
    above = [max(one["high"] - value, 0.0) for value, one in zip(values, listed, strict=True)]
    return values, [below, above]


def _threads_axis(axes: Any, threads: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(threads, [str(count) for count in threads])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("threads")


def _height(rows: int) -> float:
    return 1.1 + 0.3 * rows


def all_plots(result: Result) -> Iterator[Plot]:
    """Draw each plot that has data, of the smallest record."""
    cells = Cells(result)
    if cells.sizes:
        size = cells.sizes[0]
        first = cells.loops[0]
        drawn = [latency(cells, loop, size) for loop in reversed(cells.loops)]
        drawn += [throughput(cells, first, size), loss(cells), memory(cells, first, size)]
        drawn += [interpreter_cpu(cells, first, size)]
        yield from filter(None, drawn)
    if (calls := single_calls(cells, result["enabled"], result["filtered"])) is not None:
        yield calls
