"""Where records go: sinks, segments, their rotation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from inference_logging.record.config.fields import (
    GIB,
    KIB,
    MIB,
    Bytes,
    Directory,
    FewAndDifferent,
    Parameters,
    matching,
    parameter,
    split_list,
)

MOST_ADDITIONAL_SINKS = 6
_SOCKETS = "udp://host:port, unix:///path"
_PATH = r"/[^\x00-\x1f\x7f,]*"
_PORT = r"(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_SOCKET = rf"udp://(?:[0-9A-Za-z._-]+|\[[0-9a-fA-F:.]+\]):{_PORT}|unix://{_PATH}"
_SINK = re.compile(rf"file|stdout|null|{_SOCKET}")
_FALLBACK = re.compile(rf"none|stderr|{_PATH}")
_ADDITIONAL_SINK = re.compile(rf"stdout|{_SOCKET}|file://{_PATH}")

Sink = Annotated[str, matching(_SINK)]
Fallback = Annotated[str, matching(_FALLBACK)]
Sinks = Annotated[
    tuple[Annotated[str, matching(_ADDITIONAL_SINK)], ...],
    BeforeValidator(split_list),
    AfterValidator(FewAndDifferent(MOST_ADDITIONAL_SINKS)),
]


class SinkParameters(Parameters):
    """Where records go: sinks, segments, their rotation."""

    sink: Sink = parameter(
        "file",
        "Where the listener writes; a successful write frees the queue: file (segments in directory), stdout, null "
        "(nowhere, for measurement; in YAML write it with quotes), udp://host:port (one JSON line per datagram, "
        "without acknowledgement; a line too large for one is dropped and counted), unix:///path (a stream of lines "
        "or datagrams, depending on the socket). While it fails, records wait in the queue.",
        allowed=f"file, stdout, null, {_SOCKETS}",
    )
    fallback: Fallback = parameter(
        "none",
        "What takes over after the sink has failed or hung for fallback_delay_s, until the sink takes a batch again: "
        "none, stderr, or segments in another directory. A batch that hung can then be in both, which a sink.fallback"
        " record reports.",
        allowed="none, stderr, or the absolute path of a directory",
    )
    fallback_delay_s: float = parameter(
        5.0,
        "How long the sink fails or hangs before fallback takes over; a shutdown waits half of its deadline at most.",
        unit="s",
        limits=(0.0, 3600.0),
        advanced=True,
    )
    additional_sinks: Sinks = parameter(
        (),
        "Sinks that get a copy of every line at their own pace and never hold back the queue: stdout, "
        "udp://host:port, unix:///path, file:///directory. At most 6.",
        allowed=f"stdout, {_SOCKETS} or file:///directory, each once and at most 6",
    )
    sink_buffer_bytes: Bytes = parameter(
        8 * MIB,
        "Memory of each additional sink for lines that it has not taken yet, plus one batch; further lines are "
        "dropped and counted for that sink alone, and a sink.dropped record in its output reports them.",
        unit="bytes",
        limits=(64 * KIB, 1 * GIB),
        advanced=True,
    )
    console: Literal["off", "auto", "on"] = parameter(
        "off",
        "Text for people on the listener's standard error, a line per request and per application record: auto, if "
        "that is a terminal; on, whatever it is. Records then wait 0.1 s at most. A terminal that does not keep up "
        "holds nothing back: lines that sink_buffer_bytes can't hold are left out, and their number is shown.",
        advanced=True,
    )
    directory: Directory = parameter(
        Path("logs"),
        "Directory of the segments; created with mode 0700 when the first one is opened. When it is full or gone, "
        "records wait in the queue, which then refuses records by their level.",
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
        advanced=True,
    )
