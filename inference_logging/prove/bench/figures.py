"""Figures of the benchmark as text: each kind with the unit in which people read it, and its interval below it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Final

from inference_logging.prove.bench.result import Cell, Estimate
from inference_logging.read.stats.summary import duration_text, short_count

NOTHING: Final = "–"
CONTROLS: Final = ("empty", "empty-again")
"""The empty call as two peers: by what they differ is noise."""

Text = Callable[[float], str]


def time_text(nanoseconds: float) -> str:
    """Return a time, which may be that of an instruction or of a stall."""
    if 0 < abs(nanoseconds) < 1000:
        return f"{nanoseconds:.3g} ns"
    return duration_text(nanoseconds * 1e-9) if nanoseconds >= 0 else f"-{duration_text(-nanoseconds * 1e-9)}"


def bytes_text(count: float) -> str:
    """Return an amount of memory, with three significant digits."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if abs(count) >= factor:
            return f"{count / factor:.3g} {unit}" if abs(count) < 1000 * factor else f"{count / factor:.0f} {unit}"
    return f"{count:.0f} B"


def share_text(share: float) -> str:
    """Return a share in percent; what is small is not shown as nothing, nor nearly all as all."""
    if share in (0, 1):
        return f"{share * 100:.0f} %" if share else "0"
    if share < 0.0001:
        return "< 0.01 %"
    return f"{share:.2%}".replace("%", " %") if share < 0.9999 else "> 99.99 %"


def ratio_text(ratio: float) -> str:
    """Return a ratio as it is read beside 1."""
    return f"{ratio:.4f}" if ratio < 10 else f"{ratio:,.1f}"


FORMS: Final[dict[str, tuple[str, Text]]] = {
    "p50_ns": ("p50", time_text),
    "p99_ns": ("p99", time_text),
    "p999_ns": ("p99.9", time_text),
    "max_ns": ("longest", time_text),
    "records_per_s": ("records/s", short_count),
    "interpreter_cpu_ns": ("interpreter CPU per record", time_text),
    "peak_bytes": ("peak memory", bytes_text),
    "arrived_ratio": ("arrived ÷ accepted", ratio_text),
    "kept_ratio": ("arrived ÷ calls", ratio_text),
}
"""The heading of each figure, and its text."""


def estimate_text(found: Estimate | None, text: Text) -> str:
    """Return value and interval, on a line each; of a single round there is no interval."""
    if found is None:
        return NOTHING
    interval = f"\n{text(found['low'])} … {text(found['high'])}" if found["low"] < found["high"] else ""
    return text(found["value"]) + interval


def threads_text(threads: int) -> str:
    """Return a number of threads in words."""
    return f"{threads} thread{'s' if threads != 1 else ''}"


def resolution(cells: Iterable[Cell], figure: str) -> float | None:
    """Return half the width of the interval of ``figure``, relative to its value, as the median over cells."""
    found = [cell["figures"][figure] for cell in cells]
    halves = [(one["high"] - one["low"]) / 2 / one["value"] for one in found if one and one["value"] > 0]
    return median(halves) if halves else None


def control_differences(cells: Sequence[Cell], figure: str) -> list[float]:
    """Return by which share the two empty calls differ in ``figure``, for each kind of cell and round."""
    found: dict[tuple[object, ...], dict[str, float]] = {}
    for cell in cells:
        for one in cell["rounds"] if cell["peer"] in CONTROLS else ():
            where = (cell["threads"], cell["loop"], cell["record_bytes"], one["round"])
            found.setdefault(where, {})[cell["peer"]] = float(dict(one).get(figure) or 0)  # type: ignore[arg-type]
    pairs = [tuple(values.values()) for values in found.values() if len(values) == len(CONTROLS)]
    return [abs(math.log(first / second)) for first, second in pairs if min(first, second) > 0]
