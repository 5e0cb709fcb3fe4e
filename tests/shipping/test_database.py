"""`inference-logging ship` to SQLite: each record once, whichever process is killed on the way."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.shipping.shippers import Ship
from tests.shipping.stage import Stage
from tests.support import parse

pytestmark = pytest.mark.shipping


def test_each_record_arrives_exactly_once_though_shipper_and_listener_are_killed(
    stage: Callable[..., Stage], start: Callable[[Any], Any], tmp_path: Path
) -> None:
    staged = stage(compress="zstd")
    ship: Ship = start(Ship(staged.config, f"sqlite://{tmp_path}/records.db", ship_batch_records=20))
    offsets = staged.config.directory / ".sqlite.offsets"
    with staged.load() as load:
        for number in range(10):
            ship.wait_until_shipped(40)
            saved = offsets.read_bytes()
            ship.wait_until_shipped(60)
            ship.kill()
            if number % 2 == 0:
                # As if it had been killed after it sent and before it saved.
                offsets.write_bytes(saved)
            ship.start()
            if number % 3 == 0:
                staged.kill_listener()
                load.wait_for(20)
    written = staged.end()
    assert ship.stop() == 0, ship.lines
    with closing(sqlite3.connect(tmp_path / "records.db")) as database:
        rows = database.execute("SELECT record, segment, timestamp, trace_id FROM records").fetchall()
    records = [parse(row[0].encode()) for row in rows]
    assert staged.show("SQLite", written, records, ship) == 0
    segments, marked = staged.marks("sqlite")
    assert {row[1] for row in rows} <= segments
    assert segments == marked
    for row, record in zip(rows, records, strict=True):
        assert row[2:] == (record["timestamp"], record.get("trace_id"))
