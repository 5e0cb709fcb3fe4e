"""Audit records in an SQLite database: WAL mode, an fsync with every commit, each record once."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

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


class SqliteWriter:
    """The writer of a listener: called with whole lines, it returns once all of them are committed.

    A record that is there already is passed over: a listener that died between the commit and the release of its
    records leaves them to the next one. Raises ``sqlite3.Error`` or ``OSError``, and then nothing is committed.
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
            # What a failed commit has left is for SQLite to find out when it opens the database anew.
            self._close()
            raise

    def _insert(self, connection: sqlite3.Connection, lines: bytes) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            last = cursor.execute(_LAST).fetchone()
            chain = LineChain(self._chain, self._key, last[0].encode() if last else None) if self._chain else None
            for line in lines.splitlines():
                record = orjson.loads(line)
                text = chain.next(line) if chain is not None else line
                keys = (record.get("boot_id"), record.get("seq"), record["timestamp"], record["event_name"])
                cursor.execute(_INSERT, (*keys, text.decode()))
                if chain is not None and cursor.rowcount == 1:
                    chain.keep()
            cursor.execute("COMMIT")

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


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


def broken_line(path: Path, chain: str, key: bytes | None = None) -> int | None:
    """Return the rowid of the first record of a database that does not fit its chain; None: all do."""
    expected = LineChain(chain, key, None)
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        for rowid, line in connection.execute("SELECT rowid, line FROM records ORDER BY rowid"):
            if not expected.check(line.encode()):
                return int(rowid)
    return None
