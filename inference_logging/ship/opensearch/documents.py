"""A record as two lines of a bulk request: where it goes, and its document; nothing of it is left out.

The index is that of the record's day and the id that of the record, so that a record which is sent again, whenever and
by any shipper, is one document.
"""

from __future__ import annotations

import orjson

from inference_logging.read.segments.columns import RESOURCE
from inference_logging.read.segments.rows import OTHER, row
from inference_logging.ship.line import Line
from inference_logging.ship.opensearch.template import MESSAGES, RENAMED


def action(line: Line, index: str) -> bytes:
    """Return both lines. A time that is none is replaced by its segment's."""
    document, other = row(line.record), {}
    if OTHER in document:
        other = dict(document.pop(OTHER))
    if line.unix_nano() == 0:
        if "timestamp" in line.record:
            other["timestamp"] = line.record["timestamp"]
        document["timestamp"] = line.segments_time()
    document |= {name: other.pop(name) for name in MESSAGES if name in other}
    document |= {name: document.pop(given) for given, name in RENAMED.items() if given in document}
    document |= {OTHER: other} if other else {}
    document |= {name: value for name in RESOURCE if isinstance(value := line.resource.get(name), str)}
    document |= {"segment": line.segment, "offset": line.offset}
    day = str(document["timestamp"])[:10].replace("-", ".")
    head = {"create": {"_index": f"{index}-{day}", "_id": identity(line)}}
    return orjson.dumps(head) + b"\n" + orjson.dumps(document) + b"\n"


def identity(line: Line) -> str:
    """Return the id of a record's document: queue, process and number; of one without a number, its place."""
    boot_id, pid, seq = (line.record.get(name) for name in ("boot_id", "pid", "seq"))
    if isinstance(boot_id, str) and len(boot_id) <= 64 and isinstance(pid, int) and isinstance(seq, int):
        return f"{boot_id}-{pid}-{seq}"
    return f"{line.segment}:{line.offset}"
