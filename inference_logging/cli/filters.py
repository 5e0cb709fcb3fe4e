"""Options that choose records, with one meaning everywhere: `--where`, `--event`, `--trace`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from inference_logging.read.segments import Record
from inference_logging.read.where import OPERATORS, Condition

Keep = Callable[[Record], bool] | None

WHERE = click.option("--where", "where", multiple=True, metavar="CONDITION", help=f"{OPERATORS} Repeated: all of them.")
EVENT = click.option("--event", "events", multiple=True, metavar="NAME", help="Only this event; repeated: any of them.")
TRACE = click.option("--trace", metavar="ID", help="Only records of this trace; its first digits are enough.")


def conditions(where: Sequence[str]) -> list[Condition]:
    """Read the conditions of `--where`; a wrong one is a usage error."""
    try:
        return [Condition.parse(text) for text in where]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--where") from None


def keep_of(conditions: Sequence[Condition], events: Sequence[str], trace: str | None) -> Keep:
    """Return all conditions as one, None if there are none."""
    all_of: list[Callable[[Record], bool]] = [condition.holds for condition in conditions]
    if events:
        all_of.append(lambda record: record.get("event_name") in events)
    if trace is not None:
        digits = trace.strip().lower()
        all_of.append(lambda record: str(record.get("trace_id", "")).startswith(digits))
    return (lambda record: all(holds(record) for holds in all_of)) if all_of else None
