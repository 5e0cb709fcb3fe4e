"""Options that choose records, with one meaning everywhere: `--where`, `--event`, `--trace`, `--since`.

Each filter notes whether any record has passed it, so that an empty answer says why it is empty. The name of a field or
an event that no record has is a mistake, not an empty answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

import click

from inference_logging.read.segments import Record
from inference_logging.read.segments.columns import TABLES
from inference_logging.read.terminal import safe, word
from inference_logging.read.times import timestamp
from inference_logging.read.where import ALIASES, OPERATORS, Condition, is_absent, look_up, meant, no_record_has

Keep = Callable[[Record], bool] | None

WHERE = click.option(
    "--where", "where", multiple=True, metavar="CONDITION", help=f"{OPERATORS} Repeatable: all must hold."
)
EVENT = click.option("--event", "events", multiple=True, metavar="NAME", help="Only this event; repeatable.")


def _digits(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    digits = text.strip().lower() if text is not None else None
    if digits is not None and not re.fullmatch("[0-9a-f]{1,32}", digits):
        raise click.BadParameter(f"{text!r}: must be a trace id's first hexadecimal digits, 1 to 32")
    return digits


TRACE = click.option(
    "--trace", callback=_digits, metavar="ID", help="Only records of this trace; its first digits are enough."
)

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
            sentence = f"no trace_id begins with {trace}; it may be sampled out, or in another directory"
            self._all.append(_Filter(lambda record: str(record.get("trace_id", "")).startswith(trace), sentence))
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


EVENTS: Final = frozenset(
    {
        "request", "request.chunk", "log", "log.dropped", "process.ended", "control.changed", "engine.request",
        "engine.stats", "server.started",
        "segment.header", "segment.footer", "segment.repaired", "segments.removed", "sink.dropped",
        "sink.failed", "sink.fallback", "sink.recovered",
    }
)  # fmt: skip
"""The events of this package itself; if a directory has none of them, that is an answer."""
FIELDS: Final = frozenset({*TABLES["records"], *ALIASES})


class Names:
    """The names in a command line, and which of them stood in a record."""

    def __init__(self, conditions: Collection[Condition], events: Collection[str], fields: Collection[str]) -> None:
        self._fields = {condition.field for condition in conditions} | set(fields)
        self._unseen_fields, self._unseen_events = self._fields - FIELDS, set(events) - EVENTS
        self._has_looked = False
        self._other_fields: set[str] = set()
        self._other_events: set[str] = set()

    def look(self, record: Record) -> None:
        """Note the names that a record has; this is quick once all were seen."""
        self._has_looked = True
        if self._unseen_fields:
            self._unseen_fields -= {name for name in self._unseen_fields if not is_absent(look_up(record, name))}
            self._other_fields.update(record)
        if self._unseen_events:
            event = str(record.get("event_name"))
            self._unseen_events.discard(event)
            self._other_events.add(event)

    def looking(self, keep: Callable[[Record], bool] | None) -> Callable[[Record], bool] | None:
        """Return ``keep`` in a form that notes the names of every record; unchanged if all were seen."""
        if not self._unseen_fields and not self._unseen_events:
            return keep

        def look_and_keep(record: Record) -> bool:
            self.look(record)
            return keep is None or keep(record)

        return look_and_keep

    def unknown(self) -> str | None:
        """Return a sentence about the names that no record had; None if there are none, or no record was looked at."""
        if not self._has_looked:
            return None
        sentences = [
            *(no_record_has("field", name, FIELDS | self._other_fields) for name in sorted(self._unseen_fields)),
            *(no_record_has("event", name, EVENTS | self._other_events) for name in sorted(self._unseen_events)),
        ]
        return "; ".join(sentences) or None

    def refuse_unknown(self) -> None:
        """Raise ``UsageError`` if no record had one of the names."""
        if (sentence := self.unknown()) is not None:
            raise click.UsageError(sentence)
