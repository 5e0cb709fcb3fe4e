"""What was compared, and what differed: messages for a failure, and rows for the table at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Protocol

import pytest

from tests.truth.events import FIELDS, Stream, differences, errors

PROPERTY: Final = "truth"
_SHOWN: Final = 12
"""Messages of one test."""


class Compared(Protocol):
    """What was sent, and how."""

    @property
    def stream(self) -> Stream: ...

    @property
    def cut(self) -> str: ...

    @property
    def ending(self) -> str: ...


class Comparison:
    """The comparisons of one test."""

    def __init__(self, node: pytest.Item) -> None:
        """Take the test whose report has the rows."""
        self._node = node
        self._fields: Counter[tuple[str, str, str]] = Counter()
        self._mismatches: Counter[tuple[str, str, str]] = Counter()
        self._messages: list[str] = []

    def record(
        self, sent: Compared, expected: Mapping[str, Any], record: Mapping[str, Any], fields: tuple[str, ...] = FIELDS
    ) -> None:
        """Compare a record with the truth."""
        self._note(sent, len(fields), differences(expected, record, fields, errors(sent.stream)))

    def holds(self, sent: Compared, field: str, true: str, recorded: object, holds: bool) -> None:
        """Note a field whose truth is a range, or whether it is there."""
        self._note(sent, 1, [] if holds else [(field, true, recorded)])

    def _note(self, sent: Compared, fields: int, found: list[tuple[str, Any, Any]]) -> None:
        row = (sent.stream.api, sent.stream.shape, sent.ending)
        self._fields[row] += fields
        self._mismatches[row] += len(found)
        where = " | ".join((*row, sent.cut))
        self._messages += [
            f"{where} | {field}: truth {true!r}, recorded {recorded!r}" for field, true, recorded in found
        ]

    def conclude(self) -> None:
        """Hand the rows to the table, and fail if something differs."""
        rows = [(*row, count, self._mismatches[row]) for row, count in self._fields.items()]
        self._node.user_properties.append((PROPERTY, rows))
        more = len(self._messages) - _SHOWN
        shown = [*self._messages[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]
        if self._messages:
            pytest.fail("records that are not true:\n" + "\n".join(shown), pytrace=False)


def table(rows: list[tuple[str, str, str, int, int]]) -> list[str]:
    """Return the lines of the table: one for each API, shape and ending."""
    fields: Counter[tuple[str, str, str]] = Counter()
    mismatches: Counter[tuple[str, str, str]] = Counter()
    for api, shape, ending, count, wrong in rows:
        fields[api, shape, ending] += count
        mismatches[api, shape, ending] += wrong
    lines = [f"{'API':<16} {'shape':<34} {'ending':<28} {'fields':>9} {'mismatches':>10}"]
    for row, count in sorted(fields.items()):
        api, shape, ending = row
        lines.append(f"{api:<16} {shape:<34} {ending:<28} {count:>9,} {mismatches[row]:>10,}")
    lines.append(f"{'all':<80} {sum(fields.values()):>9,} {sum(mismatches.values()):>10,}")
    return lines
