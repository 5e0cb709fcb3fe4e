"""The comparison of two configurations as Markdown, for the review of the change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inference_logging.prove.bench.configurations import REQUEST_CPU, UNITS, Comparison, Figure
from inference_logging.prove.bench.configurations_round import GET, KINDS, POST, STREAM
from inference_logging.prove.bench.machine import machine
from inference_logging.prove.bench.text import number_text
from inference_logging.read.stats.interval import Interval

_COLUMNS: Final = (
    "| | old | new | new − old | old − old (control) |\n"
    "|---|---|---|---|---|"
)  # fmt: skip
_HOW: Final = (
    "One process serves a bare ASGI application without logging, under both files, and under the old one once more, by "
    "turns; the CPU time without logging is taken off. Segments and queues are in scratch directories. In parentheses: "
    "intervals of 95 %. A difference counts as one if its interval is without 0 and it is larger than the control's."
)


def markdown(comparison: Comparison, changes: str = "") -> str:
    """Return the comparison as Markdown; ``changes`` says in words what differs, and stands before the figures."""
    return "\n".join(_lines(comparison, changes)) + "\n"


def _lines(comparison: Comparison, changes: str) -> Iterator[str]:
    yield f"## The cost of {comparison.new.name}, against {comparison.against.name}"
    yield ""
    yield _headline(comparison)
    yield ""
    if changes:
        yield changes.rstrip("\n")
        yield ""
    yield _COLUMNS
    for kind in KINDS:
        yield f"| **{kind.name}** | | | | |"
        yield from (_row(figure) for figure in comparison.figures if figure.kind == kind.name)
    yield ""
    yield f"{_HOW} {_machine()}"
    if comparison.remarks:
        yield ""
        yield from (f"* {remark}" for remark in comparison.remarks)


def _headline(comparison: Comparison) -> str:
    """Return one sentence about the request path of each kind."""
    parts = []
    for kind in (GET, POST, STREAM):
        figure = comparison.figure(kind.name, REQUEST_CPU)
        if figure is None:
            continue
        if figure.is_seen:
            parts.append(f"{_signed(figure.difference.value)} µs for a {kind.name}")
        else:
            parts.append(f"no difference seen for a {kind.name} (resolved: ±{number_text(figure.resolves)} µs)")
    return f"CPU time on the request path: {'; '.join(parts)}."


def _row(figure: Figure) -> str:
    unit = UNITS[figure.name]
    cells = [
        f"{figure.name}{f' ({unit})' if unit else ''}",
        number_text(figure.old.value),
        number_text(figure.new.value),
        _difference(figure),
        _within(figure.control),
    ]
    return f"| {' | '.join(cells)} |"


def _difference(figure: Figure) -> str:
    if not figure.is_seen:
        return f"none seen: {_within(figure.difference)}"
    value = figure.difference.value
    share = f", {'−' if value < 0 else '+'}{abs(value / figure.old.value):.0%}" if figure.old.value else ""
    return f"**{_within(figure.difference)}**{share}"


def _within(interval: Interval) -> str:
    return f"{_signed(interval.value)} ({_signed(interval.low)} … {_signed(interval.high)})"


def _signed(value: float) -> str:
    shown = number_text(abs(value))
    if not shown.strip("0."):
        return "0"
    return f"{'+' if value > 0 else '−'}{shown}"


def _machine() -> str:
    place = machine()
    return (
        f"Measured with Python {place['python']} on {place['cpu']}, {place['cores']} cores usable, load average "
        f"{place['load'][0]:.2f}."
    )
