"""A segment as a Parquet file: one row for each record, by DuckDB.

The columns are those of `query`, with their types, for every event; what has no column, or a value that its column's
type does not take, is in ``other``, as JSON: nothing of a record is left out. The resource of the segment's header is
in each row. Times have microseconds, so the last three digits of a record's are not there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from inference_logging.errors import MissingExtraError
from inference_logging.segments.columns import HEAD, LOGS, REQUESTS, RESOURCE
from inference_logging.shipping.s3.manifest import Account

OTHER: Final = "other"
COLUMNS: Final[Mapping[str, str]] = {**HEAD, **LOGS, **REQUESTS, **RESOURCE, OTHER: "JSON"}
_TOGETHER_BYTES: Final = 16 << 20
"""Of rows that a reader skips or takes at once: the writer keeps them in memory, some times over."""
_TOGETHER: Final = (2048, 122_880)
"""Fewest and most rows of that."""
_MEMORY: Final = "1GB"
"""What a segment of few, large records may take; above it, it cannot be delivered."""
_LEAST_BUFFER_BYTES: Final = 1 << 20
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z", re.ASCII)


class TableError(Exception):
    """A segment of which no Parquet file can be made; the message says why."""


class Table:
    """Writes the file at ``path``. Raises ``MissingExtraError`` without DuckDB."""

    def __init__(self, path: Path) -> None:
        """Begin with no row."""
        try:
            import duckdb
        except ImportError:
            raise MissingExtraError("format=parquet", "duckdb", "query") from None
        self._connect, self._error = duckdb.connect, duckdb.Error
        self._path, self._rows = path, path.with_name(f"{path.name}.rows")
        self._file = self._rows.open("wb")
        self._longest, self._count = _LEAST_BUFFER_BYTES, 0

    def add(self, _lines: bytes, records: list[dict[str, Any]]) -> None:
        """Take records."""
        for record in records:
            line = orjson.dumps(row(record)) + b"\n"
            self._longest, self._count = max(self._longest, len(line)), self._count + 1
            self._file.write(line)

    def close(self, account: Account) -> None:
        """Write the file; the resource is the header's. Raises ``TableError``."""
        mean_bytes = self._file.tell() // max(1, self._count) + 1
        rows = min(max(_TOGETHER_BYTES // mean_bytes, _TOGETHER[0]), _TOGETHER[1])
        self._file.close()
        declared = account.header.get("resource")
        resource = declared if isinstance(declared, dict) else {}
        types = ", ".join(f"{_text(name)}: {_text(kind)}" for name, kind in COLUMNS.items() if name not in RESOURCE)
        source = (
            f"read_json({_text(str(self._rows))}, format = 'newline_delimited', "
            f"maximum_object_size = {self._longest}, columns = {{{types}}})"
        )
        values = ", ".join(f"{_value(resource.get(name))}::VARCHAR AS {_name(name)}" for name in RESOURCE)
        own = ", ".join(_name(name) for name in COLUMNS if name not in RESOURCE)
        connection = self._connect(
            ":memory:", config={"autoinstall_known_extensions": "false", "threads": "1", "memory_limit": _MEMORY}
        )
        try:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET enable_progress_bar = false")
            connection.execute(
                f"COPY (SELECT {own}, {values} FROM {source}) TO {_text(str(self._path))} "
                f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {rows})"
            )
        except self._error as error:
            raise TableError(f"DuckDB cannot write it: {error}") from None
        finally:
            connection.close()
            self._rows.unlink()


def row(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record as a row: values that fit their column, and the others below ``other``."""
    fitting: dict[str, Any] = {}
    other: dict[str, Any] = {}
    for name, value in record.items():
        kind = None if name in RESOURCE or name == OTHER else COLUMNS.get(name)
        (fitting if kind is not None and _FITS[kind](value) else other)[name] = value
    return {**fitting, **({OTHER: other} if other else {})}


def _is_whole(first: int, end: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and first <= value < end


def _are(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


_IS_BIGINT: Final = _is_whole(-(1 << 63), 1 << 63)
_FITS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "BIGINT": _IS_BIGINT,
    "BIGINT[]": _are(_IS_BIGINT),
    "UBIGINT": _is_whole(0, 1 << 64),
    "DOUBLE": _is_number,
    "BOOLEAN": lambda value: isinstance(value, bool),
    "VARCHAR": _is_text,
    "VARCHAR[]": _are(_is_text),
    "TIMESTAMP": lambda value: isinstance(value, str) and _TIMESTAMP.fullmatch(value) is not None,
    "JSON": lambda _: True,
}


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _value(value: Any) -> str:
    return _text(value) if isinstance(value, str) else "NULL"
