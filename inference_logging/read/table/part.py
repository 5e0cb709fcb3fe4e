"""The rows of lines, in a table of the engine: of a live segment while it grows, of a sealed one until it is a file.

The engine reads what it can read exactly, and lists the keys and types of the lines; a line whose keys or types are not
those of the columns is judged by Python's reader, as all other readers of segments do it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from inference_logging.read.segments.columns import RESOURCE
from inference_logging.read.segments.reading import is_framing
from inference_logging.read.table.columns import ALL, COLUMNS, TIMESTAMP, TYPES, are_odd
from inference_logging.read.table.engine import name, text, texts

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

_ROW_GROUP: Final = 20_480
_EXACT: Final = 1 << 53
"""Whole numbers from here on are not all floats."""
_STRUCTURE: Final = orjson.dumps({TIMESTAMP: "VARCHAR", **COLUMNS}).decode()
_TIME: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z"
_INTEGERS: Final = [column for column, kind in COLUMNS.items() if kind.endswith("BIGINT")]
_DOUBLES: Final = {column for column, kind in COLUMNS.items() if kind == "DOUBLE"}
_MANY_LINES: Final = 4000
_NUMBERS = itertools.count()


class Part:
    """The rows of a segment's lines, taken block by block."""

    def __init__(self, segment: str, begun_ns: int) -> None:
        """Begin; records without a readable time have that of the record before, the first ones ``begun_ns``."""
        self.tables: tuple[str, ...] = ()
        """Their names in the engine."""
        self.segment = segment
        self.resource: dict[str, str] = {}
        self.rows = self.odd = self.unreadable = 0
        self.last_is_footer = False
        self.times: tuple[int, int] | None = None
        self._table = ""
        self._last_ns = begun_ns
        self._has_small = False
        """The last table takes further rows."""
        self._whole: set[str] = set()
        """Columns of floats in which whole numbers have come."""

    def take(self, cursor: DuckDBPyConnection, lines: Sequence[bytes], offsets: Sequence[int]) -> None:
        """Add the rows of whole lines, given with the offset of each."""
        if not lines:
            return
        self.take_header(lines[0])
        self.last_is_footer = False
        self._insert(cursor, *self._readable(lines, offsets))
        last = _parsed(lines[-1])
        self.last_is_footer = last is not None and last.get("event_name") == "segment.footer" and is_framing(last)

    def take_header(self, line: bytes) -> None:
        """Take what the first line of a segment says of its process, if it is a header."""
        if self.rows or self.resource or b"segment.header" not in line:
            return
        header = _parsed(line) or {}
        found = header.get("resource")
        if header.get("event_name") == "segment.header" and is_framing(header) and isinstance(found, dict):
            self.resource = {key: one for key, one in found.items() if key in RESOURCE and isinstance(one, str)}

    def write(self, cursor: DuckDBPyConnection, path: Path) -> None:
        """Write the rows as a Parquet file."""
        options = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, USE_TMP_FILE false"
        source = f"({' UNION ALL '.join(f'FROM {table}' for table in self.tables)})" if self.tables else _nothing()
        cursor.execute(f"COPY (SELECT * FROM {source}) TO {text(str(path))} ({options}, ROW_GROUP_SIZE {_ROW_GROUP})")

    def drop(self, cursor: DuckDBPyConnection) -> None:
        """Remove the rows from memory."""
        for table in self.tables:
            cursor.execute(f"DROP TABLE {table}")
        self.tables = ()

    def _table_for(self, cursor: DuckDBPyConnection, lines: int) -> str:
        """Return the table for so many rows; to add many to a table takes the engine longer than a new one."""
        is_small = lines < _MANY_LINES
        if not (self._has_small and is_small):
            columns = ", ".join(f"{name(column)} {kind}" for column, kind in ALL.items())
            self.tables = (*self.tables, f"part_{next(_NUMBERS)}")
            cursor.execute(f"CREATE TABLE {self.tables[-1]} ({columns})")
        self._has_small = is_small
        return self.tables[-1]

    def _readable(self, lines: Sequence[bytes], offsets: Sequence[int]) -> tuple[list[str], list[int]]:
        try:
            return [line.decode() for line in lines], list(offsets)
        except UnicodeDecodeError:
            pairs = [(found, offset) for line, offset in zip(lines, offsets, strict=True) if (found := _text(line))]
            self.unreadable += len(lines) - len(pairs)
            return [line for line, _ in pairs], [offset for _, offset in pairs]

    def _insert(self, cursor: DuckDBPyConnection, lines: list[str], offsets: list[int]) -> None:
        if not lines:
            return
        cursor.execute(
            "CREATE OR REPLACE TEMP TABLE raw AS SELECT *, json_valid(line) AS valid FROM "
            '(SELECT unnest($lines::VARCHAR[]) AS line, unnest($offsets::BIGINT[]) AS "offset")',
            {"lines": lines, "offsets": offsets},
        )
        self._table = self._table_for(cursor, len(lines))
        suspects, expected = self._suspects(cursor)
        odd = self._judge(cursor, suspects)
        self._add(cursor, odd, suspects)
        added, *counts = self._counts(cursor, offsets[0])
        if counts != expected:
            # A whole number beyond 64 bits has no value in a column: then Python looks at each line.
            cursor.execute(f'DELETE FROM {self._table} WHERE "offset" >= $begin', {"begin": offsets[0]})
            odd |= {offset for line, offset in zip(lines, offsets, strict=True) if _is_beyond(line)} - suspects
            self._add(cursor, odd, suspects)
        self.rows += added
        self._account(cursor, offsets[0])

    def _suspects(self, cursor: DuckDBPyConnection) -> tuple[set[int], list[int]]:
        """Return the offsets of lines that are odd by keys and types, and how many integers the others have."""
        suspects = {offset for (offset,) in cursor.execute('SELECT "offset" FROM raw WHERE NOT valid').fetchall()}
        present: set[str] = set()
        sql = 'SELECT json_keys(line), list("offset") FROM raw WHERE valid GROUP BY 1'
        for keys, offsets in cursor.execute(sql).fetchall():
            present.update(keys or ())
            if are_odd(keys or ()):
                suspects.update(offsets)
        names = [member for member in TYPES if member in present]
        paths = texts(f'$."{member}"' for member in names)
        sql = f'SELECT json_type(line, {paths}), list("offset") FROM raw WHERE valid GROUP BY 1'
        groups = cursor.execute(sql).fetchall() if names else []
        counts = dict.fromkeys(_INTEGERS, 0)
        for types, offsets in groups:
            found = dict(zip(names, types, strict=True))
            if any(kind not in TYPES[member] for member, kind in found.items()):
                suspects.update(offsets)
                continue
            number = sum(offset not in suspects for offset in offsets) if suspects else len(offsets)
            for column in counts.keys() & found.keys():
                counts[column] += number if found[column] is not None else 0
            self._whole |= {column for column in found.keys() & _DOUBLES if found[column] not in (None, "DOUBLE")}
        return suspects, list(counts.values())

    def _judge(self, cursor: DuckDBPyConnection, suspects: set[int]) -> set[int]:
        """Return which of these lines are records; counts those that are none, which header and footer are not."""
        if not suspects:
            return set()
        odd = set()
        rows = cursor.execute(
            'SELECT "offset", line FROM raw WHERE "offset" IN (SELECT unnest($all::BIGINT[]))',
            {"all": sorted(suspects)},
        ).fetchall()
        for offset, line in rows:
            record = _parsed(line.encode())
            if record is None:
                self.unreadable += 1
            elif not is_framing(record):
                odd.add(offset)
        return odd

    def _counts(self, cursor: DuckDBPyConnection, begin: int) -> Sequence[int]:
        counted = ", ".join(f"count({name(column)}) FILTER (NOT odd)" for column in _INTEGERS)
        sql = f'SELECT count(*), {counted} FROM {self._table} WHERE "offset" >= $begin'
        return cursor.execute(sql, {"begin": begin}).fetchall()[0]

    def _add(self, cursor: DuckDBPyConnection, odd: set[int], suspects: set[int]) -> None:
        values: dict[str, Any] = {"segment": self.segment}
        is_odd, source, kept = "false", "line", "true"
        if suspects:
            values |= {"odd": sorted(odd), "none": sorted(suspects - odd)}
            is_odd = '"offset" IN (SELECT unnest($odd::BIGINT[]))'
            source = "CASE WHEN valid THEN line ELSE '{}' END"
            kept = '"offset" NOT IN (SELECT unnest($none::BIGINT[]))'
        large = " OR ".join(f"coalesce(abs({name(column)}) >= {_EXACT}, false)" for column in self._whole) or "false"
        given = ", ".join(f"{text(self.resource[key]) if key in self.resource else 'NULL'}" for key in RESOURCE)
        columns = ", ".join(map(name, COLUMNS))
        cursor.execute(
            f"""
            INSERT INTO {self._table}
            SELECT $segment, "offset", length,
                odd OR coalesce(moment < 0, true) OR {large},
                CASE WHEN moment >= 0 THEN make_timestamp_ns(moment) END,
                {columns}, {given}
            FROM (
                SELECT *, CASE WHEN regexp_full_match({TIMESTAMP}, {text(_TIME)})
                    THEN epoch_ns(TRY_CAST({TIMESTAMP} AS TIMESTAMP_NS)) END AS moment
                FROM (
                    SELECT "offset", strlen(line) AS length, {is_odd} AS odd,
                        unnest(from_json({source}, {text(_STRUCTURE)}))
                    FROM raw WHERE {kept}
                )
            )
            """,
            values,
        )

    def _account(self, cursor: DuckDBPyConnection, begin: int) -> None:
        if self._lacks_time(cursor, begin):
            self._carry_time(cursor, begin)
        found = cursor.execute(
            f"""
            SELECT count(*) FILTER (odd), min(epoch_ns({TIMESTAMP})), max(epoch_ns({TIMESTAMP})),
                arg_max(epoch_ns({TIMESTAMP}), "offset") FROM {self._table} WHERE "offset" >= $begin
            """,
            {"begin": begin},
        ).fetchall()[0]
        self.odd += found[0]
        if found[1] is not None:
            first, last = self.times or (found[1], found[2])
            self.times = min(first, found[1]), max(last, found[2])
            self._last_ns = found[3]

    def _lacks_time(self, cursor: DuckDBPyConnection, begin: int) -> bool:
        sql = f'SELECT count(*) FROM {self._table} WHERE "offset" >= $begin AND {TIMESTAMP} IS NULL'
        return bool(cursor.execute(sql, {"begin": begin}).fetchall()[0][0])

    def _carry_time(self, cursor: DuckDBPyConnection, begin: int) -> None:
        """Give a record without a readable time that of the record before."""
        cursor.execute(
            f"""
            UPDATE {self._table} SET {TIMESTAMP} = make_timestamp_ns(coalesce(moment, $last)) FROM (
                SELECT "offset" AS place, last_value(epoch_ns({TIMESTAMP}) IGNORE NULLS)
                    OVER (ORDER BY "offset" ROWS UNBOUNDED PRECEDING) AS moment
                FROM {self._table} WHERE "offset" >= $begin
            ) WHERE {TIMESTAMP} IS NULL AND "offset" = place
            """,
            {"begin": begin, "last": self._last_ns},
        )


def _nothing() -> str:
    columns = ", ".join(f"NULL::{kind} AS {name(column)}" for column, kind in ALL.items())
    return f"(SELECT {columns} WHERE false)"


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None


def _text(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _is_beyond(line: str) -> bool:
    record = _parsed(line.encode()) or {}
    return any(isinstance(one := record.get(column), int) and not 0 <= one < 1 << 63 for column in _INTEGERS)
