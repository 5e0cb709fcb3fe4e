"""Audit records in an SQLite database: WAL mode, an fsync with every commit, each record once."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from inference_logging._native import LineChain

# The rowid is the order of the chain. Lines that the listener adds itself (log.dropped) have no sequence.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    boot_id TEXT, seq INTEGER, timestamp TEXT NOT NULL, event_name TEXT NOT NULL, line TEXT NOT NULL,
    PRIMARY KEY (boot_id, seq)
)
"""
_INSERT = "INSERT OR IGNORE INTO records (boot_id, seq, timestamp, event_name, line) VALUES (?, ?, ?, ?, ?)"
_LAST = "SELECT line FROM records ORDER BY rowid DESC LIMIT 1"
_MEMBER = ',"chain":"'
_LAST_CHAINED = f"SELECT line FROM records WHERE instr(line, '{_MEMBER}') ORDER BY rowid DESC LIMIT 1"
_REPORTED = "SELECT line FROM records WHERE boot_id = ? AND seq IS NULL AND event_name = ?"
_BLOCK_ROWS = 1000


class SqliteWriter:
    """The writer of a listener: called with whole lines, it returns once all of them are committed.

    A record that is there already is skipped: a listener that died between the commit and the release of its records
    leaves them to the next one. Raises ``sqlite3.Error`` or ``OSError``, and then nothing is committed.
    """

    def __init__(self, path: Path, chain: str | None, key: bytes | None) -> None:
        self._path, self._chain, self._key = path, chain, key
        self._connection: sqlite3.Connection | None = None
        self._pid = os.getpid()
        self._abandoned: list[sqlite3.Connection] = []

    def __call__(self, lines: bytes | None) -> None:
        """Commit ``lines``; None: close the database."""
        if self._pid != os.getpid():
            # After a fork the connection is the parent's, and even closing it would harm.
            self._abandoned += [self._connection] if self._connection is not None else []
            self._connection, self._pid = None, os.getpid()
        if lines is None:
            self._close()
            return
        try:
            if self._connection is None:
                self._connection = _open(self._path)
            self._insert(self._connection, lines)
        except BaseException:
            # SQLite finds the remains of a failed commit when it opens the database again.
            self._close()
            raise

    def _insert(self, connection: sqlite3.Connection, lines: bytes) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            chain = self._end_of_chain(cursor)
            for line in lines.splitlines():
                record = orjson.loads(line)
                missing = line if "seq" in record else _missing(cursor, record, line)
                if missing is None:
                    continue
                text = chain.next(missing) if chain is not None else missing
                cursor.execute(_INSERT, (*_columns(record), text.decode()))
                if chain is not None and cursor.rowcount == 1:
                    chain.keep()
            cursor.execute("COMMIT")

    def _end_of_chain(self, cursor: sqlite3.Cursor) -> LineChain | None:
        if self._chain is None:
            return None
        last = cursor.execute(_LAST).fetchone()
        if last is not None and _MEMBER not in last[0]:
            # Lines from the time before there was a chain.
            last = cursor.execute(_LAST_CHAINED).fetchone()
        return LineChain(self._chain, self._key, last[0].encode() if last is not None else None)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _missing(cursor: sqlite3.Cursor, record: dict[str, Any], line: bytes) -> bytes | None:
    """Return the part of a listener's own line that is not in the database yet.

    A listener that died after its commit leaves it to the next one to report its processes' drops and ends again.
    """
    event = record["event_name"]
    reported = [orjson.loads(line) for (line,) in cursor.execute(_REPORTED, (record.get("boot_id"), event))]
    if not reported or event not in ("log.dropped", "process.ended"):
        return line
    if event == "process.ended":
        return None
    counted = sum(count for levels in record["reasons"].values() for count in levels.values())
    left = counted - sum(line["dropped"] for line in reported)
    if left <= 0:
        return None
    return line if left == record["dropped"] else orjson.dumps({**record, "dropped": left})


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    # The sink's thread calls, and after a panic another one does; transactions are begun and ended here.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(_SCHEMA)
        for directory in (path.parent, path.parent.parent):
            _sync(directory)
    except BaseException:
        connection.close()
        raise
    return connection


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def blocks_of_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a database in the order of their chain, some at a time.

    Raises ``sqlite3.Error``, or ValueError for a row whose columns are not what its line says.
    """
    with closing(_open_to_read(path)) as connection:
        rows = connection.execute("SELECT rowid, boot_id, seq, timestamp, event_name, line FROM records ORDER BY rowid")
        while block := rows.fetchmany(_BLOCK_ROWS):
            for rowid, *columns, line in block:
                if columns != list(_columns(orjson.loads(line))):
                    raise ValueError(f"row {rowid}: its columns are not what its line says")
            yield "".join(f"{row[-1]}\n" for row in block).encode()


def _open_to_read(path: Path) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True)
    try:
        connection.execute("SELECT 1 FROM records LIMIT 1")
    except sqlite3.Error as error:
        connection.close()
        if not isinstance(error, sqlite3.OperationalError) or path.with_name(f"{path.name}-wal").exists():
            raise
        # A copy in a place without write access, even for the files beside it that WAL mode requires of readers.
        return sqlite3.connect(f"{uri}&immutable=1", uri=True)
    return connection


def _columns(record: dict[str, Any]) -> tuple[Any, ...]:
    return record.get("boot_id"), record.get("seq"), record["timestamp"], record["event_name"]
