"""The timed trace of `vllm bench serve`: as Mooncake's, with seconds, and an id for every 16 tokens.

vLLM makes the prompt of the ids alone (vllm/benchmarks/datasets, class TimedTrace): without ids a prompt would be
empty, so a prompt that is not known has ids of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

from inference_logging.read.export import mooncake
from inference_logging.read.export.spool import Row
from inference_logging.read.export.traces import seconds, write_timed


class Writer(mooncake.Writer):
    """Writes the trace."""

    def write(self, rows: Iterable[Row], file: IO[bytes]) -> None:
        """Write the file."""
        write_timed(rows, file, seconds)
