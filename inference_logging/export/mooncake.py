"""Mooncake's trace: ``timestamp`` (whole milliseconds since the first arrival), ``input_length``, ``output_length``,
``hash_ids``, one for every 512 tokens of the input (https://github.com/kvcache-ai/Mooncake, FAST25-release/traces).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

import orjson

from inference_logging.export.formats import Options
from inference_logging.export.requests import LeftOut, Request
from inference_logging.export.spool import Row
from inference_logging.export.traces import trace_row, write_timed


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
