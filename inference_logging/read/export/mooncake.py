"""Mooncake's trace: whole milliseconds since the first arrival, lengths, and an id for every 512 tokens of the input.

Its form: https://github.com/kvcache-ai/Mooncake, FAST25-release/traces. The reader of Dynamo's mocker refuses a row
whose ids stand for fewer tokens than ``input_length`` (crate aisimulate-core, replay/loadgen/trace.rs).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

import orjson

from inference_logging.read.export.formats import Options
from inference_logging.read.export.requests import LeftOut, Request
from inference_logging.read.export.spool import Row
from inference_logging.read.export.traces import trace_row, write_timed


class Writer:
    """Writes the trace."""

    def __init__(self, options: Options) -> None:
        """Take the prefixes."""
        self._options = options

    def row(self, request: Request) -> bytes | LeftOut:
        """Return the row without its time."""
        row = trace_row(request, self._options)
        return row if isinstance(row, LeftOut) else orjson.dumps(row)

    def write(self, rows: Iterable[Row], file: IO[bytes]) -> None:
        """Write the file."""
        write_timed(rows, file, lambda nano: round(nano / 1e6))
