"""A Parquet file with one row per request: the columns of `query`, the arrival, and with ``--text`` what was said."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import IO, Final

import orjson

from inference_logging.read.export.formats import Options
from inference_logging.read.export.requests import LeftOut, Request
from inference_logging.read.export.spool import Row
from inference_logging.read.segments.columns import HEAD, REQUESTS, RESOURCE
from inference_logging.read.table.engine import connected, json_lines, text

_TEXTS: Final = {
    "gen_ai.system_instructions": "JSON", "gen_ai.input.messages": "JSON", "gen_ai.output.messages": "JSON",
    "http.request.body": "VARCHAR",
}  # fmt: skip
_LARGEST_LINE_BYTES: Final = 64 << 20
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Writer:
    """Writes the table, by DuckDB."""

    def __init__(self, options: Options) -> None:
        """Take whether texts are wanted. Raises ``MissingExtraError`` without DuckDB."""
        self._connection = connected("export --format parquet", "query")
        columns = {name: kind for name, kind in {**HEAD, **REQUESTS, **RESOURCE}.items() if name not in _TEXTS}
        self._columns = {"arrival": "TIMESTAMP", **columns, **(_TEXTS if options.with_text else {})}

    def row(self, request: Request) -> bytes | LeftOut:
        """Return the fields that are columns."""
        arrival = (_EPOCH + timedelta(microseconds=request.arrival_nano // 1000)).strftime("%Y-%m-%d %H:%M:%S.%f")
        fields = {name: request.record[name] for name in self._columns if name in request.record}
        return orjson.dumps({"arrival": arrival, **fields})

    def write(self, rows: Iterable[Row], file: IO[bytes]) -> None:
        """Write the file."""
        # DuckDB reads and writes files by their names.
        with tempfile.NamedTemporaryFile() as lines, tempfile.NamedTemporaryFile() as table:
            for row in rows:
                lines.write(row.content + b"\n")
            lines.flush()
            source = json_lines(Path(lines.name), self._columns, _LARGEST_LINE_BYTES)
            # Rows stand by arrival, so that a reader can skip row groups outside of its times.
            self._connection.execute(f"COPY (FROM {source}) TO {text(table.name)} (FORMAT parquet, COMPRESSION zstd)")
            self._connection.close()
            with open(table.name, "rb") as written:  # noqa: PTH123 - DuckDB may have put another file there
                shutil.copyfileobj(written, file)
