"""Where records go: sinks, segments and their upkeep, and the resource that names who wrote them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

from inference_logging.record.config.fields import (
    GIB,
    KIB,
    MIB,
    Bytes,
    Directory,
    FewAndDifferent,
    Parameters,
    each_name_once,
    matching,
    parameter,
    split_expressions,
    split_list,
)
from inference_logging.record.config.parameters.shipping import ShipName

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
        "Where the listener writes; a successful write frees the queue. file: segments in directory; stdout; null: "
        "nowhere, for measurements (quote it in YAML); udp://host:port: one JSON line per datagram, unacknowledged, "
        "and a line too large for one is dropped and counted; unix:///path: a stream of lines or datagrams, depending "
        "on the socket. While it fails, records wait in the queue.",
        allowed=f"file, stdout, null, {_SOCKETS}",
    )
    fallback: Fallback = parameter(
        "none",
        "What takes over after the sink has failed or hung for fallback_delay_s, until the sink accepts a batch again: "
        "none, stderr, or segments in another directory. A batch that hung can then be in both, which a sink.fallback "
        "record reports.",
        allowed="none, stderr, or the absolute path of a directory",
    )
    fallback_delay_s: float = parameter(
        5.0,
        "How long the sink fails or hangs before fallback takes over; a shutdown waits at most half its deadline.",
        unit="s",
        limits=(0.0, 3600.0),
        advanced=True,
    )
    additional_sinks: Sinks = parameter(
        (),
        "Sinks that get a copy of every line at their own pace and never hold back the queue.",
        allowed=f"stdout, {_SOCKETS} or file:///directory, each once and at most 6",
    )
    sink_buffer_bytes: Bytes = parameter(
        8 * MIB,
        "Memory of each additional sink for lines it has not taken yet, plus one batch; further lines are dropped and "
        "counted for that sink alone, and a sink.dropped record in its output reports them.",
        unit="bytes",
        limits=(64 * KIB, 1 * GIB),
        advanced=True,
    )
    console: Literal["off", "auto", "on"] = parameter(
        "off",
        "Readable text on the listener's stderr, a line per request and per application record. auto: if stderr is a "
        "terminal; on: always. Records then wait at most 0.1 s. A slow terminal holds nothing back: lines beyond "
        "sink_buffer_bytes are left out, and their number is shown.",
        advanced=True,
    )
    directory: Directory = parameter(
        Path("logs"),
        "Directory for segments; created with mode 0700 when the first one is opened. While it is full or missing, "
        "records wait in the queue, which then refuses records by level.",
        allowed="a path",
    )
    rotate_bytes: Bytes = parameter(
        64 * MIB,
        "Size at which a segment is closed with its footer and the next one opened; one batch may exceed it.",
        unit="bytes",
        limits=(4 * KIB, 1024 * GIB),
    )
    rotate_interval_s: float = parameter(
        3600.0,
        "Age at which a segment is closed with its footer; the next record opens a new one.",
        unit="s",
        limits=(1.0, 31 * 86400.0),
    )
    writeback_bytes: Bytes = parameter(
        8 * MIB,
        "Window of paced writeback: at most two windows of a segment are dirty in the page cache; beyond that the "
        "listener (never a request) waits for the disk.",
        unit="bytes",
        limits=(64 * KIB, 1 * GIB),
        advanced=True,
    )


MOST_SHIPPERS = 8
ShipNames = Annotated[tuple[ShipName, ...], BeforeValidator(split_list), AfterValidator(FewAndDifferent(MOST_SHIPPERS))]


class SegmentParameters(Parameters):
    """Sealed segments: how long and how many of them are kept, and in which form."""

    retention_s: float = parameter(
        0.0,
        "Age of its last record at which a sealed segment is removed; 0 = never. Every removal is counted and reported "
        "by a segments.removed record.",
        unit="s",
        limits=(0.0, 100 * 366 * 86400.0),
    )
    quota_bytes: Bytes = parameter(
        0,
        "Bytes that the segments of this service_name may take in a directory (each file sink's by itself); above it "
        "the oldest sealed ones are removed, including those of other processes. 0 = no limit, else at least twice "
        "rotate_bytes. Live segments count but are not removed. A directory exceeds the quota by one segment at most, "
        "unless a removal takes more than 2 s.",
        unit="bytes",
        limits=(0, 1024 * 1024 * GIB),
    )
    retention_waits_for: ShipNames = parameter(
        (),
        "Names of shippers (ship_name): a sealed segment in directory is kept, however old, until each of them has "
        "marked it as shipped. Only quota_bytes removes it earlier, which is counted as unshipped. Empty = the shipper "
        "of ship_to, if set.",
        allowed="names of shippers, each once and at most 8",
        advanced=True,
    )
    compress: Literal["off", "zstd"] = parameter(
        "off",
        "zstd: sealed segments become .jsonl.zst, one frame with a checksum. Off by default, so that programs that "
        "read *.jsonl still find them.",
    )
    compress_keep_segments: int = parameter(
        2,
        "Newest sealed segments that stay uncompressed, for shippers that are behind.",
        unit="segments",
        limits=(1, 10_000),
        advanced=True,
    )
    compress_level: int = parameter(
        3,
        "zstd's level: higher makes smaller segments and takes more of one core, at the lowest priority.",
        limits=(1, 19),
        advanced=True,
    )


MOST_ATTRIBUTES = 64
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_VALUE = re.compile(r"[^\x00-\x1f\x7f]{1,512}")

Attributes = Annotated[
    tuple[tuple[Annotated[str, matching(_NAME)], Annotated[str, matching(_VALUE)]], ...],
    BeforeValidator(split_expressions, json_schema_input_type=dict[str, str]),
    AfterValidator(each_name_once),
    PlainSerializer(dict, return_type=dict[str, str]),
]


class ResourceParameters(Parameters):
    """The resource of records: which service wrote them, in which pod, on which machine."""

    resource: Attributes = parameter(
        (),
        "OpenTelemetry resource attributes, such as service.version or deployment.environment.name, in each segment's "
        "header. In a variable: one name=value per line. They override OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, "
        "which override what is detected: host.name, container.id and service.instance.id. service.name is "
        "service_name unless that is the default.",
        allowed=f"at most {MOST_ATTRIBUTES} names of 1 to 128 letters, digits, '.', '_' or '-', and texts of 1 to 512 "
        "characters without control characters",
    )
    resource_on_lines: Literal["off", "on"] = parameter(
        "off",
        "on: each line ends with the resource, for sinks without segments and for readers of single lines. The "
        "listener adds it, at no cost to requests.",
        advanced=True,
    )
