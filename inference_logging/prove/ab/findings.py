"""The findings of `inference-logging ab`, as a table with sentences and as JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from inference_logging.prove.ab.comparison import (
    LEAST_EVENTS,
    LEVEL,
    NOT_FOUND,
    TOGETHER,
    Compared,
    Row,
)  # fmt: skip
from inference_logging.read.pages.content import Table
from inference_logging.read.stats.interval import LEAST_BLOCKS
from inference_logging.read.terminal import safe

VERSION: Final = 2
"""The version of the JSON: since 2 it has verdicts, and intervals that hold together."""
_LONGER: Final = 5
"""Slices of so many times the length of a request separate the arms well."""
_WHOLE: Final = 0.98
"""With a contrast above this, the correction is smaller than what is printed."""
_NOTHING: Final = "–"


@dataclass(frozen=True)
class Findings:
    """What was found, and in what."""

    queue_directory: str
    compared: Compared
    requests: tuple[int, ...]
    """Not recorded, recorded."""
    slice_s: float
    pairs: int
    late_pairs: int
    """Pairs that do not count, since the command was not run in time."""
    servers: int
    listeners: int
    """Processes that only listen."""
    unseen: int
    """Processes whose CPU time cannot be seen from here."""
    ended: str | None
    """What has ended it early."""

    @property
    def is_enough(self) -> bool:
        """Whether there was enough traffic for any interval."""
        return any(row.difference is not None for row in self.compared.rows)

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON types: times in seconds, differences as shares of the value without recording."""
        return {
            "version": VERSION,
            "queue_directory": self.queue_directory,
            "slice_s": self.slice_s,
            "pairs": self.pairs,
            "late_pairs": self.late_pairs,
            "server_processes": self.servers,
            "listener_processes": self.listeners,
            "unseen_processes": self.unseen,
            "requests_on": self.requests[1],
            "requests_off": self.requests[0],
            "contrast": self.compared.contrast,
            "request_s": self.compared.request_s,
            "closed_loop": self.compared.is_closed,
            "level_each": LEVEL,
            "level_together": TOGETHER,
            "ended": self.ended,
            "measures": [
                {
                    "name": row.name,
                    "unit": row.unit,
                    "off": row.off,
                    "on": row.on,
                    "difference": row.difference.as_json() if row.difference is not None else None,
                    "verdict": row.verdict,
                }
                for row in self.compared.rows
            ],
        }

    def as_text(self) -> str:
        """Return the table, and below it what it means."""
        heads = ("", "without", "with", "difference", f"from … to ({100 * LEVEL:.0f} %)", "verdict")
        table = Table(self._title(), heads, [_cells(row) for row in self.compared.rows])
        return "\n".join([table.text(), "", *self._sentences()])

    def _title(self) -> str:
        listeners = f" and {_number(self.listeners, 'listener')}" if self.listeners else ""
        processes = _number(self.servers, "server process", "server processes")
        return (
            f"recording off and on in {_number(2 * self.pairs, 'slice')} of {self.slice_s:g} s, in {processes}"
            f"{listeners}: {safe(self.queue_directory)}\n"
            f"requests: {self.requests[0]:,} without recording, {self.requests[1]:,} with it (sampling still applies)\n"
        )

    def _sentences(self) -> list[str]:
        lines = []
        if self.is_enough:
            together, each = (f"{100 * level:.0f} %" for level in (TOGETHER, LEVEL))
            lines.append("A difference compares neighboring slices, without outliers: not quite that of the columns.")
            lines.append(f"All five intervals hold in {together} of comparisons: each is one of {each} (Bonferroni).")
        if self.compared.is_closed:
            lines.append(
                "There were fewer requests when they took longer: clients seem to wait for each answer (a closed "
                "loop). So requests/s and CPU in all follow request times, and say nothing more about recording."
            )
        return lines + self._limits()

    def _limits(self) -> list[str]:
        lines = [f"The comparison is incomplete: {self.ended}."] if self.ended else []
        if self.late_pairs:
            pairs = _number(self.late_pairs, "pair of slices does", "pairs of slices do")
            lines.append(f"{pairs} not count: the system did not run this command in time.")
        if self.unseen:
            processes = _number(self.unseen, "process", "processes")
            lines.append(f"{processes} cannot be seen from here or run another version: their CPU time is missing.")
        request_s = self.compared.request_s
        length = f"Requests take {request_s:.3g} s on average"
        longer = max(math.ceil(_LONGER * request_s), math.ceil(2 * self.slice_s))
        if not self.compared.is_resolved:
            lines.append(f"{length}, too long for these slices, which hardly differ. Try --slice {longer}s.")
        elif self.compared.contrast < _WHOLE:
            lines.append(
                f"{length}, so parts of them fall into slices of the other kind: the differences of requests/s and "
                f"CPU time are corrected for that (divided by {self.compared.contrast:.2f}). Try --slice {longer}s."
            )
        elif self.compared.rows[0].difference is None:
            lines.append(
                f"There was too little traffic for some or all intervals: each needs {LEAST_EVENTS} requests "
                f"without and {LEAST_EVENTS} with recording at least {LEAST_BLOCKS} times. Measure longer, with --for."
            )
        return lines


def _cells(row: Row) -> tuple[str, ...]:
    difference, ends = _NOTHING, _NOTHING
    if row.difference is not None:
        difference = _percent(row.difference.value)
        ends = f"{_percent(row.difference.low)} … {_percent(row.difference.high)}"
    return row.name, _value(row.off, row.unit), _value(row.on, row.unit), difference, ends, _verdict(row)


def _verdict(row: Row) -> str:
    if row.difference is None or row.verdict != NOT_FOUND:
        return row.verdict
    return f"none above {100 * max(-row.difference.low, row.difference.high):.2f} %"


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return _NOTHING
    if unit != "s":
        return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
    factor, short = next(((by, name) for by, name in ((1, "s"), (1e3, "ms")) if value * by >= 1), (1e6, "µs"))
    return f"{value * factor:,.4g} {short}"


def _percent(share: float) -> str:
    return f"{100 * share:+.2f} %"


def _number(number: int, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"
