"""`inference-logging tail`: the last records of a directory, and what comes after them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click

from inference_logging.cli import lines
from inference_logging.cli.examples import examples
from inference_logging.cli.main import INTERRUPTED
from inference_logging.cli.options import DIRECTORY, PREFIX
from inference_logging.cli.terminal import as_json, safe
from inference_logging.cli.where import OPERATORS, Condition
from inference_logging.errors import CorruptLineError
from inference_logging.segments import Record, follow_records, segments


@click.command(
    "tail",
    epilog=examples(
        "inference-logging tail",
        "inference-logging tail logs --last 100 --event request --where outcome=error --json",
        "inference-logging tail --where 'duration_s>1' --where 'http.route~/chat/'",
        "inference-logging tail --trace 4bf92f3577b34da6a3ce929d0e0e4736",
        "inference-logging tail --follow --last 0 --where attributes.stream=true",
    ),
)
@DIRECTORY
@PREFIX
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on, until Ctrl-C.")
@click.option("-n", "--last", type=click.IntRange(min=0), default=10, show_default=True, help="Records before that.")
@click.option("--where", "where", multiple=True, metavar="CONDITION", help=f"{OPERATORS} Repeated: all of them.")
@click.option("--event", "events", multiple=True, metavar="NAME", help="Only this event; repeated: any of them.")
@click.option("--trace", metavar="ID", help="Only records of this trace; its first digits are enough.")
@click.option("--json", "json_lines", is_flag=True, help="JSON lines instead of columns.")
def command(
    directory: Path,
    prefixes: Collection[str] | None,
    follow: bool,
    last: int,
    where: tuple[str, ...],
    events: tuple[str, ...],
    trace: str | None,
    json_lines: bool,
) -> None:
    """Print the last records of DIRECTORY (default: the configured one), by time over all its segments.

    On a terminal in columns and colours, elsewhere as stable plain text; in both, control characters in values are
    escaped. Segments may rotate, be compressed or be removed meanwhile. While following, the records found in one look
    (every 0.2 s) are ordered by time.
    """
    keep = _filter(where, events, trace)
    if not follow:
        segments(directory, prefixes)  # raises if it can't be read; while following it is waited for
    write = _write_json if json_lines else lines.writer()
    rounds = _Rounds(write, follow)
    found = follow_records(
        directory, prefix=prefixes, keep=keep, last=last, stop=rounds, on_corrupt=_tell, poll_interval_s=0.2
    )
    try:
        for record in found:
            rounds.add(record)
        rounds.write(last)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None


class _Rounds:
    """Writes the records of one look ordered by time, when the look is over; is what ends the following."""

    def __init__(self, write: Callable[[Record], None], follow: bool) -> None:
        self._write, self._follow = write, follow
        self._waiting = threading.Event()  # never set: Ctrl-C ends the wait
        self._records: list[Record] = []

    def add(self, record: Record) -> None:
        self._records.append(record)

    def wait(self, timeout: float, /) -> bool:
        """End at once, or write what the look found and wait for the next."""
        if not self._follow:
            return True
        self.write(len(self._records))
        return self._waiting.wait(timeout)

    def write(self, last: int) -> None:
        """Write the ``last`` records found and forget all."""
        self._records.sort(key=_timestamp)
        for record in self._records[max(0, len(self._records) - last) :]:
            self._write(record)
        self._records.clear()
        sys.stdout.flush()


def _filter(where: tuple[str, ...], events: tuple[str, ...], trace: str | None) -> Callable[[Record], bool] | None:
    """Return what all the conditions say together, None if there are none."""
    try:
        conditions: list[Callable[[Record], bool]] = [Condition.parse(text).holds for text in where]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--where") from None
    if events:
        conditions.append(lambda record: record.get("event_name") in events)
    if trace is not None:
        digits = trace.strip().lower()
        conditions.append(lambda record: str(record.get("trace_id", "")).startswith(digits))
    return (lambda record: all(condition(record) for condition in conditions)) if conditions else None


def _timestamp(record: Record) -> str:
    return str(record.get("timestamp", ""))


def _write_json(record: dict[str, Any]) -> None:
    sys.stdout.write(as_json(record) + "\n")


def _tell(error: CorruptLineError) -> None:
    click.echo(f"inference-logging: {safe(str(error))}", err=True)
