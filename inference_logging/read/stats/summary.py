"""What counts say, in two forms: figures for programs, and tables for people (on the terminal and in the report)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from inference_logging.read.pages.content import Table
from inference_logging.read.segments.columns import NOT_FAILED
from inference_logging.read.stats.counts import Counts, Group
from inference_logging.read.table.sketch import RELATIVE_ERROR, Sketch

VERSION: Final = 1
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_TIMES: Final = {
    "duration": "Duration",
    "first_chunk": "Time to first chunk",
    "chunk_gap": "Time per chunk",
    "per_token": "Time per output token",
}
MOST_ROWS: Final = 50
"""Models or routes that a table shows."""

_NOTHING: Final = "–"
FAILED_NOTE: Final = f"Failed: all but {' and '.join(NOT_FAILED)}; a 4xx is ok, 408 is a timeout."


def figures(counts: Counts) -> dict[str, Any]:
    """Return everything as JSON types: times in seconds, requests weighted by ``adjusted_count``."""
    return {
        "version": VERSION,
        "first": counts.first or None,
        "last": counts.last or None,
        "seconds": counts.seconds,
        "requests_per_s": rate(counts),
        **_group_figures(counts.whole),
        "sampled_by": counts.sampled_by,
        "models": {name: _group_figures(group) for name, group in counts.models.items()},
        "routes": {name: _group_figures(group) for name, group in counts.routes.items()},
        "events": counts.events,
        "dropped": [{**key._asdict(), "records": count} for key, count in counts.dropped.items()],
        "corrupt_lines": counts.corrupt_lines,
        "quantile_relative_error": RELATIVE_ERROR,
    }


def tables(counts: Counts) -> list[Table]:
    """Return everything as tables."""
    whole = counts.whole
    found = [
        _outcomes(whole),
        _statuses(whole),
        Table("Times", ("", "mean", *QUANTILES, "greatest"), [_times(whole, name) for name in _TIMES], _TIMES_NOTE),
        _groups("By model", counts.models),
        _groups("By route", counts.routes),
        _tokens(counts.models),
    ]
    if counts.sampled_by.keys() - {"head"}:
        rows = [(name, whole_number(count)) for name, count in counts.sampled_by.items()]
        found.append(Table("Why records were kept", ("sampled_by", "records"), rows))
    found.append(Table("Records", ("event", "records"), [(n, whole_number(c)) for n, c in counts.events.items()]))
    dropped = [(f"{key.reason}, {key.level}", whole_number(count)) for key, count in counts.dropped.items()]
    note = "Counted from the start of each process, regardless of --since and --where."
    found.append(Table("Dropped records", ("reason, level", "records"), dropped or [("none", "0")], note))
    return found


_TIMES_NOTE: Final = (
    f"Quantiles are within {100 * RELATIVE_ERROR:.0f} %. Time per chunk is the mean gap between two chunks of a "
    "response, time per output token the same over the tokens after the first, if known; one value per request."
)


def headline(counts: Counts) -> list[tuple[str, str]]:
    """Return the few figures that come first: name and value."""
    whole = counts.whole
    return [
        ("Requests", count_text(whole.requests)),
        ("Requests per second", _NOTHING if rate(counts) is None else f"{rate(counts):.3g}"),
        ("Failed", share_text(whole.failed / whole.requests) if whole.requests else _NOTHING),
        ("Duration, p50", duration_text(whole.duration.quantile(0.5))),
        ("Duration, p99", duration_text(whole.duration.quantile(0.99))),
        ("Time to first chunk, p50", duration_text(whole.first_chunk.quantile(0.5))),
        ("Tokens in / out", f"{short_count(whole.input_tokens)} / {short_count(whole.output_tokens)}"),
        ("Dropped records", whole_number(sum(counts.dropped.values()))),
    ]


def rate(counts: Counts) -> float | None:
    """Return requests per second between the first and the last, None if there is no time between them."""
    return counts.whole.requests / counts.seconds if counts.seconds else None


def duration_text(seconds: float | None) -> str:
    """Return a time with three significant digits and the unit that fits."""
    if seconds is None:
        return _NOTHING
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}" if seconds < 1000 else f"{seconds:,.0f} s"
    return f"{seconds * 1e6:.3g} µs" if seconds else "0 s"


def share_text(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.2f} %"


def count_text(count: float) -> str:
    """Return a count, which weights can make fractional."""
    return whole_number(count) if abs(count - round(count)) < 0.05 else f"{count:,.1f}"


def short_count(count: float) -> str:
    """Return a count with three significant digits and a unit: 12.3 M."""
    for factor, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= factor:
            return f"{count / factor:.3g}{unit}"
    return f"{count:.3g}"


def whole_number(count: float) -> str:
    """Return a whole number with separators."""
    return f"{round(count):,}"


def _group_figures(group: Group) -> dict[str, Any]:
    return {
        "requests": group.requests,
        "request_records": group.records,
        "outcomes": group.outcomes,
        "failed": group.failed,
        "status_classes": dict(sorted(group.statuses.items())),
        "duration_s": _quantiles(group.duration),
        "time_to_first_chunk_s": _quantiles(group.first_chunk),
        "time_per_chunk_s": _quantiles(group.chunk_gap),
        "time_per_output_token_s": _quantiles(group.per_token),
        "output_tokens_per_s": _quantiles(group.tokens_per_s),
        "input_tokens": group.input_tokens,
        "output_tokens": group.output_tokens,
    }


def _quantiles(sketch: Sketch) -> dict[str, float | None] | None:
    if not sketch.count:
        return None
    found = {name: sketch.quantile(share) for name, share in QUANTILES.items()}
    return {"mean": sketch.mean, **found, "greatest": sketch.greatest}


def _outcomes(whole: Group) -> Table:
    ordered = sorted(whole.outcomes.items(), key=lambda item: (item[0] != "ok", -item[1]))
    rows = [(name, count_text(count), share_text(count / whole.requests)) for name, count in ordered]
    note = FAILED_NOTE
    if abs(whole.requests - whole.records) > 0.05:
        note += f" {whole_number(whole.records)} records, each weighted by its adjusted_count."
    return Table("Outcomes", ("outcome", "requests", "share"), rows, note)


def _statuses(whole: Group) -> Table:
    rows = [
        (name, count_text(count), share_text(count / whole.requests)) for name, count in sorted(whole.statuses.items())
    ]
    return Table("Status classes", ("status", "requests", "share"), rows)


def _times(group: Group, name: str) -> tuple[str, ...]:
    sketch: Sketch = getattr(group, name)
    quantiles = (duration_text(sketch.quantile(share)) for share in QUANTILES.values())
    greatest = duration_text(sketch.greatest if sketch.count else None)
    return (_TIMES[name], duration_text(sketch.mean), *quantiles, greatest)


def _groups(title: str, groups: Mapping[str, Group]) -> Table:
    heads = ("", "requests", "failed", "p50", "p99", "first chunk, p50", "first chunk, p99", "per chunk, p50")
    rows = [(name, *_group_cells(group)) for name, group in list(groups.items())[:MOST_ROWS]]
    return Table(title, heads, rows, _left_out(groups))


def _left_out(groups: Mapping[str, Group]) -> str:
    return f"And {len(groups) - MOST_ROWS:,} more; --json has all." if len(groups) > MOST_ROWS else ""


def _group_cells(group: Group) -> Iterable[str]:
    yield count_text(group.requests)
    yield share_text(group.failed / group.requests)
    for sketch, share in (
        (group.duration, 0.5),
        (group.duration, 0.99),
        (group.first_chunk, 0.5),
        (group.first_chunk, 0.99),
        (group.chunk_gap, 0.5),
    ):
        yield duration_text(sketch.quantile(share))


def _tokens(models: Mapping[str, Group]) -> Table:
    rows = [
        (name, count_text(group.input_tokens), count_text(group.output_tokens), _per_second(group))
        for name, group in list(models.items())[:MOST_ROWS]
        if group.input_tokens or group.output_tokens
    ]
    note = "From the responses' usage; requests without usage are not counted."
    return Table("Tokens by model", _TOKEN_HEADS, rows or [("none", "0", "0", _NOTHING)], note)


_TOKEN_HEADS: Final = ("model", "input", "output", "output per second and request, p50")


def _per_second(group: Group) -> str:
    median = group.tokens_per_s.quantile(0.5)
    return _NOTHING if median is None else f"{median:.3g}"
