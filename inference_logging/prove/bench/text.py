"""The result as tables for a terminal: one for each kind of cell, then the goals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inference_logging.prove.bench.result import Cell, Estimate, Result
from inference_logging.read.stats.summary import duration_text

_HEADS = ("peer", "p50", "p99", "p99.9", "max", "CPU", "records/s", "memory", "arrived", "of calls")
_NONE = "–"


def lines(result: Result) -> Iterator[str]:
    """Iterate over the lines."""
    titles = {entry["name"]: entry["title"] for entry in result["peers"]}
    kinds = dict.fromkeys((cell["threads"], cell["loop"], cell["record_bytes"]) for cell in result["cells"])
    for threads, loop, size in kinds:
        cells = [cell for cell in result["cells"] if (cell["threads"], cell["loop"], cell["record_bytes"])
                 == (threads, loop, size)]  # fmt: skip
        rate = f" at {result['open_rate_per_s'][str(threads)]:,.0f} calls/s in all" if loop == "open" else ""
        yield f"\n{threads} thread{'s' * (threads > 1)}, {loop} loop{rate}, records of {size:,} B"
        yield from _columns([_HEADS, *(_row(titles[cell["peer"]], cell) for cell in cells)])
    yield "\na call on one thread, in batches"
    enabled = {time["peer"]: time["ns"] for time in result["enabled"]}
    filtered = {time["peer"]: time["ns"] for time in result["filtered"]}
    rows = [(titles[name], _time(enabled[name]), _time(filtered.get(name))) for name in enabled]
    yield from _columns([("peer", "makes a record", "below the level"), *rows])
    for entry in result["peers"]:
        if entry["missing"] is not None:
            yield f"\n{entry['title']}: {entry['missing']}"
    for cell in result["cells"]:
        if cell["problem"] is not None:
            name = f"{titles[cell['peer']]}, {cell['threads']} threads, {cell['loop']} loop, {cell['record_bytes']:,} B"
            yield f"\n{name}: {cell['problem']}"
    yield from _goals(result)


def _goals(result: Result) -> Iterator[str]:
    yield "\ngoals"
    for goal in result["goals"]:
        value = _NONE if goal["value"] is None else f"{goal['value']:.4g}"
        yield f"  {goal['name']}: {value} ({goal['goal']}): {goal['verdict']}"


def _row(title: str, cell: Cell) -> tuple[str, ...]:
    figures = cell["figures"]
    times = (figures[name] for name in ("p50_ns", "p99_ns", "p999_ns", "max_ns", "interpreter_cpu_ns"))
    rate, memory = figures["records_per_s"], figures["peak_bytes"]
    mark = "" if cell["kept_up"] is not False else " (does not keep up)"
    return (
        title + mark,
        *(_time(time) for time in times),
        _NONE if rate is None else f"{rate['value']:,.0f}",
        _NONE if memory is None else f"{memory['value'] / 1e6:.1f} MB",
        _share(figures["arrived_ratio"]),
        _share(figures["kept_ratio"]),
    )


def _time(estimate: Estimate | None) -> str:
    return _NONE if estimate is None else duration_text(estimate["value"] / 1e9)


def _share(estimate: Estimate | None) -> str:
    # Rounded down: 100 % stands for all, and nothing less.
    return _NONE if estimate is None else f"{int(estimate['value'] * 1000) / 10:g} %"


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = (cell.ljust(width) if not place else cell.rjust(width)
                          for place, (cell, width) in enumerate(zip(row, widths, strict=True)))  # fmt: skip
        yield "  ".join(["  " + first, *others]).rstrip()
