"""What a page is made from, before it is HTML: tables of text, and plots as data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from inference_logging.read.terminal import safe

WIDE_RANGE: Final = 10.0
"""From here on an axis is logarithmic."""


SHARES: Final[Mapping[str, Mapping[str, str]]] = {
    "share that took at most so long": {"mode": "cumulative"},
    "share that took longer": {"mode": "tail"},
}
"""The views of a distribution: the second shows what is rare, on a logarithmic axis."""


class Table(NamedTuple):
    """A table of text: the first column names the row, the others hold figures."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""

    def text(self) -> str:
        """Return it in columns for a terminal: the first to the left, figures to the right."""
        rows = [tuple(map(safe, row)) for row in [self.heads, *self.rows]]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
            )
            for row in rows
        ]
        rule = "  ".join("─" * width for width in widths)
        return "\n".join([self.title, lines[0].rstrip(), rule, *lines[1:], *([self.note] if self.note else [])])


class Plot(NamedTuple):
    """A plot: the name its ids begin with, heading, description in words, and what ``plots.js`` draws it from.

    ``kind`` is a function of ``plots.js``, ``data`` its argument; ``views`` are names with data that take the place of
    the same names in ``data``, of which the reader chooses one. ``table``: the title of the table that it belongs to.
    """

    name: str
    title: str
    words: str
    kind: str
    data: Mapping[str, Any]
    views: Mapping[str, Mapping[str, Any]] = {}
    table: str = ""


def is_wide(values: Sequence[float | None]) -> bool:
    """Return whether values above 0 span so much that only a logarithmic axis shows them all."""
    found = [value for value in values if value]
    return bool(found) and max(found) > WIDE_RANGE * min(found) > 0


def rounded(value: Any) -> Any:
    """Return data with floats as short as they are read: six digits, more in front of the point; no NaN."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        short = float(f"{value:.6g}") if abs(value) < 1e6 else round(value, 3)
        return int(short) if short.is_integer() else short
    if isinstance(value, Mapping):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(one) for one in value]
    return value
