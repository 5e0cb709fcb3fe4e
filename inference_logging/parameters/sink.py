"""Where records go: sinks, segments, their rotation."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from inference_logging._fields import GIB, KIB, MIB, Bytes, Directory, parameter


class SinkParameters(BaseModel):
    """Where records go: sinks, segments, their rotation."""

    sink: Literal["file", "stdout", "null"] = parameter(
        "file",
        "Where the listener writes: segments in directory, standard output, or nowhere (for measurement; in YAML "
        "write it with quotes).",
    )
    directory: Directory = parameter(
        Path("logs"),
        "Directory of the segments; created with mode 0700 when the first one is opened. When it is full or gone, "
        "records wait in the queue, then overflow as the level says.",
        allowed="a path",
    )
    rotate_bytes: Bytes = parameter(
        64 * MIB,
        "Size at which a segment is closed with its footer and the next one opened; one batch may go above it.",
        unit="bytes",
        limits=(4 * KIB, 1024 * GIB),
    )
    rotate_interval_s: float = parameter(
        3600.0,
        "Age at which a segment is closed with its footer; the next one is opened by the next record.",
        unit="s",
        limits=(1.0, 31 * 86400.0),
    )
    writeback_bytes: Bytes = parameter(
        8 * MIB,
        "Window of paced writeback: at most two windows of a segment are dirty in the page cache, then the listener "
        "(never a request) waits for the disk.",
        unit="bytes",
        limits=(64 * KIB, 1 * GIB),
    )
