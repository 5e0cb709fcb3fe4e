"""`inference-logging ship` to a real journald, which is killed on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_logging.ship.journal.fields import RECORD, stable_id
from inference_logging.ship.line import Destination
from tests.shipping.journals import Journald, text
from tests.shipping.messages import AWKWARD, LONG
from tests.shipping.shippers import Ship
from tests.shipping.stage import Stage
from tests.support import parse, wait_until

pytestmark = pytest.mark.shipping
Start = Callable[[Any], Any]
Open = Callable[..., Destination]
Entry = dict[str, Any]


@pytest.fixture
def journald(start: Start, tmp_path: Path) -> Iterator[Journald]:
    """Run a journald; what it makes is removed after the test."""
    made = Journald(tmp_path / "journald")
    try:
        yield start(made)
    finally:
        made.end()
        made.remove()


def records(entries: list[Entry]) -> list[Any]:
    """Return the records that entries have."""
    return [parse(text(entry[RECORD]).encode()) for entry in entries]


def assert_has_its_fields(entry: Entry, record: Any, service_name: str) -> None:
    """Check that an entry can be found by what the record says."""
    assert entry["SYSLOG_IDENTIFIER"] == service_name
    assert entry["MESSAGE"] == record.get("message", record["event_name"])
    assert entry["MESSAGE_ID"] == stable_id(record["event_name"])
    assert entry["PRIORITY"] == {"INFO": "6", "WARN": "4", "ERROR": "3"}[record["severity_text"]]
    for name in ("boot_id", "pid", "seq", "trace_id", "request_id", "http.route", "duration_s"):
        if name in record:
            assert entry[f"INFERENCE_LOGGING_{name.upper().replace('.', '_')}"] == str(record[name])


def test_a_killed_journald_loses_at_most_the_entry_that_it_was_about_to_store(
    stage: Callable[..., Stage], start: Start, journald: Journald
) -> None:
    staged = stage()
    ship: Ship = start(Ship(staged.config, journald.url))
    written = staged.ship_under_kills(ship, journald, rounds=1)
    journald.stop()
    entries = journald.entries()
    staged.show("journald", written, records(entries), journald, ship, most_lost=journald.kills)
    for entry, record in zip(entries, records(entries), strict=True):
        assert_has_its_fields(entry, record, staged.config.service_name)
    segments, marked = staged.marks("journald")
    assert segments == marked


def test_awkward_texts_arrive_at_journald_as_they_are(opened: Open, journald: Journald) -> None:
    assert not opened(ship_to=journald.url).send([*AWKWARD, LONG]).failed
    expected = {line.raw.decode() for line in (*AWKWARD, LONG)}
    wait_until(lambda: {text(entry[RECORD]) for entry in journald.entries()} == expected, "journald to store them")


def test_nothing_counts_as_arrived_while_journald_does_not_read_or_is_gone(opened: Open, journald: Journald) -> None:
    destination = opened(ship_to=journald.url, ship_timeout_s=0.3)
    assert not destination.send(AWKWARD).failed
    journald.pause()
    sent = destination.send(AWKWARD[:1])
    assert (sent.failed, sent.error_type) == (AWKWARD[:1], "TimeoutError")
    journald.kill()
    sent = destination.send(AWKWARD[:1])
    assert (sent.failed, sent.error_type) == (AWKWARD[:1], "ConnectionRefusedError")
    journald.start()
    assert not destination.send(AWKWARD[:1]).failed
