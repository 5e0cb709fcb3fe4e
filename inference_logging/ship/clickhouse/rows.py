"""A record as a line of JSONEachRow, in the types of the table; nothing of it is left out."""

from __future__ import annotations

import orjson

from inference_logging.read.segments.columns import RESOURCE
from inference_logging.read.segments.rows import OTHER, row
from inference_logging.ship.clickhouse.schema import TEXTS
from inference_logging.ship.line import Line


def row_line(line: Line) -> bytes:
    """Return the row of a record, its resource and its place. A time that is none is replaced by its segment's."""
    made = row(line.record)
    if line.unix_nano() == 0:
        made["timestamp"] = line.segments_time()
        if "timestamp" in line.record:
            made[OTHER] = {**made.get(OTHER, {}), "timestamp": line.record["timestamp"]}
    made.setdefault("event_name", "")
    texts = {name: orjson.dumps(made[name]).decode() for name in TEXTS & made.keys()}
    resource = {name: value for name in RESOURCE if isinstance(value := line.resource.get(name), str)}
    return orjson.dumps({**made, **texts, **resource, "segment": line.segment, "offset": line.offset})
