"""Answers `aggregate` and `values`: counts over time, distributions, a heat map, groups, and how often values occur."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from inference_logging.read.segments.columns import FAILED, RESOURCE
from inference_logging.read.table.catalog import Entry
from inference_logging.read.table.columns import COLUMNS, SEVERITIES, SEVERITY, TIMESTAMP
from inference_logging.read.table.conditions import with_value
from inference_logging.read.table.engine import name, text
from inference_logging.read.table.rows import number
from inference_logging.read.table.search import MOMENT, Question, Record, Search
from inference_logging.read.table.sketch import SMALLEST, WEIGHT, Sketch, edge, sketches
from inference_logging.read.where import ALIASES, as_text, is_absent, look_up

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MOST_FIELDS: Final = 12
_BUCKETS: Final = 120
_GROUPS: Final = 20
_HEATMAP_ROWS: Final = 40
_VALUES: Final = 100
_HEATMAP_SPAN: Final = 1e-6
"""A heat map begins at this share of the greatest value, or at the least one above it."""
_LONGEST_VALUE: Final = 1024
_WHOLE: Final = 1e15
_WHOLE_NUMBERS: Final = ("BIGINT", "UBIGINT")
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_PER_BAR: Final = 4
"""Buckets of the sketch in a histogram's bar: about eight bars for each doubling."""
_SUMS: Final = ("count", "weighted", "errors", "output_tokens", "input_tokens")
_TOKENS: Final = ("gen_ai.usage.output_tokens", "gen_ai.usage.input_tokens")
_KNOWN: Final = {**COLUMNS, **dict.fromkeys(RESOURCE, "VARCHAR"), SEVERITY: "BIGINT", TIMESTAMP: "TIMESTAMP"}

_SEVERITY: Final = (
    f"CASE severity_text {' '.join(f'WHEN {text(word)} THEN {at}' for word, at in SEVERITIES.items())} END"
)


def _number(field: str) -> str:
    """Return a field's number as SQL; NULL where it has none."""
    if field == SEVERITY:
        return f"CAST({_SEVERITY} AS DOUBLE)"
    is_number = COLUMNS.get(field) in ("DOUBLE", *_WHOLE_NUMBERS)
    return f"CAST({name(field)} AS DOUBLE)" if is_number else "NULL::DOUBLE"


def _value(field: str) -> str:
    """Return a field's value as SQL: its JSON, which equal values share; 1 and 1.0 are equal, 1 and "1" are not."""
    kind, column = _KNOWN.get(field), name(field)
    if kind is None and field in ALIASES and _has_columns(field):
        return f"coalesce({', '.join(map(_value, ALIASES[field]))})"
    if kind is None:
        return "NULL::VARCHAR"
    if field == SEVERITY:
        return f"CAST({_SEVERITY} AS VARCHAR)"
    if field == TIMESTAMP:
        return f"""'"' || strftime({TIMESTAMP}, '%Y-%m-%dT%H:%M:%S.%n') || 'Z"'"""
    if kind == "DOUBLE":
        whole = f"{column} = trunc({column}) AND abs({column}) < {_WHOLE}"
        return (
            f"CASE WHEN {whole} THEN CAST(CAST({column} AS BIGINT) AS VARCHAR) "
            f"ELSE CAST(to_json({column}) AS VARCHAR) END"
        )
    return f"CAST(to_json({column}) AS VARCHAR)"


def _has_columns(field: str) -> bool:
    """Return whether columns have all that a field, or a short name, means."""
    return all(one in _KNOWN for one in ALIASES.get(field, (field,)))


def _value_of(record: Record, field: str) -> str | None:
    """Return the same for a record's value."""
    found = look_up(record, field)
    if is_absent(found):
        return None
    if isinstance(found, float) and found.is_integer() and abs(found) < _WHOLE:
        found = int(found)
    return orjson.dumps(found).decode()


def values(cursor: DuckDBPyConnection, query: Mapping[str, Any], entries: Sequence[Entry]) -> list[Mapping[str, Any]]:
    """Answer a query. Raises ValueError."""
    if "field" not in query:
        raise ValueError("field: must be given")
    field: str = query["field"]
    search = Search(cursor, Question(query), entries)
    shape = {"g": (_value(field), "VARCHAR")}
    search.run(shape, lambda record, *_: [_value_of(record, field)], are_columns=_has_columns(field))
    return [
        {"value": orjson.loads(value), "count": count}
        for value, count in _frequent(search, query.get("limit", _VALUES))
    ]


def _frequent(search: Search, limit: int) -> list[tuple[str, int]]:
    """Return the most frequent values with their counts."""
    sql = (
        f"SELECT g, count(*) AS n FROM ({search.relation}) WHERE g IS NOT NULL AND strlen(g) <= {_LONGEST_VALUE} "
        f"GROUP BY g ORDER BY n DESC, g LIMIT {int(limit)}"
    )
    return search.cursor.execute(sql, search.values).fetchall()


class _Buckets:
    """The buckets of time: between the ends of the query, or the first and the last record of the segments."""

    def __init__(self, question: Question, entries: Sequence[Entry], count: int) -> None:
        facts = [entry.facts for entry in entries if entry.facts is not None and entry.facts.rows]
        first = min((one.first_ns for one in facts), default=0)
        last = max((one.last_ns for one in facts), default=0)
        self.begin = question.from_ns if question.from_ns > 0 else first
        self.end = max(question.to_ns if question.to_ns < (1 << 63) - 1 else last + 1, self.begin + 1)
        self.width = max(1, -(-(self.end - self.begin) // count))
        self.count = count

    def sql(self) -> str:
        return f"least(greatest(t - {self.begin}, 0) // {self.width}, {self.count - 1})"


def aggregate(cursor: DuckDBPyConnection, query: Mapping[str, Any], entries: Sequence[Entry]) -> Mapping[str, Any]:
    """Answer a query. Raises ValueError."""
    fields: list[str] = query.get("fields", ["duration_s"])
    if len(fields) > _MOST_FIELDS:
        raise ValueError(f"fields: must be {_MOST_FIELDS} at most, not {len(fields)}")
    question = Question(query)
    group_by, heatmap = query.get("group_by"), query.get("heatmap")
    search = Search(cursor, question, entries)
    buckets = _Buckets(
        question, search.entries if question.directories is not None else entries, query.get("buckets", _BUCKETS)
    )
    numbers = [*_TOKENS, *fields, *([heatmap] if heatmap else [])]
    shape = {
        "t": (MOMENT, "BIGINT"),
        "outcome": ("outcome", "VARCHAR"),
        "weight": ("adjusted_count", "DOUBLE"),
        **{f"n{at}": (_number(field), "DOUBLE") for at, field in enumerate(numbers)},
        "g": (_value(group_by) if group_by else "NULL::VARCHAR", "VARCHAR"),
    }

    def found(record: Record, moment: int, _segment: str, _offset: int) -> list[Any]:
        outcome = look_up(record, "outcome")
        return [
            moment,
            None if is_absent(outcome) or outcome is None else as_text(outcome),
            number(look_up(record, "adjusted_count")),
            *(number(look_up(record, field)) for field in numbers),
            _value_of(record, group_by) if group_by else None,
        ]

    are_columns = all(field in _KNOWN for field in numbers) and (not group_by or _has_columns(group_by))
    search.run(shape, found, are_columns=are_columns)
    groups = [value for value, _ in _frequent(search, query.get("groups_limit", _GROUPS))] if group_by else []
    given = dict(search.values)
    group = _grouped(groups, given)
    sums = _sums(search, buckets, group, given)
    distributions = [sketches(search, f"n{len(_TOKENS) + at}", group, given) for at in range(len(fields))]

    def totals(group: str | None) -> dict[str, Any]:
        of = {
            field: _summary(of_groups.get(group, Sketch()), is_whole=COLUMNS.get(field) in _WHOLE_NUMBERS)
            for field, of_groups in zip(fields, distributions, strict=True)
        }
        return {**sums.of(group), "fields": of}

    reached = search.reached
    return {
        "from_ns": str(buckets.begin),
        "to_ns": str(buckets.end),
        "bucket_ns": buckets.width,
        "first_ns": str(min(sums.moments, default=buckets.begin)),
        "last_ns": str(max(sums.moments, default=buckets.begin)),
        **totals(None),
        "heatmap": _heatmap(search, f"n{len(numbers) - 1}", buckets, query) if heatmap else None,
        "groups": [{"value": orjson.loads(group), **totals(group)} for group in groups],
        "complete": reached.is_complete,
        "scanned_rows": reached.rows,
        "unindexed_bytes": reached.unread_bytes,
    }


class _Sums:
    """Sums by group and bucket; the group None is all."""

    def __init__(self, buckets: int) -> None:
        self.moments: list[int] = []
        """When the first and the last record of each sum were."""
        self._buckets = buckets
        self._of: dict[str | None, dict[str, list[Any]]] = {}

    def of(self, group: str | None) -> dict[str, list[Any]]:
        if group not in self._of:
            self._of[group] = {name: [0 if name == "count" else 0.0] * self._buckets for name in _SUMS}
        return self._of[group]

    def add(self, group: str | None, bucket: int, sums: Mapping[str, Any]) -> None:
        of = self.of(group)
        for sum_name, one in sums.items():
            of[sum_name][bucket] += one


def _grouped(groups: Sequence[str], values: dict[str, Any]) -> str:
    """Return the group of a row as SQL; NULL for those that are not among the groups."""
    if not groups:
        return "NULL"
    return f"CASE WHEN g IN ({', '.join(with_value(values, group) for group in groups)}) THEN g END"


def _sums(search: Search, buckets: _Buckets, group: str, given: dict[str, Any]) -> _Sums:
    found = _Sums(buckets.count)
    sql = f"""
        SELECT {group}, {buckets.sql()}, count(*), sum({WEIGHT}), coalesce(sum({WEIGHT}) FILTER ({FAILED}), 0),
            sum(coalesce(n0, 0) * {WEIGHT}), sum(coalesce(n1, 0) * {WEIGHT}), min(t), max(t)
        FROM ({search.relation}) GROUP BY 1, 2
    """
    for value, bucket, count, weighted, errors, output, given_tokens, *moments in search.cursor.execute(
        sql, given
    ).fetchall():
        found.moments += moments
        sums = dict(zip(_SUMS, (count, weighted, errors, output, given_tokens), strict=True))
        for one in {None, value}:
            found.add(one, bucket, sums)
    return found


def _summary(sketch: Sketch, *, is_whole: bool) -> dict[str, Any]:
    """Return a distribution's figures; the quantiles of whole numbers are whole, as the values are."""
    quantiles = {label: sketch.quantile(share) for label, share in _QUANTILES.items()}
    if is_whole:
        quantiles = {label: None if value is None else round(value) for label, value in quantiles.items()}
    return {
        "count": sketch.values,
        "mean": sketch.mean,
        "max": sketch.greatest if sketch.values else None,
        "histogram": _histogram(sketch),
        **quantiles,
    }


def _histogram(sketch: Sketch) -> dict[str, list[float]]:
    """Return a distribution as bars whose edges are those of one lattice, whatever it has."""
    edges, counts = ([0.0], [sketch.zeros]) if sketch.zeros else ([], [])
    if not sketch.buckets:
        return {"edges": [*edges, SMALLEST] if edges else [], "counts": counts}
    bars: dict[int, float] = {}
    for bucket, weight in sketch.buckets.items():
        bars[-(-bucket // _PER_BAR)] = bars.get(-(-bucket // _PER_BAR), 0.0) + weight
    every = range(min(bars), max(bars) + 1)
    edges += [edge(_PER_BAR * bar) for bar in range(every[0] - 1, every[-1] + 1)]
    return {"edges": edges, "counts": [*counts, *(bars.get(bar, 0.0) for bar in every)]}


def _heatmap(search: Search, member: str, buckets: _Buckets, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return weights by bucket and row, whose rows begin at the least value above 0; ``zeros`` counts the others."""
    rows: int = query.get("heatmap_rows", _HEATMAP_ROWS)
    low, high = search.cursor.execute(
        f"SELECT min({member}) FILTER ({member} > 0), max({member}) FROM ({search.relation})", search.values
    ).fetchall()[0]
    # Room for an edge above it, also for the largest number.
    high = min(high, sys.float_info.max / 4) if high is not None and high > 0 else 1.0
    low = min(max(low if low is not None else high, high * _HEATMAP_SPAN), high)
    # A little more than the greatest, which belongs to the last row.
    high = high * 1.000_001 if low < high else high * 2.0
    step = math.log(high / low) / rows
    cells = [[0.0] * rows for _ in range(buckets.count)]
    row_of = f"least(CAST(floor(ln({member} / {low!r}) / {step!r}) AS INTEGER), {rows - 1})"
    place = f"CASE WHEN {member} > {low!r} THEN {row_of} WHEN {member} > 0 THEN 0 END"
    those = f"FROM ({search.relation}) WHERE {member} IS NOT NULL"
    sql = f"SELECT {buckets.sql()}, {place}, sum({WEIGHT}) {those} GROUP BY 1, 2"
    zeros = [0.0] * buckets.count
    for bucket, row, count in search.cursor.execute(sql, search.values).fetchall():
        if row is None:
            zeros[bucket] += count
        else:
            cells[bucket][row] += count
    return {"edges": [low * math.exp(step * row) for row in range(rows + 1)], "cells": cells, "zeros": zeros}
