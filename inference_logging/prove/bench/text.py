"""The result as tables for a terminal, one for each kind of cell; each figure in its usual unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from inference_logging.prove.bench.result import Cell, Estimate, Result
from inference_logging.read.pages.content import Table
from inference_logging.read.stats.summary import duration_text, short_count


def number_text(value: float) -> str:
    """Return a number with three digits that say something, and no fewer of a larger one."""
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"


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


FORMS: Final[dict[str, tuple[str, Callable[[float], str]]]] = {
    "p50_ns": ("p50", time_text),
    "p99_ns": ("p99", time_text),
    "p999_ns": ("p99.9", time_text),
    "max_ns": ("max", time_text),
    "interpreter_cpu_ns": ("CPU", time_text),
    "records_per_s": ("records/s", short_count),
    "peak_bytes": ("memory", bytes_text),
    "arrived_ratio": ("arrived", share_text),
    "kept_ratio": ("of calls", share_text),
}
"""The heading of each figure, and its text."""


def lines(result: Result) -> Iterator[str]:
    """Iterate over the lines."""
    titles = {entry["name"]: entry["title"] for entry in result["peers"]}
    kinds = dict.fromkeys((cell["threads"], cell["loop"], cell["record_bytes"]) for cell in result["cells"])
    for threads, loop, size in kinds:
        cells = [cell for cell in result["cells"] if (cell["threads"], cell["loop"], cell["record_bytes"])
                 == (threads, loop, size)]  # fmt: skip
        rate = f" at {result['open_rate_per_s']:,.0f} calls/s in all" if loop == "open" else ""
        title = f"\n{threads} thread{'s' * (threads > 1)}, {loop} loop{rate}, records of {size:,} B"
        heads = ("peer", *(head for head, _ in FORMS.values()))
        yield Table(title, heads, [_row(titles[cell["peer"]], cell) for cell in cells]).text()
    rows = [(titles[time["peer"]], time_text(time["ns"]["value"])) for time in result["filtered"]]
    yield Table("\none thread, calls below the level, in batches", ("peer", "a call"), rows).text()
    for entry in result["peers"]:
        if entry["missing"] is not None:
            yield f"\n{entry['title']}: {entry['missing']}"
    for cell in result["cells"]:
        if cell["problem"] is not None:
            name = f"{titles[cell['peer']]}, {cell['threads']} threads, {cell['loop']} loop, {cell['record_bytes']:,} B"
            yield f"\n{name}: {cell['problem']}"


def _row(title: str, cell: Cell) -> tuple[str, ...]:
    mark = "" if cell["kept_up"] is not False else " (does not keep up)"
    return title + mark, *(_text(figure, cell["figures"].get(figure)) for figure in FORMS)


def _text(figure: str, found: Estimate | None) -> str:
    return "–" if found is None else FORMS[figure][1](found["value"])
