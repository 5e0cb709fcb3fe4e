"""What a program imports to read segments: ``from inference_logging.segments import read_records``."""

from inference_logging.read.segments import (
    Change,
    CorruptLineError,
    OnCorrupt,
    Prefix,
    Record,
    Segment,
    Stop,
    follow_records,
    read_records,
    read_segment,
    segments,
)

__all__ = [
    "Change",
    "CorruptLineError",
    "OnCorrupt",
    "Prefix",
    "Record",
    "Segment",
    "Stop",
    "follow_records",
    "read_records",
    "read_segment",
    "segments",
]
