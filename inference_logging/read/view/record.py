"""One record with all that belongs to it: its process, what was recorded inside it, and what ran beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import orjson

from inference_logging.read.export.requests import arrival_nano
from inference_logging.read.segments import Record, Segment
from inference_logging.read.segments.reading import header_of
from inference_logging.read.table.table import Table
from inference_logging.read.times import unix_nano
from inference_logging.read.view import queries
from inference_logging.read.view.fields import described
from inference_logging.read.view.queries import Query, QueryError, records_of, rows_of

MOST_LOGS: Final = 200
MOST_CHUNKS: Final = 2000
MOST_NEIGHBOURS: Final = 200
MOST_STATS: Final = 50

_KEY: Final = re.compile(r"(?P<segment>[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}):\d{1,20}", re.ASCII)
_KEPT_HEADERS: Final = 1000
_SLACK_NS: Final = 2_000_000_000
"""Records are made in threads of their own clocks' order: a record of a request may come a little after its end."""
_WITH_DURATION: Final = ("request", "websocket.connection")
_STATS_NS: Final = 30_000_000_000
_LONGEST_NS: Final = 600_000_000_000
"""A neighbour that ends later than this after the request is not looked for."""


class GoneRecordError(Exception):
    """The record is not there: it was removed, or its key is wrong."""


class Records:
    """Finds records and what belongs to them."""

    def __init__(self, index: Table, directories: Sequence[Path]) -> None:
        self._index, self._directories = index, directories
        self._header_of = lru_cache(_KEPT_HEADERS)(self._header)

    def whole(self, key: str) -> dict[str, Any]:
        """Return a record and what belongs to it. Raises ``QueryError``, ``GoneRecordError``."""
        record = self.one(key)
        begin_ns, end_ns = span_ns(record)
        found: dict[str, Any] = {"key": key, "record": record, "resource": self.resource(key)}
        found |= {"begin_ns": str(begin_ns), "end_ns": str(end_ns)}
        found |= self._inside(key, record, begin_ns, end_ns)
        found["neighbours"] = {
            "requests": self._beside(key, record, begin_ns, end_ns),
            "stats": self._stats(record, begin_ns, end_ns),
        }
        names = {*record, *found["resource"], *(name for one in found["neighbours"]["stats"] for name in one)}
        found["fields"] = [described(name) for name in sorted(names)]
        return found

    def one(self, key: str) -> Record:
        """Return the record of a key. Raises ``QueryError``, ``GoneRecordError``."""
        if _KEY.fullmatch(key) is None:
            raise QueryError(f"key={key[:80]!r}: must be the name of a segment, a colon and an offset")
        try:
            record = orjson.loads(self._index.line(key))
        except KeyError:
            raise GoneRecordError(f"key={key!r}: no such record; its segment may have been removed") from None
        if not isinstance(record, dict):
            raise GoneRecordError(f"key={key!r}: the line is not a record")
        return record

    def resource(self, key: str) -> dict[str, Any]:
        """Return what the header of a key's segment says of the process that wrote it."""
        found = self._header_of(key.rpartition(":")[0]).get("resource")
        return found if isinstance(found, dict) else {}

    def _header(self, name: str) -> Record:
        """Return the header of a segment; empty where the segment is gone, or has none."""
        for directory in self._directories:
            for path in (directory / name, directory / f"{name}.zst"):
                segment = Segment.parse(path)
                if segment is not None and path.is_file() and (header := header_of(segment)):
                    return header
        return {}

    def _inside(self, key: str, record: Record, begin_ns: int, end_ns: int) -> dict[str, Any]:
        """Return the records that were made inside a request, and its chunks."""
        span: Query = {"from_ns": begin_ns - _SLACK_NS, "to_ns": end_ns + _SLACK_NS, "order": "oldest"}
        span["from_ns"] = max(0, span["from_ns"])
        request_id, trace_id = record.get("request_id"), record.get("trace_id")
        own = {**span, "where": [f"request_id={request_id}"]} if isinstance(request_id, str) else None
        ids = own or ({**span, "trace": trace_id} if isinstance(trace_id, str) and trace_id else None)
        if ids is None:
            return {"logs": [], "chunks": []}
        chunks = rows_of(self._index, {**(own or ids), "events": ["request.chunk"]}, MOST_CHUNKS)
        wanted = {**ids, "where": [*ids.get("where", []), "event_name!=request", "event_name!=request.chunk"]}
        logs = [row for row in rows_of(self._index, wanted, MOST_LOGS + 1) if row["key"] != key][:MOST_LOGS]
        return {"logs": records_of(self._index, logs), "chunks": records_of(self._index, chunks)}

    def _beside(self, key: str, record: Record, begin_ns: int, end_ns: int) -> list[dict[str, Any]]:
        """Return the requests of the same process that ran at the same time."""
        if record.get("boot_id") is None:
            return []
        query: Query = {
            "events": ["request"],
            "where": [f"boot_id={record['boot_id']}"],
            "from_ns": begin_ns,
            "to_ns": end_ns + _LONGEST_NS,
            "order": "oldest",
        }
        if isinstance(record.get("pid"), int):
            query["where"].append(f"pid={record['pid']}")
        rows = rows_of(self._index, query, queries.MOST_ROWS)
        beside = [row for row in rows if row["key"] != key and _begin_ns(row) < end_ns]
        return beside[:MOST_NEIGHBOURS]

    def _stats(self, record: Record, begin_ns: int, end_ns: int) -> list[Record]:
        """Return what the engine has said of itself around a request: of the same process, else of any."""
        query: Query = {
            "events": ["engine.stats"],
            "from_ns": max(0, begin_ns - _STATS_NS),
            "to_ns": end_ns + _STATS_NS,
            "order": "oldest",
        }
        of_process = {**query, "where": [f"boot_id={record.get('boot_id')}"]}
        rows = rows_of(self._index, of_process, MOST_STATS) or rows_of(self._index, query, MOST_STATS)
        return records_of(self._index, rows)


def span_ns(record: Mapping[str, Any]) -> tuple[int, int]:
    """Return when what a record is about began and ended, Unix nanoseconds; 0 for a record without a time."""
    end_ns = unix_nano(str(record.get("timestamp", ""))) or 0
    begin_ns = arrival_nano(record) if record.get("event_name") in _WITH_DURATION else None
    return (end_ns if begin_ns is None else begin_ns), end_ns


def _begin_ns(row: Mapping[str, Any]) -> int:
    duration = row.get("duration_s")
    spent_s = float(duration) if isinstance(duration, int | float) else 0.0
    return int(row["timestamp_ns"]) - round(spent_s * 1e9)
