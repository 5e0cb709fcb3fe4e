"""An index in memory, for tests of what stands above it: slow and simple, with the answers of the native one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson

from inference_logging.cli.where import Condition, is_absent, look_up
from inference_logging.segments import segments
from inference_logging.segments.reading import is_framing
from inference_logging.shipping.line import unix_nano

_LEFT_OUT = ("timestamp", "chunk_gaps_us", "message", "http.request.body", "gen_ai.tool.definitions", "attributes")


class MemoryIndex:
    """Keeps every record of some directories."""

    def __init__(self, directories: Sequence[Path], prefixes: Sequence[str] | None = None) -> None:
        """Begin empty; ``refresh`` reads."""
        self._directories, self._prefixes = directories, prefixes
        self._read: dict[str, int] = {}
        self._resources: dict[str, dict[str, Any]] = {}
        self._places: dict[str, str] = {}
        self._rows: list[tuple[str, int, dict[str, Any], bytes]] = []
        """Key, time, record with its resource, and line; in the order of arrival."""
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def refresh(self, budget_s: float) -> bytes:
        """Read what is new."""
        for directory in self._directories:
            for segment in segments(directory, self._prefixes) if directory.is_dir() else ():
                if not segment.compressed:
                    self._places[segment.name] = str(directory)
                    self._take(segment.name, segment.path)
        size = sum(self._read.values())
        progress = {"segments": len(self._read), "indexed_segments": len(self._read), "bytes": size}
        progress |= {"indexed_bytes": size, "rows": len(self._rows), "done": True, "live_rows": 0}
        return orjson.dumps({**progress, "problems": []})

    def _take(self, name: str, path: Path) -> None:
        content = path.read_bytes()
        at = self._read.get(name, 0)
        while (end := content.find(b"\n", at)) >= 0:
            line, begin, at = content[at:end], at, end + 1
            record = orjson.loads(line)
            if is_framing(record):
                self._resources.setdefault(name, record.get("resource") or {})
                continue
            time_ns = unix_nano(record.get("timestamp", "")) or 0
            self._rows.append((f"{name}:{begin}", time_ns, {**self._resources.get(name, {}), **record}, line))
        self._read[name] = at

    def _matching(self, query: dict[str, Any]) -> list[tuple[str, int, dict[str, Any], bytes]]:
        conditions = [Condition.parse(text) for text in query.get("where", ())]
        first, end = query.get("from_ns", 0), query.get("to_ns", math.inf)
        text = query.get("text", "").lower().encode()
        return [
            row
            for row in self._rows
            if first <= row[1] < end
            and ("segments" not in query or _is_in(row[0], query["segments"]))
            and ("directories" not in query or self._places[row[0].rpartition(":")[0]] in query["directories"])
            and (not query.get("events") or row[2].get("event_name") in query["events"])
            and str(row[2].get("trace_id", "")).startswith(query.get("trace", ""))
            and text in row[3].lower()
            and all(condition.holds(row[2]) for condition in conditions)
        ]

    def rows(self, query: bytes) -> bytes:
        """Answer as the native index does."""
        asked = orjson.loads(query)
        self.asked.append(("rows", asked))
        found = self._matching(asked)
        ordered = sorted(found, key=_by(asked.get("order", "newest")))
        begin = int(asked.get("after") or 0)
        end = begin + asked.get("limit", 100)
        shown, following = ordered[begin:end], str(end) if end < len(ordered) else None
        rows = [
            {"key": key, "timestamp_ns": str(time_ns), **{k: v for k, v in record.items() if k not in _LEFT_OUT}}
            for key, time_ns, record, _ in shown
        ]
        answer = {"rows": rows, "next": following, "matched": len(found), "complete": True, "searched_to_ns": None}
        answer |= {"scanned_rows": len(self._rows), "unindexed_bytes": 0, "reached": {}}
        if "segments" in asked:
            answer["reached"] = {name: end for name, end in self._read.items() if name in asked["segments"]}
        return orjson.dumps(answer)

    def aggregate(self, query: bytes) -> bytes:
        """Answer as the native index does; percentiles are exact."""
        asked = orjson.loads(query)
        found = sorted(self._matching(asked), key=_by("oldest"))
        first = asked.get("from_ns", found[0][1] if found else 0)
        end = asked.get("to_ns", found[-1][1] + 1 if found else 1)
        number = asked.get("buckets", 120)
        bucket = max(1, -(-(end - first) // number))
        total = _Total(asked.get("fields", ["duration_s"]))
        over = {name: [0.0] * number for name in ("count", "weighted", "errors", "output_tokens", "input_tokens")}
        groups: dict[Any, _Total] = {}
        edges, cells = _heatmap(asked, found, number)
        for _, time_ns, record, _ in found:
            at = min(number - 1, (time_ns - first) // bucket)
            total.add(record)
            over["count"][at] += 1
            over["weighted"][at] += record.get("adjusted_count", 1)
            over["errors"][at] += record.get("outcome", "ok") != "ok"
            for side in ("input", "output"):
                over[f"{side}_tokens"][at] += record.get(f"gen_ai.usage.{side}_tokens") or 0
            value = record.get(asked["heatmap"]) if asked.get("heatmap") else None
            if isinstance(value, int | float):
                cells[at][sum(edge <= value for edge in edges[1:-1])] += 1
            if asked.get("group_by"):
                groups.setdefault(record.get(asked["group_by"]), _Total(total.names)).add(record)
        answer: dict[str, Any] = {"from_ns": str(first), "to_ns": str(end), "bucket_ns": str(bucket), **over}
        answer |= total.summary() | {"heatmap": {"edges": edges, "cells": cells}, "complete": True}
        answer["count"] = over["count"]
        most = sorted(groups.items(), key=lambda one: -one[1].count)[: asked.get("groups_limit", 20)]
        answer["groups"] = [{"value": value, **group.summary()} for value, group in most]
        return orjson.dumps(answer)

    def values(self, query: bytes) -> bytes:
        """Answer as the native index does."""
        asked = orjson.loads(query)
        found = (look_up(record, asked["field"]) for _, _, record, _ in self._matching(asked))
        counts = Counter(value for value in found if not is_absent(value) and not isinstance(value, list | dict))
        most = counts.most_common(asked.get("limit", 100))
        return orjson.dumps([{"value": value, "count": count} for value, count in most])

    def line(self, key: str) -> bytes:
        """Return a line."""
        return next(line for known, _, _, line in self._rows if known == key) if self._has(key) else _missing(key)

    def _has(self, key: str) -> bool:
        return any(known == key for known, *_ in self._rows)

    def lines(self, keys: bytes) -> bytes:
        """Return lines as a list of records."""
        wanted: Sequence[str] = orjson.loads(keys)
        lines = {key: line for key, _, _, line in self._rows if key in set(wanted)}
        return b"[" + b",".join(lines.get(key, b"null") for key in wanted) + b"]"

    def fields(self) -> bytes:
        """Return the names of numbers and texts that occur."""
        kinds: dict[str, str] = {}
        for _, _, record, _ in self._rows:
            kinds |= {k: type(v).__name__ for k, v in record.items() if isinstance(v, int | float | str)}
        return orjson.dumps([{"name": name, "type": kind, "indexed": True} for name, kind in kinds.items()])


def _is_in(key: str, segments: dict[str, int]) -> bool:
    segment, _, offset = key.rpartition(":")
    return segment in segments and int(offset) >= segments[segment]


def _missing(key: str) -> bytes:
    raise KeyError(key)


def _by(order: str) -> Callable[[tuple[str, int, dict[str, Any], bytes]], Any]:
    if order in ("newest", "oldest"):
        return lambda row: row[1] if order == "oldest" else -row[1]
    field, sign = order.removeprefix("-"), -1 if order.startswith("-") else 1
    return lambda row: (row[2].get(field) is None, sign * (row[2].get(field) or 0))


class _Total:
    """Counts and distributions of some records."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        self.count, self.errors = 0, 0
        self.outcomes: Counter[str] = Counter()
        self.found: dict[str, list[float]] = {name: [] for name in self.names}

    def add(self, record: dict[str, Any]) -> None:
        self.count += 1
        self.outcomes[str(record.get("outcome"))] += 1
        self.errors += record.get("outcome", "ok") != "ok"
        for name in self.names:
            if isinstance(value := record.get(name), int | float):
                self.found[name].append(value)

    def summary(self) -> dict[str, Any]:
        fields = {name: _summary(sorted(values)) for name, values in self.found.items() if values}
        return {"count": self.count, "errors": self.errors, "outcomes": dict(self.outcomes), "fields": fields}


def _summary(values: list[float]) -> dict[str, Any]:
    edges = _edges(values, 40)
    counts = [0] * (len(edges) - 1)
    for value in values:
        counts[sum(edge <= value for edge in edges[1:-1])] += 1
    shares = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
    quantiles = {name: values[max(0, math.ceil(share * len(values)) - 1)] for name, share in shares.items()}
    mean = sum(values) / len(values)
    return {"count": len(values), "mean": mean, **quantiles, "histogram": {"edges": edges, "counts": counts}}


def _edges(values: Sequence[float], rows: int) -> list[float]:
    above = [value for value in values if value > 0] or [1.0]
    low, high = math.log(min(above)), math.log(max(above) * 1.001)
    return [math.exp(low + (high - low) * at / rows) for at in range(rows + 1)]


def _heatmap(asked: dict[str, Any], found: Iterable[Any], buckets: int) -> tuple[list[float], list[list[int]]]:
    if not asked.get("heatmap"):
        return [], []
    rows = asked.get("heatmap_rows", 40)
    values = [row[2][asked["heatmap"]] for row in found if isinstance(row[2].get(asked["heatmap"]), int | float)]
    return _edges(values, rows), [[0] * rows for _ in range(buckets)]
