"""A SQLite database as a destination: one row per record, each once however often it is sent."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import orjson

from inference_logging.errors import OpenError
from inference_logging.shipping.line import Line, Sent

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    segment TEXT NOT NULL,
    offset INTEGER NOT NULL,
    service_name TEXT NOT NULL,
    timestamp TEXT,
    event_name TEXT,
    severity_text TEXT,
    trace_id TEXT,
    record TEXT NOT NULL,
    resource TEXT,
    PRIMARY KEY (segment, offset)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS records_timestamp ON records (timestamp);
CREATE INDEX IF NOT EXISTS records_trace_id ON records (trace_id);
"""
_COLUMNS = ("timestamp", "event_name", "severity_text", "trace_id")
_INSERT = f"""
INSERT OR IGNORE INTO records (segment, offset, service_name, {", ".join(_COLUMNS)}, record, resource)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class DatabaseDestination:
    """The table ``records`` of a database in WAL mode. Raises ``OpenError`` if it is not available."""

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        """Open it, and create the table if there is none."""
        try:
            # Made here, for its owner alone: SQLite would leave the mode to the umask. Its other files take this one's.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._database = sqlite3.connect(path, timeout=timeout_s)
        except (OSError, sqlite3.Error) as error:
            raise OpenError(f"ship_to='sqlite://{path}': {error}") from error
        try:
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.executescript(_SCHEMA)
            self._add_resource()
        except sqlite3.Error as error:
            self._database.close()
            raise OpenError(f"ship_to='sqlite://{path}': {error}") from error

    def _add_resource(self) -> None:
        """Give a table of an earlier version, which has none, the column of the resource."""
        if "resource" not in {name for _, name, *_ in self._database.execute("PRAGMA table_info(records)")}:
            self._database.execute("ALTER TABLE records ADD COLUMN resource TEXT")

    def send(self, lines: Sequence[Line]) -> Sent:
        """Insert all of them in one transaction; those that are there already stay as they are."""
        # The lines of a segment share one object.
        resources = {id(line.resource): orjson.dumps(line.resource).decode() for line in lines}
        rows = (
            (
                line.segment,
                line.offset,
                line.service_name,
                *(line.record.get(name) for name in _COLUMNS),
                line.raw.decode(errors="replace"),
                resources[id(line.resource)],
            )
            for line in lines
        )
        try:
            with self._database:
                self._database.executemany(_INSERT, rows)
        except sqlite3.Error as error:
            return Sent(lines, str(error), error.sqlite_errorname if hasattr(error, "sqlite_errorname") else "sqlite")
        return Sent()

    def close(self) -> None:
        """Close the database."""
        self._database.close()
