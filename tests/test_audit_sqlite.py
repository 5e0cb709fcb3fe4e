"""Audit records in SQLite: each once, in one chain, all of a batch or none."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Logger
from inference_logging._native import LineChain
from inference_logging.record.audit_sqlite import SqliteWriter, blocks_of_lines
from tests.audited import Open, problems


def rows(directory: Path) -> list[tuple[Any, ...]]:
    """Return boot id, sequence and line of each row, in their order."""
    with closing(sqlite3.connect(directory / "logs/audit/t-audit.sqlite")) as connection:
        return connection.execute("SELECT boot_id, seq, line FROM records ORDER BY rowid").fetchall()


def test_sqlite_holds_each_record_once_in_a_chain(open_: Open, tmp_path: Path) -> None:
    def decisions() -> list[tuple[Any, ...]]:
        return [row for row in rows(tmp_path) if row[1] is not None]

    async def main(logger: Logger) -> None:
        await asyncio.gather(*(logger.audit("decision", number=number) for number in range(50)))
        assert len(decisions()) % 50 == 0, "awaited is committed"

    for _ in range(2):
        logger = open_(audit_sink="sqlite")
        asyncio.run(main(logger))
        logger.close()
    found = decisions()
    assert [row[1] for row in found] == [*range(50), *range(50)]
    assert len(rows(tmp_path)) == 2 * 51, "and the end of each process"
    assert [json.loads(row[2])["number"] for row in found] == [*range(50), *range(50)]
    path = tmp_path / "logs/audit/t-audit.sqlite"
    assert path.stat().st_mode & 0o777 == 0o600
    assert problems(tmp_path) == []


def test_a_batch_that_sqlite_has_already_is_passed_over_and_the_chain_goes_on(tmp_path: Path) -> None:
    def line(boot_id: str, seq: int) -> bytes:
        return json.dumps({"timestamp": "t", "event_name": "e", "boot_id": boot_id, "seq": seq}).encode() + b"\n"

    path = tmp_path / "logs/audit/t-audit.sqlite"
    batch = line("a", 0) + line("b", 0) + line("a", 1)
    first = SqliteWriter(path, "sha256", None)
    first(batch)
    first(None)
    successor = SqliteWriter(path, "sha256", None)
    successor(batch + line("a", 2))
    successor(None)
    assert [row[:2] for row in rows(tmp_path)] == [("a", 0), ("b", 0), ("a", 1), ("a", 2)]
    chain = LineChain("sha256", None, None)
    assert all(chain.check(row[2].encode()) for row in rows(tmp_path))


def test_what_a_listener_reported_before_it_died_is_not_reported_again_by_the_next_one(tmp_path: Path) -> None:
    def dropped(new: int, in_all: int) -> bytes:
        reasons = {"queue_full": {"INFO": in_all - 1, "WARN": 1}}
        return line("log.dropped", dropped=new, reasons=reasons)

    def line(event: str, **fields: Any) -> bytes:
        return json.dumps({"timestamp": "t", "event_name": event, "boot_id": "a", **fields}).encode() + b"\n"

    path = tmp_path / "logs/audit/t-audit.sqlite"
    first = SqliteWriter(path, None, None)
    first(dropped(3, 3))
    first(None)
    successor = SqliteWriter(path, None, None)
    for lines in (dropped(3, 3), dropped(5, 5), dropped(2, 7), line("process.ended"), line("process.ended")):
        successor(lines)
    successor(None)
    reported = [json.loads(row[2]) for row in rows(tmp_path)]
    assert [one.get("dropped") for one in reported] == [3, 2, 2, None]


def test_a_chain_can_begin_in_a_database_that_had_none_and_change_how_it_is_computed(
    open_: Open, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("0f" * 32)
    keyed: dict[str, Any] = {"audit_chain_key_file": tmp_path / "key"}
    for parameters in ({"audit_chain": "off"}, {}, {"audit_chain": "sha256"}, keyed):
        logger = open_(audit_sink="sqlite", **parameters)
        assert asyncio.run(logger.audit("decision", number=1))
        logger.close()
        keys = ("--chain-key-file", str(tmp_path / "key")) if parameters is keyed else ()
        assert problems(tmp_path, *keys) == []


def test_a_copy_where_nothing_can_be_written_is_read_all_the_same(open_: Open, tmp_path: Path) -> None:
    logger = open_(audit_sink="sqlite")
    assert asyncio.run(logger.audit("decision", number=1))
    logger.close()
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(shutil.copy(tmp_path / "logs/audit/t-audit.sqlite", directory))
        copy.chmod(0o444)
        Path(directory).chmod(0o555)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if os.getuid() == 0:
                    os.setuid(65534)  # root may write everywhere
                status = 0 if b'"number":1' in b"".join(blocks_of_lines(copy)) else 1
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        Path(directory).chmod(0o755)


def test_an_sqlite_transaction_that_fails_leaves_nothing_and_the_next_one_works(tmp_path: Path) -> None:
    path = tmp_path / "logs/audit/t-audit.sqlite"
    writer = SqliteWriter(path, None, None)
    good = b'{"timestamp":"t","event_name":"e","boot_id":"a","seq":0}\n'
    with pytest.raises(ValueError, match="invalid literal"):
        writer(good + b"no JSON\n")
    assert rows(tmp_path) == []
    writer(good)
    writer(None)
    assert len(rows(tmp_path)) == 1
