"""`inference-logging tail`: the last records of a directory, and the records that follow."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import orjson

from inference_logging.cli import lines
from inference_logging.cli.filters import EVENT, TRACE, WHERE, Filters, Keep, Names, conditions
from inference_logging.cli.main import INTERRUPTED
from inference_logging.cli.options import SINCE, Place, examples, of_segments
from inference_logging.cli.signals import Signals
from inference_logging.errors import CorruptLineError
from inference_logging.read.segments import Record, follow_records, read_segment, segments
from inference_logging.read.segments.reading import is_framing
from inference_logging.read.terminal import as_json, safe
from inference_logging.read.where import is_absent, look_up

_MOST_AT_ONCE: Final = 10_000
"""Records of one segment or of standard input that are held before the unwanted ones are dropped."""
_ALL: Final = 1 << 40
"""More records than there are."""


@click.command(
    "tail",
    epilog=examples(
        "inference-logging tail",
        "inference-logging tail logs --last 100 --event request --where outcome=error --json",
        "inference-logging tail --where 'duration_s>1' --where 'route~/chat/'",
        "inference-logging tail --since 2026-11-21T05:00:00Z --where status=500",
        "inference-logging tail --trace 4bf92f3577b34da6a3ce929d0e0e4736",
        "inference-logging tail logs --event request --fields duration_s,gen_ai.request.model",
        "inference-logging tail --json | inference-logging tail - --event request",
        "inference-logging tail --follow --last 0 --where attributes.stream=true",
    ),
)
@of_segments
@click.option("-f", "--follow", is_flag=True, help="Go on with new records, until Ctrl-C.")
@click.option(
    "-n", "--last", type=click.IntRange(min=0), metavar="N", show_default="10; with --since all",
    help="Number of records.",
)  # fmt: skip
@SINCE
@WHERE
@EVENT
@TRACE
@click.option("--fields", metavar="NAMES", help="Show only these fields, separated by commas.")
@click.option("-v", "--verbose", is_flag=True, help="All fields, on a terminal too.")
@click.option("--json", "json_lines", is_flag=True, help="JSON lines instead of columns.")
def command(
    place: Place,
    follow: bool,
    last: int | None,
    since: float | None,
    where: tuple[str, ...],
    events: tuple[str, ...],
    trace: str | None,
    fields: str | None,
    verbose: bool,
    json_lines: bool,
) -> None:
    """Print the last records of DIRECTORY (default: the configured one), by time across its segments.

    DIRECTORY may also be one segment, such as the newest (logs/latest); - reads records from standard input. On a
    terminal each record is one line: time, status, duration, time to first chunk, tokens (in/out) and route of a
    request. Elsewhere it is plain text with all fields, in a stable form. Control characters in values are escaped.
    Segments may rotate, be compressed or be removed meanwhile. With --follow, records found in one look (every 0.2 s)
    are ordered by time.
    """
    shown = [name.strip() for name in fields.split(",") if name.strip()] if fields is not None else []
    chosen = conditions(where)
    names, filters = Names(chosen, events, shown), Filters(chosen, events, trace, since)
    keep = names.looking(filters.keep)
    last = last if last is not None else 10 if since is None else _ALL
    write = _write_json if json_lines and not shown else lines.writer(shown, verbose=verbose)
    if json_lines and shown:
        write = partial(_write_json_of, shown)
    rounds = Rounds(write, names, filters if last else None)
    if str(place.path) == "-":
        rounds.print_all(_from_stdin(keep), None if follow else last)
    elif follow:
        _follow(place, keep, last, since, rounds)
    else:
        rounds.print_all(_records(place, keep, last, since), last)


def _records(place: Place, keep: Keep, last: int, since: float | None) -> Iterable[Record]:
    place.segments()  # raises where there are none
    if (segment := place.segment()) is not None:
        found = read_segment(segment, on_corrupt=_report)
        return found if keep is None else filter(keep, found)
    return follow_records(
        place.path, prefix=place.prefixes, keep=keep, last=last, since_unix_s=since or 0.0, stop=_AtOnce(),
        on_corrupt=_report,
    )  # fmt: skip


def _follow(place: Place, keep: Keep, last: int, since: float | None, rounds: Rounds) -> None:
    # A followed segment continues in later segments of its service; logs/latest continues in those of any service.
    directory, prefixes = place
    if (segment := place.segment()) is not None:
        directory = segment.path.parent
        prefixes = None if place.path.is_symlink() else [segment.prefix]
    _say_what_it_waits_for(directory, prefixes)
    # Ctrl-C ends the following at any point, also while a large amount is read before it.
    with Signals([signal.SIGINT], signal.default_int_handler) as signals:
        rounds.signals = signals
        found = follow_records(
            directory, prefix=prefixes, keep=keep, last=last, since_unix_s=since or 0.0, stop=rounds,
            on_corrupt=_report, poll_interval_s=0.2,
        )  # fmt: skip
        try:
            for record in found:
                rounds.add(record)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None


def _say_what_it_waits_for(directory: Path, prefixes: Collection[str] | None) -> None:
    of = f" of {', '.join(prefixes)}" if prefixes else ""
    if not directory.is_dir():
        waits = f"{directory}, which does not exist yet: a server creates it"
    elif not segments(directory, prefixes):
        waits = f"the first records{of} in {directory}"
    else:
        waits = f"new records{of} in {directory}"
    click.echo(f"inference-logging tail: waiting for {waits} (Ctrl-C to stop)", err=True)


def _from_stdin(keep: Keep) -> Iterator[Record]:
    """Iterate over the records of standard input as they come."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            _report(CorruptLineError("-", number, f"not JSON: {error}"))
            continue
        if not isinstance(record, dict):
            _report(CorruptLineError("-", number, "not a JSON object"))
        elif not is_framing(record) and (keep is None or keep(record)):
            yield record


class _AtOnce:
    """A request to end the following before it begins."""

    def wait(self, _timeout: float, /) -> bool:
        return True


class Rounds:
    """Writes the records of one look, ordered by time, when the look is over. Also ends the following."""

    def __init__(self, write: Callable[[Record], None], names: Names, filters: Filters | None) -> None:
        """Begin without records; ``signals`` ends a wait. ``filters`` say why there are none; None: none are wanted."""
        self._write, self._names, self._filters = write, names, filters
        self.signals: Signals | None = None
        self._records: list[Record] = []
        self._is_first = True

    def print_all(self, records: Iterable[Record], last: int | None) -> None:
        """Write the ``last`` of the records, by time; in order of arrival if ``last`` is None."""
        if last is None:
            for record in records:
                self._write(record)
                sys.stdout.flush()
            return
        for record in records:
            self.add(record)
            if len(self._records) > 2 * last + _MOST_AT_ONCE:
                self._keep(last)
        self._names.refuse_unknown()
        self._say_why_nothing()
        self._keep(last)
        self._write_out()

    def add(self, record: Record) -> None:
        """Keep a record for the end of the look."""
        self._records.append(record)

    def wait(self, timeout: float, /) -> bool:
        """Write what the look found and wait for the next."""
        self._records.sort(key=_timestamp)
        if self._is_first and (sentence := self._names.unknown()) is not None:
            click.echo(f"inference-logging tail: so far {sentence}", err=True)
        elif self._is_first:
            self._say_why_nothing("so far ")
        self._write_out()
        self._is_first = False
        return self.signals is not None and self.signals.wait(timeout) is not None

    def _keep(self, last: int) -> None:
        self._records.sort(key=_timestamp)
        del self._records[: max(0, len(self._records) - last)]

    def _say_why_nothing(self, when: str = "") -> None:
        if self._filters is not None and not self._records:
            click.echo(f"inference-logging tail: {when}nothing: {self._filters.why_nothing()}", err=True)

    def _write_out(self) -> None:
        for record in self._records:
            self._write(record)
        self._records.clear()
        sys.stdout.flush()


def _timestamp(record: Record) -> str:
    return str(record.get("timestamp", ""))


def _write_json(record: dict[str, Any]) -> None:
    sys.stdout.write(as_json(record) + "\n")


def _write_json_of(fields: Collection[str], record: dict[str, Any]) -> None:
    found = ((name, look_up(record, name)) for name in fields)
    _write_json({name: value for name, value in found if not is_absent(value)})


def _report(error: CorruptLineError) -> None:
    click.echo(f"inference-logging: {safe(str(error))}", err=True)
