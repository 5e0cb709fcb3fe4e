"""Heat maps whose rows are where the values are.

The index's rows begin at a millionth of the greatest value as soon as one value is 0, such as that of a request
that was killed at once. Here they begin at the least value above 0, and ``zero`` counts the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from inference_logging.read.table.table import Table
from inference_logging.read.view.paging import asked
from inference_logging.read.view.queries import Query

_FINEST: Final = 200
"""Rows that are asked for, of which some become one."""
_ROWS: Final = 40
_LEAST_ROWS: Final = 10


def with_heat(index: Table, query: Query) -> dict[str, Any]:
    """Return an aggregate whose heat map has rows only where values are; ``zero`` counts the values that are 0."""
    answer: dict[str, Any] = asked(index.aggregate, {**query, "heatmap_rows": _FINEST})
    cells, edges = answer["heatmap"]["cells"], answer["heatmap"]["edges"]
    zeros = _zeros(index, query) if any(column[0] for column in cells) else [0] * len(cells)
    for column, zero in zip(cells, zeros, strict=True):
        column[0] = max(0, column[0] - zero)
    first, last = _used(cells)
    size = max(1, -(-(last - first) // query.get("heatmap_rows", _ROWS)))
    begins = range(first, last, size)
    answer["heatmap"] = {
        "edges": [*(edges[at] for at in begins), edges[last]],
        "cells": [[sum(column[at : min(at + size, last)]) for at in begins] for column in cells],
        "zero": sum(zeros),
    }
    return answer


def _zeros(index: Table, query: Query) -> list[int]:
    """Return how many values are 0 in each bucket."""
    where = [*query.get("where", []), f"{query['heatmap']}<=0"]
    plain = {name: one for name, one in query.items() if name not in ("heatmap", "heatmap_rows", "group_by")}
    found: list[int] = asked(index.aggregate, {**plain, "where": where, "fields": []})["count"]
    return found


def _used(cells: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Return the first row with a value, and the one behind the last: some rows at least."""
    rows = [row for row in range(_FINEST) if any(column[row] for column in cells)] or [0]
    first, last = rows[0], rows[-1] + 1
    room = max(0, _LEAST_ROWS - (last - first))
    first = max(0, first - room // 2)
    return first, min(_FINEST, max(last, first + _LEAST_ROWS))
