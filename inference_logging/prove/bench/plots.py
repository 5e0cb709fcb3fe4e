"""The plots of the benchmark's page, as data: each has its figures in words as well, and ours are emphasised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from inference_logging.prove.bench.figures import Text, bytes_text, share_text, threads_text, time_text
from inference_logging.prove.bench.result import CallTime, Cell, Estimate, PeerEntry, Result
from inference_logging.read.pages.content import Plot
from inference_logging.read.stats.summary import short_count
from inference_logging.read.terminal import safe

_LEAST_BYTES: Final = 4096  # one page, the unit in which the kernel counts
_LATENCY: Final = (("p50_ns", "p50"), ("p99_ns", "p99"), ("p999_ns", "p99.9"), ("max_ns", "longest"))
_LATENCY_COLOURS: Final = {"p50": "first", "p99": "third", "p99.9": "second", "longest": "quiet"}
_LOSS_COLOURS: Final = {"lost": "bad", "late": "quiet", "refused": "third"}
_OTHERS: Final = ("second", "third", "fourth", "fifth", "sixth", "quiet")
_DASHES: Final[tuple[list[int], ...]] = ([], [6, 3], [2, 3])
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

    def ours(self, names: Iterable[str]) -> list[str]:
        """Return the titles of those that are a part of this package."""
        return [self.title(name) for name in names if self.is_ours(name)]


Lines = dict[str, dict[int, Estimate]]
"""A figure of each peer that has it, by the number of threads."""


def _lines(cells: Cells, loop: str, record_bytes: int, figure: str) -> Lines:
    found: Lines = {}
    for peer in cells.peers:
        every = {count: cells.estimate(peer, count, loop, record_bytes, figure) for count in cells.threads}
        if points := {count: one for count, one in every.items() if one}:
            found[peer] = points
    return found


def _words(cells: Cells, intro: str, said: Iterable[tuple[str, str]]) -> str:
    return f"{intro}. {'; '.join(f'{safe(cells.title(name))}: {text}' for name, text in said)}."


def latency(cells: Cells, loop: str, record_bytes: int) -> Plot | None:
    """Return the quantiles of a call on a logarithmic axis, a view for each number of threads."""
    found = {label: _lines(cells, loop, record_bytes, figure) for figure, label in _LATENCY}
    names, least = list(found["p50"]), cells.threads[0]
    if not names:
        return None

    def series(threads: int) -> list[dict[str, Any]]:
        values = {
            label: [one["value"] if (one := lines.get(name, {}).get(threads)) else None for name in names]
            for label, lines in found.items()
        }
        return [{"name": label, "colour": _LATENCY_COLOURS[label], "values": of} for label, of in values.items()]

    def said(name: str) -> str:
        points = (lines.get(name, {}).get(least) for label, lines in found.items() if label != "longest")
        return ", ".join(time_text(one["value"]) for one in points if one)

    views = {threads_text(threads): {"series": series(threads)} for threads in cells.threads}
    every = [value for view in views.values() for one in view["series"] for value in one["values"] if value]
    intro = f"p50, p99 and p99.9 of a call, {threads_text(least)}, {LOOP_NAMES[loop]}"
    words = _words(cells, intro, ((name, said(name)) for name in names))
    # All views have one range, so that they can be compared.
    data = {**_dots(cells, names, "ns"), "range": [min(every) / 1.5, max(every) * 1.5]}
    return Plot(f"latency-{loop}", f"Latency of a call, {LOOP_NAMES[loop]}", words, "bars", data, views)


def throughput(cells: Cells, loop: str, record_bytes: int) -> Plot | None:
    """Return records per second against the number of threads, a line for each peer."""
    lines = _lines(cells, loop, record_bytes, "records_per_s")
    if not lines:
        return None
    drawn = {is_ours: [name for name in lines if cells.is_ours(name) is is_ours] for is_ours in (True, False)}

    def style(name: str) -> dict[str, Any]:
        is_ours = cells.is_ours(name)
        at = drawn[is_ours].index(name)
        colours = ("first",) if is_ours else _OTHERS
        colour, dash = colours[at % len(colours)], _DASHES[at // len(colours) % len(_DASHES)]
        return {"colour": colour, "thickness": 2.8 if is_ours else 1.4, "dash": dash}

    series = [
        {"name": cells.title(name), **estimates([points.get(count) for count in cells.threads]), **style(name)}
        for name, points in lines.items()
    ]
    intro = f"Records per second with {cells.threads[0]} to {threads_text(cells.threads[-1])}"
    ends = {name: [short_count(one["value"]) for one in points.values()] for name, points in lines.items()}
    words = _words(cells, intro, ((name, f"{values[0]} to {values[-1]}") for name, values in ends.items()))
    data = {
        "x": cells.threads, "xUnit": "{thread}", "xLog": True, "xTitle": "threads", "xTicks": cells.threads,
        "series": series, "unit": "{record}/s", "log": True, "height": 380,
    }  # fmt: skip
    return Plot("throughput", "Throughput against threads", words, "lines", data)


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
    """Return which share of the calls left no record, a view for each kind of loop."""
    found = {loop: losses(cells, loop) for loop in cells.loops}
    names = [name for name in cells.peers if any(name in of_loop for of_loop in found.values())]
    if not names:
        return None
    views = {LOOP_NAMES[loop]: _shares(of_loop, names) for loop, of_loop in found.items()}
    texts = (
        (name, f"{one.text()} in the {LOOP_NAMES[loop]}") for loop, of in found.items() for name, one in of.items()
    )
    words = _words(cells, "Share of the calls that left no record, all cells together", texts)
    titles = [cells.title(name) for name in names]
    data = {"labels": titles, "ours": cells.ours(names), "unit": "ratio", "stacked": True, "range": [0, 1]}
    return Plot("loss", "Loss", words, "bars", data, views)


def _shares(found: Mapping[str, Loss], names: Sequence[str]) -> dict[str, Any]:
    shares = [dict(found[name].shares()) if name in found else {} for name in names]
    series = [
        {"name": kind, "colour": colour, "values": [share.get(kind) for share in shares]}
        for kind, colour in _LOSS_COLOURS.items()
    ]
    return {"series": series, "texts": [found[name].text() if name in found else "not measured" for name in names]}


def by_threads(
    cells: Cells, name: str, title: str, where: tuple[str, int], figure: str, unit: str, text: Text, least: float
) -> Plot | None:
    """Return one figure of every peer, a mark for each number of threads, on a logarithmic axis from ``least``."""
    lines = _lines(cells, *where, figure)
    if not lines:
        return None
    series = [
        {"name": threads_text(threads), **estimates([points.get(threads) for points in lines.values()], least)}
        for threads in cells.threads
    ]
    intro = f"{title}, with {', '.join(map(str, cells.threads))} threads, {LOOP_NAMES[where[0]]}"
    texts = ((peer, ", ".join(text(one["value"]) for one in points.values())) for peer, points in lines.items())
    data = {**_dots(cells, list(lines), unit), "series": series}
    return Plot(name, title, _words(cells, intro, texts), "bars", data)


def single_calls(cells: Cells, enabled: Sequence[CallTime], filtered: Sequence[CallTime]) -> Plot | None:
    """Return what a call takes on one thread: one that makes a record, and one that is filtered out."""
    kinds = {"makes a record": enabled, "is filtered out": filtered}
    found = {kind: {one["peer"]: one["ns"] for one in times} for kind, times in kinds.items()}
    names = [name for name in cells.peers if any(name in of_kind for of_kind in found.values())]
    if not names:
        return None
    series = [{"name": kind, **estimates([of.get(name) for name in names])} for kind, of in found.items()]
    texts = (
        (name, ", ".join(f"{time_text(of[name]['value'])} ({kind})" for kind, of in found.items() if name in of))
        for name in names
    )
    title = "A call that makes a record, and one that is filtered out"
    data = {**_dots(cells, names, "ns"), "series": series}
    return Plot("calls", title, _words(cells, "Time of a call on one thread", texts), "bars", data)


def _dots(cells: Cells, names: Sequence[str], unit: str) -> dict[str, Any]:
    labels = [cells.title(name) for name in names]
    return {"labels": labels, "ours": cells.ours(names), "unit": unit, "mark": "dot", "log": True}


def estimates(found: Sequence[Estimate | None], least: float = 0.0) -> dict[str, list[float | None]]:
    """Return values and the ends of their intervals, none below ``least``."""

    def each(name: Literal["value", "low", "high"]) -> list[float | None]:
        return [max(one[name], least) if one else None for one in found]

    return {"values": each("value"), "low": each("low"), "high": each("high")}


def all_plots(result: Result) -> Iterator[Plot]:
    """Return each plot that has data, of the smallest record."""
    cells = Cells(result)
    if cells.sizes:
        size = cells.sizes[0]
        first = cells.loops[0]
        drawn = [latency(cells, loop, size) for loop in reversed(cells.loops)]
        drawn += [throughput(cells, first, size), loss(cells)]
        where, memory, cpu = (first, size), ("peak_bytes", "B", bytes_text), ("interpreter_cpu_ns", "ns", time_text)
        drawn.append(by_threads(cells, "memory", "Peak memory above the start", where, *memory, _LEAST_BYTES))
        drawn.append(by_threads(cells, "cpu", "Interpreter CPU per record", where, *cpu, 1.0))
        yield from filter(None, drawn)
    if (calls := single_calls(cells, result["enabled"], result["filtered"])) is not None:
        yield calls
