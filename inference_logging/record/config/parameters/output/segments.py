"""Sealed segments: how long and how many of them are kept, and in which form."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from inference_logging.record.config.fields import GIB, Bytes, FewAndDifferent, Parameters, parameter, split_list
from inference_logging.record.config.parameters.shipping import ShipName

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
