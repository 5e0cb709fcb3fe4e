"""The tables and views of a database of ClickHouse, as statements; what is there already stays as it is.

``records`` has one row for each record, with the columns of `query`, and the place that the record has in its segment.
That place is the end of the table's key, so a record that was stored twice becomes one row: at the next merge, and in
each question that says FINAL, as the views ``requests`` and ``logs`` do. ``requests_per_minute`` answers from sums and
states that a materialised view keeps for each minute, service, route and model.

Lists and objects are JSON text, which is empty where a record has none: ClickHouse takes arrays whose names share what
stands before a dot for one nested table, whose arrays are all of one length.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from inference_logging.read.segments.columns import COLUMNS as OF_QUERY
from inference_logging.read.segments.columns import EVENTS, FAILED, FIELDS, MODEL, OTHER, RESOURCE, TABLES

RECORDS: Final = "records"
MINUTES: Final = "requests_per_minute"
OBJECTS: Final = (RECORDS, "requests", "logs", MINUTES, f"{MINUTES}_states", f"{MINUTES}_feed")
_VIEWS: Final = ("requests", "logs", MINUTES)
"""Those that a later version makes anew."""
WINDOW_BLOCKS: Final = 100_000
"""Blocks of which a table without replicas knows that they are there."""

_OF_DUCKDB: Final = {
    "TIMESTAMP": "DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1))",
    "VARCHAR": "Nullable(String) CODEC(ZSTD(1))",
    "BIGINT": "Nullable(Int64) CODEC(ZSTD(1))",
    "UBIGINT": "Nullable(UInt64) CODEC(Delta(8), ZSTD(1))",
    "DOUBLE": "Nullable(Float64) CODEC(ZSTD(1))",
    "BOOLEAN": "Nullable(Bool)",
    "VARCHAR[]": "String CODEC(ZSTD(1))",
    "BIGINT[]": "String CODEC(ZSTD(3))",
    "JSON": "String CODEC(ZSTD(3))",
}
TEXTS: Final = frozenset(name for name, kind in OF_QUERY.items() if kind == "JSON" or kind.endswith("[]"))
"""Columns that hold JSON as text."""
_KEYS: Final = {"event_name": "LowCardinality(String)", "service.name": "LowCardinality(String)"}
_PLACE: Final = {"segment": "LowCardinality(String)", "offset": "UInt64 CODEC(Delta(8), ZSTD(1))"}


def _kind(name: str, of_duckdb: str) -> str:
    if name in _KEYS:
        return _KEYS[name]
    is_known = name in FIELDS and FIELDS[name].has_few_values
    return "LowCardinality(Nullable(String))" if is_known else _OF_DUCKDB[of_duckdb]


COLUMNS: Final = {**{name: _kind(name, kind) for name, kind in OF_QUERY.items()}, **_PLACE}
"""Name, and ClickHouse's type with its codec."""

_WEIGHT: Final = "coalesce(adjusted_count, 1)"
_SUMS: Final = {
    "requests": _WEIGHT,
    "failed": f"if({FAILED}, {_WEIGHT}, 0)",
    "aborted": f"if(outcome = 'client_disconnect', {_WEIGHT}, 0)",
    "input_tokens": f"coalesce(`gen_ai.usage.input_tokens` * {_WEIGHT}, 0)",
    "output_tokens": f"coalesce(`gen_ai.usage.output_tokens` * {_WEIGHT}, 0)",
    "cached_tokens": f"coalesce(`gen_ai.usage.cache_read.input_tokens` * {_WEIGHT}, 0)",
}
_LEVELS: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_QUANTILES: Final = f"quantilesTDigest({', '.join(map(str, _LEVELS.values()))})"
_STATES: Final = {"duration": "duration_s", "first_chunk": "`gen_ai.response.time_to_first_chunk`"}
_BY: Final = {
    "`service.name`": "`service.name`",
    "route": "coalesce(`http.route`, `url.path`, '')",
    "model": f"coalesce({', '.join(f'`{name}`' for name in MODEL)}, '')",
}


def foreign(engines: Mapping[str, str], columns: Collection[str]) -> str | None:
    """Return which of what is there belongs to another program; None: nothing does.

    ``engines``: by name; ``columns``: those of the table ``records``. Every version of that has the place of a record.
    """
    if RECORDS in engines and not _PLACE.keys() <= set(columns):
        return RECORDS
    return next((name for name in _VIEWS if engines.get(name, "View") != "View"), None)


def statements(ttl_days: int | None = None) -> list[str]:
    """Return what makes everything, in an order in which it can be made; ``ttl_days``: records are removed then."""
    return [_records(ttl_days), _states(), _feed(), *views()]


def text(ttl_days: int | None = None) -> str:
    """Return the same for an administrator, who may alter it before the first delivery."""
    return "".join(f"{statement};\n\n" for statement in statements(ttl_days)).rstrip() + "\n"


def views(*, anew: bool = False) -> list[str]:
    """Return the views that questions are asked of; ``anew``: also where they are there."""
    make = "CREATE OR REPLACE VIEW" if anew else "CREATE VIEW IF NOT EXISTS"
    made = [
        f"{make} {view} AS\nSELECT {_names({**TABLES[view], **RESOURCE, OTHER: ''})}\n"
        f"FROM {RECORDS} FINAL WHERE event_name = '{EVENTS[view]}'"
        for view in ("requests", "logs")
    ]
    return [*made, f"{make} {MINUTES} AS\n{_minutes()}"]


def add_columns(missing: Iterable[str]) -> str:
    """Return what gives a table of an earlier version its new columns."""
    return f"ALTER TABLE {RECORDS} " + ", ".join(
        f"ADD COLUMN IF NOT EXISTS `{name}` {COLUMNS[name]}" for name in missing
    )


def insert() -> str:
    """Return the statement that rows stand behind."""
    return f"INSERT INTO {RECORDS} ({_names(COLUMNS)}) FORMAT JSONEachRow\n"


def _names(columns: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in columns)


def _table(name: str, columns: Sequence[str], engine: str) -> str:
    return f"CREATE TABLE IF NOT EXISTS {name} (\n    " + ",\n    ".join(columns) + f"\n)\n{engine}"


def _records(ttl_days: int | None) -> str:
    # Days are removed as a whole.
    ttl = f"TTL toDateTime(timestamp) + INTERVAL {ttl_days} DAY\n" if ttl_days else ""
    return _table(
        RECORDS,
        [f"`{name}` {kind}" for name, kind in COLUMNS.items()],
        "ENGINE = ReplacingMergeTree\nPARTITION BY toDate(timestamp)\n"
        "PRIMARY KEY (event_name, `service.name`, timestamp)\n"
        "ORDER BY (event_name, `service.name`, timestamp, segment, offset)\n"
        f"{ttl}SETTINGS non_replicated_deduplication_window = {WINDOW_BLOCKS}, ttl_only_drop_parts = 1",
    )


def _states() -> str:
    return _table(
        f"{MINUTES}_states",
        [
            "minute DateTime('UTC') CODEC(Delta(4), ZSTD(1))",
            *(f"{name} LowCardinality(String)" for name in _BY),
            *(f"{name} SimpleAggregateFunction(sum, Float64) CODEC(ZSTD(1))" for name in _SUMS),
            *(f"{name} AggregateFunction({_QUANTILES}, Nullable(Float64)) CODEC(ZSTD(1))" for name in _STATES),
        ],
        f"ENGINE = AggregatingMergeTree\nPARTITION BY toYYYYMM(minute)\nORDER BY (minute, {', '.join(_BY)})\n"
        f"SETTINGS non_replicated_deduplication_window = {WINDOW_BLOCKS}",
    )


def _feed() -> str:
    """Return the materialised view, which adds each block of records to the states."""
    return f"CREATE MATERIALIZED VIEW IF NOT EXISTS {MINUTES}_feed TO {MINUTES}_states AS\n{summing(RECORDS)}"


def summing(source: str) -> str:
    """Return the question whose answer is what ``source`` adds to the states."""
    state = _QUANTILES.replace("(", "State(")
    values = [
        "toStartOfMinute(toDateTime(timestamp, 'UTC')) AS minute",
        *(f"{value} AS {name}" if name != value else name for name, value in _BY.items()),
        *(f"sum(toFloat64({value})) AS {name}" for name, value in _SUMS.items()),
        *(f"{state}({value}) AS {name}" for name, value in _STATES.items()),
    ]
    listed = ",\n    ".join(values)
    return f"SELECT {listed}\nFROM {source} WHERE event_name = 'request'\nGROUP BY minute, {', '.join(_BY)}"


def _minutes() -> str:
    merge = _QUANTILES.replace("(", "Merge(")
    values = [
        "minute",
        *_BY,
        *(f"sum(of.{name}) AS {name}" for name in _SUMS),
        *(
            f"{merge}(of.{name})[{place}] AS {name}_{level}_s"
            for name in _STATES
            for place, level in enumerate(_LEVELS, 1)
        ),
    ]
    listed = ",\n    ".join(values)
    return f"SELECT {listed}\nFROM {MINUTES}_states AS of\nGROUP BY minute, {', '.join(_BY)}"
