"""Read segments back: list them, iterate over their records, follow them while they grow.

For the command line and for users. It takes no part in the writing: it needs no running listener and does not interfere
with one.
"""

from inference_logging.errors import CorruptLineError
from inference_logging.read.segments.following import Change, Stop, follow_records
from inference_logging.read.segments.reading import (
    OnCorrupt,
    Prefix,
    Record,
    Segment,
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
