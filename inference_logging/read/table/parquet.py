"""A Parquet file with a row for each record, by DuckDB: what `export` writes, and what `ship --to s3://` delivers.

The columns are those of `query`, with their types, and ``other``, which has as JSON what no column takes. Times have
microseconds, so the last three digits of a record's are not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inference_logging.errors import InferenceLoggingError
from inference_logging.read.table.engine import json_lines, write_parquet

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SETTINGS: Final = {"threads": "1", "memory_limit": "1GB"}
"""What a file of few, large records may take; above it, it cannot be written."""
_TOGETHER_BYTES: Final = 16 << 20
"""Rows that a reader skips or takes at once; the writer keeps them in memory, some times over."""
_TOGETHER: Final = (2048, 122_880)
"""Fewest and most rows of that."""
_LEAST_BUFFER_BYTES: Final = 1 << 20


class TableError(InferenceLoggingError):
    """Rows of which no Parquet file can be made; the message says why."""


class ParquetFile:
    """Writes the file at ``path``, and meanwhile its rows beside it."""

    def __init__(self, connection: DuckDBPyConnection, path: Path, columns: Mapping[str, str]) -> None:
        """Begin with no row; ``connection`` has ``SETTINGS``, and is closed with the file."""
        self._connection, self._path, self._columns = connection, path, columns
        self._rows = path.with_name(f"{path.name}.rows")
        self._file = self._rows.open("wb")
        self._longest, self._count = _LEAST_BUFFER_BYTES, 0

    def add(self, row: bytes) -> None:
        """Take a row, as JSON."""
        self._longest, self._count = max(self._longest, len(row) + 1), self._count + 1
        self._file.write(row + b"\n")

    def close(self) -> None:
        """Write the file. Raises ``TableError``."""
        import duckdb

        mean_bytes = self._file.tell() // max(1, self._count) + 1
        self._file.close()
        together = min(max(_TOGETHER_BYTES // mean_bytes, _TOGETHER[0]), _TOGETHER[1])
        try:
            rows = json_lines(self._rows, self._columns, self._longest)
            write_parquet(self._connection, f"FROM {rows}", self._path, together)
        except duckdb.Error as error:
            raise TableError(f"DuckDB cannot write it: {error}") from None
        finally:
            self._connection.close()
            self._rows.unlink()
