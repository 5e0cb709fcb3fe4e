"""Options that choose records, with one meaning everywhere: `--where`, `--event`, `--trace`, `--since`.

Each filter notes whether any record has passed it, so that an empty answer says why it is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import click

from inference_logging.read.segments import Record
from inference_logging.read.terminal import safe, word
from inference_logging.read.times import timestamp
from inference_logging.read.where import OPERATORS, Condition, is_absent, look_up, meant

Keep = Callable[[Record], bool] | None

WHERE = click.option(
    "--where", "where", multiple=True, metavar="CONDITION", help=f"{OPERATORS} Repeatable: all must hold."
)
EVENT = click.option("--event", "events", multiple=True, metavar="NAME", help="Only this event; repeatable.")
TRACE = click.option("--trace", metavar="ID", help="Only records of this trace; its first digits are enough.")

_MOST_VALUES: Final = 6
"""Where a field has more values, none is named."""
_LONGEST_VALUE: Final = 40


def conditions(where: Sequence[str]) -> list[Condition]:
    """Read the conditions of `--where`; a wrong one is a usage error."""
    try:
        return [meant(text) for text in where]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--where") from None


class _Filter(NamedTuple):
    """A filter, and what is said if no record has passed it."""

    holds: Callable[[Record], bool]
    sentence: str
    field: str | None = None
    """The field whose values are named instead."""


class Filters:
    """All filters of a command line as one."""

    def __init__(
        self,
        conditions: Sequence[Condition],
        events: Sequence[str] = (),
        trace: str | None = None,
        since: float | None = None,
    ) -> None:
        self._all = [
            _Filter(one.holds, f"no record has {safe(''.join(one[:3]))}", one.field if one.operator == "=" else None)
            for one in conditions
        ]
        if events:
            names = " or ".join(map(safe, events))
            self._all.append(_Filter(lambda record: record.get("event_name") in events, f"no event is {names}"))
        if trace is not None:
            digits = trace.strip().lower()
            sentence = f"no trace_id begins with {safe(digits)}; it may be sampled out, or in another directory"
            self._all.append(_Filter(lambda record: str(record.get("trace_id", "")).startswith(digits), sentence))
        if since is not None:
            first = timestamp(since)
            self._all.append(
                _Filter(
                    lambda record: str(record.get("timestamp")) >= first, f"the newest record is older than {first}"
                )
            )
        self._unmet = list(self._all)
        self._values: dict[str, set[str]] = {one.field: set() for one in self._all if one.field is not None}

    @property
    def keep(self) -> Keep:
        """All filters as one, None if there are none."""
        return self._holds if self._all else None

    def why_nothing(self) -> str:
        """Return in words why no record has passed."""
        if not self._all:
            return "there are no records yet"
        return "; ".join(map(self._why, self._unmet)) or "each filter finds records, but no record passes all of them"

    def _why(self, unmet: _Filter) -> str:
        values = self._values.get(unmet.field or "", set())
        there_are = f" (there are {', '.join(sorted(values))})" if 0 < len(values) <= _MOST_VALUES else ""
        return unmet.sentence + there_are

    def _holds(self, record: Record) -> bool:
        if self._unmet:
            self._unmet = [one for one in self._unmet if not one.holds(record)]
            for one in self._unmet:
                self._note_value(one.field, record)
        return all(one.holds(record) for one in self._all)

    def _note_value(self, field: str | None, record: Record) -> None:
        if field is not None and len(self._values[field]) <= _MOST_VALUES:
            value = look_up(record, field)
            if not is_absent(value):
                self._values[field].add(word(value)[:_LONGEST_VALUE])
