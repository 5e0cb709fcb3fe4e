"""Names of fields and events on the command line: a name that no record has is a mistake, not an empty answer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import click

from inference_logging.read.segments import Record
from inference_logging.read.segments.columns import TABLES
from inference_logging.read.where import ALIASES, Condition, is_absent, look_up, no_record_has

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
