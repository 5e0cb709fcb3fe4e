"""Rows of traces: lengths, prefix ids and how the request ended, as JSON lines whose first member is the time.

All rows have the same members, since readers that make a table take its columns from the first rows. Members that no
reader asks for say where a request was aborted: ``outcome`` is not ``ok``, after ``duration`` seconds, ``chunks``
chunks and ``output_length`` tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import IO, Any

import orjson

from inference_logging.read.export.formats import Options
from inference_logging.read.export.prompts import prompt_of
from inference_logging.read.export.requests import LeftOut, Lengths, Request, whole
from inference_logging.read.export.spool import Row


def trace_row(request: Request, options: Options) -> dict[str, Any] | LeftOut:
    """Return the members of a request's row but for its time."""
    lengths = request.lengths()
    if isinstance(lengths, LeftOut):
        return lengths
    ids = options.prefixes.ids(prompt_of(request.record), lengths.input, request.request_id)
    return {"input_length": lengths.input, "output_length": lengths.output, "hash_ids": ids, **ending(request, lengths)}


def ending(request: Request, lengths: Lengths) -> dict[str, Any]:
    """Return how a request ended, and after what."""
    return {
        "output_length_from": lengths.output_from,
        "outcome": str(request.record.get("outcome", "")),
        "duration": request.duration_s,
        "chunks": whole(request.record, "chunks") or 0,
        "request_id": request.request_id,
    }


def write_timed(rows: Iterable[Row], file: IO[bytes], timestamp: Callable[[int], int | float]) -> None:
    """Write rows of at least one member as JSON lines that begin with ``timestamp``, made of nanoseconds."""
    for row in rows:
        file.write(b'{"timestamp":%s,%s\n' % (orjson.dumps(timestamp(row.since_first_nano)), row.content[1:]))


def milliseconds(nano: int) -> float:
    """Return a time in milliseconds, exact to the microsecond."""
    return round(nano / 1e6, 3)


def seconds(nano: int) -> float:
    """Return a time in seconds, exact to the microsecond."""
    return round(nano / 1e9, 6)
