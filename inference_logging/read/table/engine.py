"""DuckDB as this package uses it: in memory, without downloads and settings from outside, with little memory.

Parquet files with a row for each record are what `export` writes, and what `ship --to s3://` delivers. Their columns
are those of `query`, with their types, and ``other``, which has as JSON what no column takes. Times have microseconds,
so the last three digits of a record's are not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inference_logging.errors import InferenceLoggingError, MissingExtraError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

BOUNDED: Final = {
    "threads": "2", "memory_limit": "1GB", "temp_directory": "", "enable_external_file_cache": "false",
}  # fmt: skip
"""Settings with which a question takes little memory, however much it reads."""


def connected(purpose: str = "view", extra: str | None = None, **settings: str) -> DuckDBPyConnection:
    """Open a database in memory that downloads nothing, has times in UTC, and writes no progress among the rows.

    Raises ``MissingExtraError`` naming ``purpose`` and ``extra``; without one the purpose is its name.
    """
    try:
        import duckdb
    except ImportError:
        raise MissingExtraError(purpose, "duckdb", extra or purpose) from None
    connection = duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false", **settings})
    connection.execute("SET TimeZone = 'UTC'")
    # In an interactive Python it goes to the standard output after two seconds.
    connection.execute("SET enable_progress_bar = false")
    return connection


def restrict(connection: DuckDBPyConnection, paths: Iterable[str]) -> None:
    """Let statements open these files and nothing else from now on."""
    connection.execute(f"SET allowed_paths = {texts(paths)}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def name(text: str) -> str:
    """Return a name as SQL has it."""
    return '"' + text.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return a text as SQL has it; it must not have NUL."""
    return "'" + value.replace("'", "''") + "'"


def texts(values: Iterable[str]) -> str:
    """Return a list of texts as SQL has it."""
    return f"[{', '.join(map(text, values))}]"


def write_parquet(connection: DuckDBPyConnection, source: str, path: Path, together: int, level: int = 3) -> None:
    """Write rows, given as SQL, as a Parquet file; ``together`` are in a row group."""
    options = f"FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL {level}, ROW_GROUP_SIZE {together}"
    connection.execute(f"COPY ({source}) TO {text(str(path))} ({options}, USE_TMP_FILE false)")


def json_lines(path: Path, columns: Mapping[str, str], longest: int) -> str:
    """Return a file of JSON lines, of so many bytes at most, as SQL: a relation with these columns of these types."""
    types = ", ".join(f"{text(column)}: {text(kind)}" for column, kind in columns.items())
    options = f"format = 'newline_delimited', maximum_object_size = {longest}, columns = {{{types}}}"
    return f"read_json({text(str(path))}, {options})"


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
