"""`inference-logging ship` to a real rsyslog by TCP and TLS, and a real rsyslog that reads segments; all are killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference_logging.ship.line import Destination
from tests.shipping.arrived import Record, compare
from tests.shipping.messages import AWKWARD, LONG
from tests.shipping.rsyslog import Message, RelpServer, Rsyslog, SegmentReader
from tests.shipping.shippers import QUICK, Ship
from tests.shipping.stage import Stage
from tests.support import parse, wait_until

pytestmark = pytest.mark.shipping
Start = Callable[[Any], Any]
Open = Callable[..., Destination]
BATCH = int(QUICK["ship_batch_records"])


def assert_is_the_record(message: Message, service_name: str) -> None:
    """Check that the header and the structured data say what the record says."""
    record = parse(message.record.encode())
    assert (message.app_name, message.procid) == (service_name, str(record["pid"]))
    assert message.msgid == record["event_name"][:32]
    assert message.timestamp == f"{record['timestamp'][:26]}Z"
    assert f'boot_id="{record["boot_id"]}" pid="{record["pid"]}"' in message.structured
    assert f'service.name="{service_name}"' in message.structured
    if "trace_id" in record:
        assert f'trace_id="{record["trace_id"]}"' in message.structured


@pytest.mark.parametrize("name", ["tcp", "gnutls", "openssl"])
def test_by_syslog_a_killed_shipper_loses_nothing_and_a_killed_server_what_it_was_about_to_store(
    stage: Callable[..., Stage], start: Start, tmp_path: Path, name: str
) -> None:
    rsyslog: Rsyslog = start(Rsyslog(tmp_path / "rsyslog"))
    staged = stage()
    ship: Ship = start(Ship(staged.config, rsyslog.url(name), ship_ca_file=rsyslog.certificate))
    written = staged.ship_under_kills(ship, rsyslog, rounds=1)
    messages = rsyslog.messages()
    arrived = [parse(message.record.encode()) for message in messages]
    most_lost = BATCH * rsyslog.kills
    staged.show(f"rsyslog by syslog, {name}", written, arrived, rsyslog, ship, most_lost=most_lost)
    for message in messages:
        assert_is_the_record(message, staged.config.service_name)
    segments, marked = staged.marks("syslog")
    assert segments == marked


@pytest.mark.parametrize("name", ["tcp", "gnutls", "openssl"])
def test_awkward_texts_arrive_as_they_are_and_one_that_is_too_long_is_refused(
    start: Start, opened: Open, tmp_path: Path, name: str
) -> None:
    rsyslog: Rsyslog = start(Rsyslog(tmp_path / "rsyslog", max_bytes=400_000))
    destination = opened(ship_to=rsyslog.url(name), ship_ca_file=rsyslog.certificate)
    sent = destination.send([*AWKWARD, LONG, *AWKWARD])
    assert (list(sent.failed), sent.error) == ([], "")
    assert sent.refused == {"longer_than_400000_bytes": 1}
    destination.close()
    rsyslog.stop()
    messages = rsyslog.messages()
    assert [message.record.encode() for message in messages] == [line.raw for line in AWKWARD] * 2
    assert max(len(message.record) for message in messages) > 300 << 10


def test_what_is_longer_than_the_server_takes_it_cuts_so_the_shipper_has_to_know(
    start: Start, opened: Open, tmp_path: Path
) -> None:
    rsyslog: Rsyslog = start(Rsyslog(tmp_path / "rsyslog", max_bytes=8192))
    assert not opened(ship_to=f"{rsyslog.url('tcp')}0000").send([LONG]).failed, "as if it took so much"
    assert opened(ship_to=rsyslog.url("tcp")).send([LONG]).refused == {"longer_than_8192_bytes": 1}
    rsyslog.stop()
    assert 0 < max(map(len, rsyslog.lines())) < 2 * 8192


@pytest.mark.parametrize("name", ["gnutls", "openssl"])
def test_a_server_of_another_name_gets_nothing(start: Start, opened: Open, tmp_path: Path, name: str) -> None:
    rsyslog: Rsyslog = start(Rsyslog(tmp_path / "rsyslog"))
    url = rsyslog.url(name).replace("localhost", "127.0.0.2")
    sent = opened(ship_to=url, ship_ca_file=rsyslog.certificate).send(AWKWARD)
    assert list(sent.failed) == AWKWARD
    assert sent.error_type == "SSLCertVerificationError"
    assert "certificate is not valid for '127.0.0.2'" in sent.error
    other = opened(ship_to=rsyslog.url(name)).send(AWKWARD)
    assert "self-signed certificate" in other.error
    assert rsyslog.messages() == []


def test_by_relp_each_record_of_the_segments_arrives_though_the_server_is_killed(
    stage: Callable[..., Stage], start: Start, tmp_path: Path
) -> None:
    server: RelpServer = start(RelpServer(tmp_path / "server"))
    staged = stage()
    reader: SegmentReader = start(SegmentReader(tmp_path / "reader", staged.config.directory, server))
    with staged.load() as load:
        wait_until(lambda: len(server.records()) >= 100, "records to arrive")
        server.kill()
        load.wait_for(50)
        server.start()
        reader.stop()
        load.wait_for(50)
        reader.start()
    written = staged.end()

    def look() -> list[Record] | None:
        found = server.records()
        return None if compare(written, found).missing else found

    staged.show("segments by rsyslog's RELP", written, wait_until(look, "every record"), server)
