"""AIPerf's ``mooncake_trace`` with a fixed schedule: milliseconds, and either lengths or the body as it was sent.

Exactly one of ``input_length`` and ``payload`` may be given, and ``hash_ids`` only with the first
(aiperf/dataset/loader/models.py, class MooncakeTrace). Without ids AIPerf makes a prompt of its own for each row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

import orjson

from inference_logging.read.export.bodies import Body, body_of
from inference_logging.read.export.formats import Options
from inference_logging.read.export.prompts import prompt_of
from inference_logging.read.export.requests import LeftOut, Request
from inference_logging.read.export.spool import Row
from inference_logging.read.export.traces import ending, milliseconds, write_timed


class Writer:
    """Writes the trace."""

    def __init__(self, options: Options) -> None:
        """Take the prefixes, and whether bodies are wanted."""
        self._options = options

    def row(self, request: Request) -> bytes | LeftOut:
        """Return the row without its time."""
        lengths = request.lengths()
        if isinstance(lengths, LeftOut):
            return lengths
        row: dict[str, Any] = {"output_length": lengths.output, **ending(request, lengths)}
        if self._options.with_text:
            body = body_of(request.record)
            return orjson.dumps({"payload": body.content, **row}) if isinstance(body, Body) else body
        row["input_length"] = lengths.input
        if (prompt := prompt_of(request.record)) is not None:
            row["hash_ids"] = self._options.prefixes.ids(prompt, lengths.input, request.request_id)
        return orjson.dumps(row)

    def write(self, rows: Iterable[Row], file: IO[bytes]) -> None:
        """Write the file."""
        write_timed(rows, file, milliseconds)
