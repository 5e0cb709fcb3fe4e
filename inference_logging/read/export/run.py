"""Reads the requests of segments, and writes those that are wanted into a file of one format."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from inference_logging.errors import CorruptLineError
from inference_logging.read.export.formats import Format
from inference_logging.read.export.requests import LeftOut, Request, requests_of
from inference_logging.read.export.spool import Spool
from inference_logging.read.export.statement import Requests
from inference_logging.read.private import for_its_owner
from inference_logging.read.segments import Record, Segment, read_segment
from inference_logging.read.segments.reading import is_framing

PARTIAL: Final = ".partial"
"""The ending of a file while it is written."""


def write(
    requests: Iterable[Request | Record],
    wanted: Callable[[Request], bool],
    form: Format,
    path: Path | None,
    counted: Requests,
) -> None:
    """Write the wanted requests to ``path``, which appears when it is whole (None: to standard output); count them all.

    A file that exists is replaced; the new one is for its owner alone. Raises OSError.
    """
    with Spool() as spool:
        fill(spool, requests, form, counted, wanted)
        with _output(path) as file:
            form.write(spool.rows(), file)


def fill(
    spool: Spool,
    requests: Iterable[Request | Record],
    form: Format,
    counted: Requests,
    wanted: Callable[[Request], bool] = lambda _: True,
) -> None:
    """Put the rows of the wanted requests into ``spool``, and count them all."""
    for request in requests:
        counted.read += 1
        if not isinstance(request, Request):
            counted.leave_out("no_time")
        elif not wanted(request):
            counted.filtered_out += 1
        elif isinstance(row := row_of(form, request), LeftOut):
            counted.leave_out(row.reason)
        else:
            counted.export(request)
            spool.add(request.arrival_nano, row)


def row_of(form: Format, request: Request) -> bytes | LeftOut:
    """Return the format's row of a request; ``damaged`` is one that isn't as the listener writes it."""
    try:
        return form.row(request)
    except (AttributeError, KeyError, TypeError, ValueError):
        return LeftOut("damaged")


@contextmanager
def _output(path: Path | None) -> Iterator[IO[bytes]]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.exists() and not path.is_file():
        with path.open("wb") as file:  # a pipe or a device can't be replaced
            yield file
        return
    partial = path.with_name(path.name + PARTIAL)
    try:
        # Another one than what a user of this machine may have put there.
        partial.unlink(missing_ok=True)
        with open(partial, "xb", opener=for_its_owner) as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read(segments: Iterable[Segment], report: Callable[[CorruptLineError], object]) -> Iterator[Request | Record]:
    """Iterate over the requests of segments, with the fields that the header of their segment gives."""
    return requests_of(_with_resource(segments, report))


def _with_resource(segments: Iterable[Segment], report: Callable[[CorruptLineError], object]) -> Iterator[Record]:
    for segment in segments:
        resource: Mapping[str, object] = {}
        for record in read_segment(segment, framing=True, on_corrupt=report):
            if is_framing(record):
                found = record.get("resource")
                resource = found if isinstance(found, dict) else resource
            else:
                yield {**resource, **record} if resource and record.get("event_name") == "request" else record
