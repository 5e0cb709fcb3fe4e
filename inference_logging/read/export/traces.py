"""Rows of traces: lengths, prefix ids and how the request ended, as JSON lines whose first member is the time.

All rows have the same members, since readers that make a table take its columns from the first rows. Members that no
reader asks for say where a request was aborted: ``outcome`` is not ``ok``, after ``duration`` seconds, ``chunks``
chunks and ``output_length`` tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any, Final

import orjson

from inference_logging.read.export.bodies import Body, body_of
from inference_logging.read.export.prompts import Prefixes, prompt_of
from inference_logging.read.export.requests import LeftOut, Lengths, Request, whole
from inference_logging.read.export.spool import Row


class Writer:
    """Writes a trace of lengths and prefix ids: ``mooncake``, ``vllm-timed`` and ``guidellm``.

    Mooncake's form: https://github.com/kvcache-ai/Mooncake, FAST25-release/traces. The reader of Dynamo's mocker
    refuses a row whose ids stand for fewer tokens than ``input_length`` (crate aisimulate-core,
    replay/loadgen/trace.rs). `vllm bench serve` makes the prompt of the ids alone (vllm/benchmarks/datasets, class
    TimedTrace), so a prompt that is not known has ids of its own. GuideLLM's reader refuses a row unless there is one
    id for each block of ``hash_id_block_size`` tokens, the last one counted
    (guidellm/data/deserializers/trace_mooncake.py), and takes columns from the first rows.
    """

    def __init__(self, prefixes: Prefixes, timestamp: Callable[[int], int | float]) -> None:
        """Take the prefixes, and what makes the reader's unit of nanoseconds since the first arrival."""
        self._prefixes, self._timestamp = prefixes, timestamp

    def row(self, request: Request) -> bytes | LeftOut:
        """Return the row without its time."""
        lengths = request.lengths()
        if isinstance(lengths, LeftOut):
            return lengths
        ids = self._prefixes.ids(prompt_of(request.record), lengths.input, request.request_id)
        counted = {"input_length": lengths.input, "output_length": lengths.output, "hash_ids": ids}
        return orjson.dumps({**counted, **ending(request, lengths)})

    def write(self, rows: Iterable[Row], file: IO[bytes]) -> None:
        """Write the file."""
        write_timed(rows, file, self._timestamp)


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


TIMES: Final[Mapping[str, Callable[[int], int | float]]] = {
    "mooncake": lambda nano: round(nano / 1e6), "vllm-timed": seconds, "guidellm": seconds,
}  # fmt: skip
"""The formats that ``Writer`` writes, with the unit of their times: whole milliseconds, or seconds."""


class AiperfWriter:
    """Writes AIPerf's ``mooncake_trace`` with a fixed schedule: milliseconds, and either lengths or the body as sent.

    Exactly one of ``input_length`` and ``payload`` may be given, and ``hash_ids`` only with the first
    (aiperf/dataset/loader/models.py, class MooncakeTrace). Without ids AIPerf makes a prompt of its own for each row.
    """

    def __init__(self, prefixes: Prefixes, *, with_text: bool) -> None:
        self._prefixes, self._with_text = prefixes, with_text

    def row(self, request: Request) -> bytes | LeftOut:
        """Return the row without its time."""
        lengths = request.lengths()
        if isinstance(lengths, LeftOut):
            return lengths
        row: dict[str, Any] = {"output_length": lengths.output, **ending(request, lengths)}
        if self._with_text:
            body = body_of(request.record)
            return orjson.dumps({"payload": body.content, **row}) if isinstance(body, Body) else body
        row["input_length"] = lengths.input
        if (prompt := prompt_of(request.record)) is not None:
            row["hash_ids"] = self._prefixes.ids(prompt, lengths.input, request.request_id)
        return orjson.dumps(row)

    def write(self, rows: Iterable[Row], file: IO[bytes]) -> None:
        """Write the file."""
        write_timed(rows, file, milliseconds)
