"""The page of `stats --html`: one file that loads nothing, readable in light and dark, and without seeing the plots."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from inference_logging.read.pages import page as pages
from inference_logging.read.pages.content import SHARES, Plot, is_wide
from inference_logging.read.pages.page import Section
from inference_logging.read.pages.parts import figure, paragraph, table_of
from inference_logging.read.pages.parts import headline as first_figures
from inference_logging.read.segments.columns import NONE, NOT_FAILED
from inference_logging.read.stats.counts import Counts, Group
from inference_logging.read.stats.summary import count_text, duration_text, headline, share_text, tables
from inference_logging.read.table.sketch import Sketch
from inference_logging.read.terminal import safe


def write(path: Path, counts: Counts, source: str) -> None:
    """Write the page to ``path``; ``source`` names the data. Raises ``OSError`` if it can't be written."""
    pages.write(path, page(counts, source))


def page(counts: Counts, source: str) -> str:
    """Return the page."""
    time = f"{_moment(counts.first)} to {_moment(counts.last)} UTC" if counts.first else "No requests."
    intro = [paragraph(time), first_figures(headline(counts))]
    return pages.document(f"Requests in {source}", intro, _sections(counts))


def _sections(counts: Counts) -> Iterator[Section]:
    """Iterate over each plot with the table that has its figures below it, then the other tables."""
    listed = {table.title: table for table in tables(counts)}
    for plot in plots(counts):
        table = listed.pop(plot.table, None)
        yield Section(plot.title, [figure(plot), table_of(table) if table else ""])
    for table in listed.values():
        yield Section(table.title, [table_of(table)])


def _moment(stamp: str) -> str:
    """Return a timestamp to the second."""
    return stamp[:19].replace("T", " ")


_MOST_BARS: Final = 15
_LEAST_S: Final = 1e-6  # nothing is shorter on a logarithmic scale
_HEATMAP_ROWS: Final = 40


def plots(counts: Counts) -> Iterator[Plot]:
    """Return each plot that has data."""
    whole = counts.whole
    models = {name: group for name, group in counts.models.items() if group.input_tokens or group.output_tokens}
    has_course = len(counts.intervals) > 1
    if has_course:
        yield _over_time(counts)
    if whole.requests:
        yield _outcomes(whole)
    if whole.duration.count:
        if has_course:
            yield _durations_over_time(counts)
            yield _heatmap(counts)
        yield _distribution(whole)
        yield _routes(counts.routes)
    if models:
        yield _tokens(models)


def _over_time(counts: Counts) -> Plot:
    width_s = counts.interval_s
    beginnings, intervals = _intervals(counts)
    others = [(interval.requests - interval.failed) / width_s for interval in intervals]
    failed = [interval.failed / width_s for interval in intervals]
    words = (
        f"Requests per second, by the time at which they ended, in intervals of {width_s} s: at most "
        f"{max(map(sum, zip(others, failed, strict=True))):.3g} per second."
    )
    series = [{"name": "not failed", "values": others}, {"name": "failed", "values": failed, "colour": "bad"}]
    data = {
        "x": beginnings, "width": width_s, "series": series, "unit": "1/s", "style": "bars", "stacked": True,
        "sync": "time",
    }  # fmt: skip
    return Plot("over-time", "Requests over time", words, "lines", data)


def _durations_over_time(counts: Counts) -> Plot:
    beginnings, intervals = _intervals(counts)
    series = [
        {"name": name, "values": [interval.duration.quantile(share) for interval in intervals]}
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]
    values = [value for one in series for value in one["values"]]
    data = {"x": beginnings, "series": series, "unit": "s", "log": is_wide(values), "sync": "time"}  # type: ignore[arg-type]
    words = "Duration of requests over time: the median and the 99th percentile of each interval."
    return Plot("durations", "Duration over time", words, "lines", data)


def _heatmap(counts: Counts) -> Plot:
    beginnings, intervals = _intervals(counts)
    found = [list(interval.duration.bars()) for interval in intervals]
    ends = [end for bars in found for bar in bars for end in bar[:2] if end > 0]
    low, high = (min(ends), max(ends)) if ends else (_LEAST_S, 1.0)
    # Differences of logarithms: a quotient may be beyond the largest number.
    log_low = math.log(low)
    step = (math.log(high) - log_low) / _HEATMAP_ROWS if high > low else 1.0
    cells = [[0.0] * _HEATMAP_ROWS for _ in intervals]
    for cell, bars in zip(cells, found, strict=True):
        for lower, upper, weight in bars:
            place = (math.log(max(math.sqrt(lower) * math.sqrt(upper), low)) - log_low) / step
            cell[min(int(place), _HEATMAP_ROWS - 1)] += weight
    edges = [math.exp(log_low + step * row) for row in range(_HEATMAP_ROWS + 1)]
    data = {
        "x": beginnings, "width": counts.interval_s, "edges": edges, "cells": cells, "unit": "s",
        "cellUnit": "{request}", "sync": "time",
    }  # fmt: skip
    words = (
        f"How many requests took how long, by the time at which they ended; from {duration_text(low)} to "
        f"{duration_text(high)}, on a logarithmic scale. The darker, the more."
    )
    return Plot("heat", "Durations of all requests over time", words, "heatmap", data)


def _distribution(whole: Group) -> Plot:
    curves = [
        ("duration", whole.duration),
        ("time to first chunk", whole.first_chunk),
        ("time per chunk", whole.chunk_gap),
    ]
    series = [{"name": name, **_counted(sketch)} for name, sketch in curves if sketch.count]
    parts = (
        f"{name}: median {duration_text(sketch.quantile(0.5))}, 99th percentile {duration_text(sketch.quantile(0.99))}"
        for name, sketch in curves
        if sketch.count
    )
    words = f"Share of requests that took at most so long, on a logarithmic scale. {'; '.join(parts)}."
    return Plot("distribution", "Times", words, "distribution", {"series": series, "unit": "s"}, SHARES, "Times")


def _outcomes(whole: Group) -> Plot:
    ordered = sorted(whole.outcomes.items(), key=lambda item: (item[0] != "ok", -item[1]))[:_MOST_BARS]
    names = [name for name, _ in ordered]
    has_failed = [name not in (*NOT_FAILED, NONE) for name in names]
    series = [
        {
            "name": title,
            "values": [count if one is wanted else None for one, (_, count) in zip(has_failed, ordered, strict=True)],
            "colour": "bad" if wanted else "first",
        }
        for title, wanted in (("not failed", False), ("failed", True))
    ]
    texts = [f"{count_text(count)} ({share_text(count / whole.requests)})" for _, count in ordered]
    words = "Requests by outcome: " + ", ".join(f"{safe(name)} {count_text(count)}" for name, count in ordered) + "."
    data = {"labels": names, "series": series, "texts": texts, "unit": "{request}", "stacked": True}
    return Plot("outcomes", "Outcomes", words, "bars", data, table="Outcomes")


def _routes(groups: Mapping[str, Group]) -> Plot:
    shown = [(name, group) for name, group in groups.items() if group.duration.count][:_MOST_BARS]
    names = [name for name, _ in shown]
    p50, p99 = ([group.duration.quantile(share) or 0.0 for _, group in shown] for share in (0.5, 0.99))
    listed = (f"{safe(n)}: {duration_text(a)}, {duration_text(b)}" for n, a, b in zip(names, p50, p99, strict=True))
    words = "Median and 99th percentile of the duration by route, the most used first. " + "; ".join(listed) + "."
    series = [{"name": "p50", "values": p50}, {"name": "p99", "values": p99}]
    is_log = is_wide([value for value in (*p50, *p99) if value])
    data = {"labels": names, "series": series, "unit": "s", "mark": "dot", "log": is_log}
    return Plot("routes", "By route", words, "bars", data, table="By route")


def _tokens(models: dict[str, Group]) -> Plot:
    shown = list(models.items())[:_MOST_BARS]
    series = [
        {"name": "input", "values": [group.input_tokens for _, group in shown], "colour": "fourth"},
        {"name": "output", "values": [group.output_tokens for _, group in shown], "colour": "third"},
    ]
    listed = (f"{safe(n)}: {count_text(g.input_tokens)} in, {count_text(g.output_tokens)} out" for n, g in shown)
    words = "Tokens by model. " + "; ".join(listed) + "."
    data = {"labels": [name for name, _ in shown], "series": series, "unit": "{token}"}
    return Plot("tokens", "Tokens by model", words, "bars", data, table="Tokens by model")


def _intervals(counts: Counts) -> tuple[list[int], list[Group]]:
    """Return the beginnings of the intervals, in seconds since 1970, and what is in each."""
    indices = range(min(counts.intervals), max(counts.intervals) + 1)
    return [index * counts.interval_s for index in indices], [counts.intervals.get(at, Group()) for at in indices]


def _counted(sketch: Sketch) -> dict[str, list[float]]:
    """Return a sketch as ascending edges and what lies between each two of them."""
    bars = [bar for bar in sketch.bars() if bar[1] > 0]
    if not bars:
        return {"edges": [0.0, _LEAST_S], "counts": [sketch.zeros]}
    edges, counts = ([0.0, bars[0][0]], [sketch.zeros]) if sketch.zeros else ([bars[0][0]], [])
    for (_, upper, weight), (after, _, _) in pairwise([*bars, (math.inf, 0.0, 0.0)]):
        edges.append(upper)
        counts.append(weight)
        # Neighbours share an end that was computed twice; further away, nothing lies between.
        if upper * 1.001 < after < math.inf:
            edges.append(after)
            counts.append(0.0)
    return {"edges": edges, "counts": counts}
