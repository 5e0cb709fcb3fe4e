"""The result of a replay as tables, as JSON, and as a page with plots."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from inference_logging.prove.replay.client import NOT_SENT, UNFINISHED
from inference_logging.prove.replay.comparison import SHARES, Comparison, Times, compare, quantiles
from inference_logging.prove.replay.player import Pace, Result, State
from inference_logging.prove.replay.schedule import Schedule
from inference_logging.read.pages import page as pages
from inference_logging.read.pages.content import SHARES as VIEWS
from inference_logging.read.pages.content import Plot, Table
from inference_logging.read.pages.page import Section
from inference_logging.read.pages.parts import figure, paragraph, table_of
from inference_logging.read.pages.parts import headline as first_figures
from inference_logging.read.stats.summary import duration_text, share_text

VERSION: Final = 1
_MOST_ERRORS: Final = 5
_LEAST_S: Final = 1e-9  # a logarithmic scale has no 0
_NARROW: Final = 1e-4
_MOST_POINTS: Final = 300
"""The points of a line; more make a page larger, and look the same."""


class Replayed:
    """What was replayed, where to, how, and what was found."""

    def __init__(self, schedule: Schedule, url: str, pace: Pace, state: State, results: Sequence[Result]) -> None:
        """Compare the results with the recording."""
        self.file, self.form, self.requests = str(schedule.path), schedule.form, schedule.requests
        self.url, self.pace, self.state, self.results = url, pace, state, results
        self.comparison = compare(results)

    @property
    def not_sent(self) -> int:
        """Requests that were due and could not be sent."""
        return sum(result.answer.outcome == NOT_SENT for result in self.results)

    @property
    def capped(self) -> list[Result]:
        """Requests that waited under the cap."""
        return [result for result in self.results if result.capped_s > 0]


def result_json(result: Result) -> dict[str, Any]:
    """Return one request as JSON types: times in seconds."""
    planned, answer = result.planned, result.answer
    return {
        "request_id": planned.request_id,
        "trace_id": answer.trace_id,
        "url": planned.path,
        "intended_s": result.intended_s,
        "sent_s": result.sent_s,
        "capped_s": result.capped_s,
        "outcome": answer.outcome,
        "error": answer.error,
        "status": answer.status,
        "duration_s": answer.duration_s,
        "chunks": len(answer.chunks_s),
        "chunks_s": answer.chunks_s,
        "body_bytes": answer.body_bytes,
        "input_tokens": answer.usage.input,
        "output_tokens": answer.usage.output,
        "recorded": planned.recorded._asdict(),
    }


def as_json(replayed: Replayed) -> dict[str, Any]:
    """Return everything as JSON types: times in seconds; ``ratio`` is replayed ÷ recorded."""
    state, comparison = replayed.state, replayed.comparison
    late = [result.late_s for result in replayed.results]
    return {
        "version": VERSION,
        "file": replayed.file,
        "format": replayed.form,
        "url": replayed.url,
        "speed": replayed.pace.speed,
        "concurrency": replayed.pace.concurrency,
        "interrupted": state.is_interrupted,
        "seconds": state.elapsed_s,
        "requests": replayed.requests,
        "sent": state.sent - replayed.not_sent,
        "not_sent": replayed.not_sent,
        "unfinished": sum(result.answer.outcome == UNFINISHED for result in replayed.results),
        "not_due": replayed.requests - state.sent,
        "most_under_way": state.most_under_way,
        "capped": len(replayed.capped),
        "capped_s": sum(result.capped_s for result in replayed.capped),
        "late_s": {**_by_share(quantiles(late)), "max": max(late)} if late else None,
        "errors": dict(_errors(replayed.results)),
        "outcomes": [outcome._asdict() for outcome in comparison.outcomes],
        "lengths": [length._asdict() for length in comparison.lengths],
        "times": {times.name: _times_json(times) for times in comparison.times},
    }


def headline(replayed: Replayed) -> Iterator[tuple[str, str]]:
    """Return the few figures that come first."""
    state = replayed.state
    yield "requests", f"{replayed.requests:,}"
    yield "sent", f"{state.sent - replayed.not_sent:,}"
    if replayed.not_sent:
        yield "could not be sent", f"{replayed.not_sent:,}"
    if state.is_interrupted:
        yield "interrupted: not due yet", f"{replayed.requests - state.sent:,}"
    yield "speed", f"{replayed.pace.speed:g}"
    yield "took", duration_text(state.elapsed_s)
    yield "most at once", f"{state.most_under_way:,}"
    late = [result.late_s for result in replayed.results]
    if late:
        yield (
            "sent late by, p50 / p99 / max",
            " / ".join(duration_text(value) for value in (quantiles(late)[0], quantiles(late)[-1], max(late))),
        )


def verdict(comparison: Comparison) -> str:
    """Return in a sentence how the replay differs from the recording."""
    requests = sum(one.requests for one in comparison.outcomes)
    alike = sum(one.requests for one in comparison.outcomes if one.recorded == one.replayed)
    found = [f"{alike:,} of {requests:,} requests ended as recorded"]
    found += [_differs(one.name, one.ratio.value) for one in comparison.times if one.ratio and not one.ratio.holds(1)]
    if same := [one.name for one in comparison.times if one.ratio and one.ratio.holds(1)]:
        found.append(f"no difference was found in {', '.join(same)}")
    return f"{'; '.join(found)}."


def _differs(name: str, ratio: float) -> str:
    return f"{name} was {share_text(abs(ratio - 1))} {'longer' if ratio > 1 else 'shorter'}"


def notes(replayed: Replayed) -> Iterator[str]:
    """Return what a reader has to know before the figures are compared."""
    if capped := replayed.capped:
        yield (
            f"--concurrency {replayed.pace.concurrency} bound: requests that waited for others: {len(capped):,}, "
            f"{duration_text(max(result.capped_s for result in capped))} at most. The loop was not open then."
        )
    if not replayed.comparison.is_made:
        yield "no request could be compared"
    for error, requests in _errors(replayed.results).most_common(_MOST_ERRORS):
        yield f"{requests:,} x {error}"


def tables(replayed: Replayed) -> list[Table]:
    """Return the comparison: outcomes, lengths, times."""
    comparison = replayed.comparison
    outcomes = [(one.recorded, one.replayed, f"{one.requests:,}") for one in comparison.outcomes]
    lengths = [
        (one.name, f"{one.requests:,}", f"{one.equal:,}", f"{one.recorded:,}", f"{one.replayed:,}")
        for one in comparison.lengths
        if one.requests
    ]
    times = [row for one in comparison.times if one.pairs for row in _rows(one)]
    shares = tuple(f"p{share * 100:g}" for share in SHARES)
    found = [
        Table("Outcomes", ("recorded", "replayed", "requests"), outcomes),
        Table("Lengths", ("", "requests", "equal", "recorded", "replayed"), lengths),
        Table(
            "Times",
            ("", "requests", *shares, "replayed ÷ recorded (95 %)"),
            times,
            "Only requests with the same outcome in both runs. Recorded: at the server; replayed: at this client.",
        ),
    ]
    return [table for table in found if table.rows]


def write_page(path: Path, replayed: Replayed) -> None:
    """Write the page, for its owner to read. Raises ``OSError``."""
    intro = [
        paragraph(verdict(replayed.comparison)),
        paragraph(f"{replayed.file} ({replayed.form}) to {replayed.url}"),
        first_figures(headline(replayed)),
        *map(paragraph, notes(replayed)),
    ]
    listed = [Section(table.title, [table_of(table)]) for table in tables(replayed)]
    drawn = [Section(plot.title, [figure(plot)]) for plot in _plots(replayed.comparison)]
    pages.write(path, pages.document("Replay beside the recorded run", intro, [*listed, *drawn]))


def _rows(times: Times) -> Iterator[tuple[str, ...]]:
    for arm, name in enumerate(("recorded", "replayed")):
        interval = str(times.ratio) if arm and times.ratio is not None else "too few" if arm else ""
        shown = map(duration_text, times.quantiles(arm))
        yield f"{times.name}, {name}", f"{len(times.pairs):,}", *shown, interval


def _times_json(times: Times) -> dict[str, Any]:
    arms = [_by_share(times.quantiles(arm)) if times.pairs else None for arm in (0, 1)]
    interval = times.ratio.as_json() if times.ratio is not None else None
    return {"requests": len(times.pairs), "recorded": arms[0], "replayed": arms[1], "ratio": interval}


def _by_share(values: Sequence[float]) -> dict[str, float]:
    return {f"p{share * 100:g}": value for share, value in zip(SHARES, values, strict=True)}


def _errors(results: Sequence[Result]) -> Counter[str]:
    return Counter(result.answer.error for result in results if result.answer.error is not None)


def _plots(comparison: Comparison) -> Iterator[Plot]:
    """Return each time that requests have in both runs."""
    yield from (_distribution(times) for times in comparison.times if times.pairs)


def _distribution(times: Times) -> Plot:
    arms = ("recorded", "replayed")
    medians = [duration_text(times.quantiles(arm)[0]) for arm in (0, 1)]
    series = [{"name": name, **_counted(sorted(pair[arm] for pair in times.pairs))} for arm, name in enumerate(arms)]
    words = (
        f"Share of {len(times.pairs)} requests whose {times.name} was at most so long, on a logarithmic scale: median "
        f"{medians[0]} recorded, {medians[1]} replayed."
    )
    data = {"series": series, "unit": "s"}
    name = times.name.replace(" ", "-")
    return Plot(name, times.name.capitalize(), words, "distribution", data, VIEWS)


def _counted(ordered: list[float]) -> dict[str, list[Any]]:
    """Return ascending values as edges, and how many values lie between each two of them.

    Each value that is drawn has an interval that is too narrow to be seen, so that a line of few values has steps.
    """
    ordered = [max(value, _LEAST_S) for value in ordered]
    every = len(ordered) // _MOST_POINTS + 1
    shown = sorted({*ordered[::every], ordered[-1]})
    edges = [end for value in shown for end in (value * (1 - _NARROW), value)]
    edges = [edge for edge, after in pairwise([*edges, math.inf]) if edge < after]
    below = [bisect_right(ordered, edge) for edge in edges]
    return {"edges": edges, "counts": [b - a for a, b in pairwise(below)]}
