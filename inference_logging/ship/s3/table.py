"""A segment as a Parquet file: one row for each record, by DuckDB.

The columns are those of `query`, with their types, for every event; what has no column, or a value that its column's
type does not take, is in ``other``, as JSON: nothing of a record is left out. The resource of the segment's header is
in each row. Times have microseconds, so the last three digits of a record's are not there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson

from inference_logging.read.segments.columns import RESOURCE
from inference_logging.read.table.engine import connected, json_lines, name, text
from inference_logging.ship.rows import COLUMNS, OTHER, row
from inference_logging.ship.s3.manifest import Account

_TOGETHER_BYTES: Final = 16 << 20
"""Of rows that a reader skips or takes at once: the writer keeps them in memory, some times over."""
_TOGETHER: Final = (2048, 122_880)
"""Fewest and most rows of that."""
_MEMORY: Final = "1GB"
"""What a segment of few, large records may take; above it, it cannot be delivered."""
_LEAST_BUFFER_BYTES: Final = 1 << 20


class TableError(Exception):
    """A segment of which no Parquet file can be made; the message says why."""


class Table:
    """Writes the file at ``path``. Raises ``MissingExtraError`` without DuckDB."""

    def __init__(self, path: Path) -> None:
        """Begin with no row."""
        self._connection = connected("format=parquet", "query", threads="1", memory_limit=_MEMORY)
        self._path, self._rows = path, path.with_name(f"{path.name}.rows")
        self._file = self._rows.open("wb")
        self._longest, self._count = _LEAST_BUFFER_BYTES, 0

    def add(self, _lines: bytes, records: list[tuple[bytes, dict[str, Any]]]) -> None:
        """Take records."""
        for raw, record in records:
            line = _row(raw, record) + b"\n"
            self._longest, self._count = max(self._longest, len(line)), self._count + 1
            self._file.write(line)

    def close(self, account: Account) -> None:
        """Write the file; the resource is the header's. Raises ``TableError``."""
        import duckdb

        mean_bytes = self._file.tell() // max(1, self._count) + 1
        rows = min(max(_TOGETHER_BYTES // mean_bytes, _TOGETHER[0]), _TOGETHER[1])
        self._file.close()
        declared = account.header.get("resource")
        resource = declared if isinstance(declared, dict) else {}
        kinds = {column: kind for column, kind in COLUMNS.items() if column not in RESOURCE}
        source = json_lines(self._rows, kinds, self._longest)
        values = ", ".join(f"{_value(resource.get(key))}::VARCHAR AS {name(key)}" for key in RESOURCE)
        try:
            self._connection.execute(
                f"COPY (SELECT {', '.join(map(name, kinds))}, {values} FROM {source}) TO {text(str(self._path))} "
                f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {rows})"
            )
        except duckdb.Error as error:
            raise TableError(f"DuckDB cannot write it: {error}") from None
        finally:
            self._connection.close()
            self._rows.unlink()


def _row(raw: bytes, record: dict[str, Any]) -> bytes:
    """Return a record's row as JSON. One that nests deeper than our lines do is wholly in ``other``, as it was read."""
    try:
        return orjson.dumps(row(record))
    except TypeError:
        head = row({name: value for name, value in record.items() if not isinstance(value, dict | list)})
        head.pop(OTHER, None)
        return orjson.dumps({**head, OTHER: orjson.Fragment(raw)})


def _value(value: Any) -> str:
    return text(value) if isinstance(value, str) else "NULL"
