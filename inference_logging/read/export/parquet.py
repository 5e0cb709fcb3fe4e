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
from inference_logging.read.segments.columns import OTHER, RESOURCE, TABLES, row
from inference_logging.read.table.engine import SETTINGS, ParquetFile, connected

_TEXTS: Final = {
    "gen_ai.system_instructions": "JSON", "gen_ai.input.messages": "JSON", "gen_ai.output.messages": "JSON",
    "http.request.body": "VARCHAR",
}  # fmt: skip
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Writer:
    """Writes the table, by DuckDB."""

    def __init__(self, options: Options) -> None:
        """Take whether texts are wanted. Raises ``MissingExtraError`` without DuckDB."""
        self._connection = connected("export --format parquet", "query", **SETTINGS)
        columns = {name: kind for name, kind in {**TABLES["requests"], **RESOURCE}.items() if name not in _TEXTS}
        self._columns = {**columns, **(_TEXTS if options.with_text else {})}

    def row(self, request: Request) -> bytes | LeftOut:
        """Return the fields that are columns."""
        arrival = (_EPOCH + timedelta(microseconds=request.arrival_nano // 1000)).strftime("%Y-%m-%d %H:%M:%S.%f")
        fields = {name: request.record[name] for name in self._columns if name in request.record}
        return orjson.dumps({"arrival": arrival, **row(fields, self._columns)})

    def write(self, rows: Iterable[Row], file: IO[bytes]) -> None:
        """Write the file, by arrival, so that a reader can skip row groups outside of its times."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "table")
            table = ParquetFile(self._connection, path, {"arrival": "TIMESTAMP", **self._columns, OTHER: "JSON"})
            for one in rows:
                table.add(one.content)
            table.close()
            with path.open("rb") as written:
                shutil.copyfileobj(written, file)
