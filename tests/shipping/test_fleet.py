"""A fleet ships to a real object storage through a wire that is slow and breaks, while its shippers are killed.

`make test-fleet` runs it at length (``FLEET_HOSTS``, ``FLEET_RECORDS``, ``FLEET_KILLS``) and prints the table.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from inference_logging.segments import read_records
from tests.command_line import run
from tests.shipping.bucket import CREDENTIALS
from tests.shipping.fleet import Host, Row, table
from tests.shipping.objects import Objects, Wire
from tests.support import wait_until

pytestmark = [pytest.mark.shipping, pytest.mark.kills]
Start = Callable[[Any], Any]

HOSTS: Final = int(os.environ.get("FLEET_HOSTS", "1"))
RECORDS: Final = int(os.environ.get("FLEET_RECORDS", "2500"))
"""Of each host."""
KILLS: Final = int(os.environ.get("FLEET_KILLS", "2"))
"""Of each host's shipper."""
SEED: Final = int(os.environ.get("FLEET_SEED", "23"))
MIB: Final = 1 << 20


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def gateway(start: Start, tmp_path: Path) -> Objects:
    made: Objects = start(Objects(tmp_path / "gateway"))
    return made


def test_what_was_accepted_has_arrived_once_whatever_was_killed(
    gateway: Objects, start: Start, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    choose = random.Random(SEED)
    with Wire(gateway.port, bytes_s=8 * MIB, breaks_after=24 * MIB, seed=SEED) as wire:
        url = f"{gateway.url(wire.port)}&part_bytes={5 * MIB}"
        hosts = [
            start(Host(f"host-{number}", tmp_path, url, rotate_bytes=(8 if number % 2 else 2) * MIB))
            for number in range(HOSTS)
        ]
        writers = [host.write(RECORDS) for host in hosts]
        for number in range(KILLS):
            for host in choose.sample(hosts, len(hosts)):
                # In the middle of an upload, where one is under way.
                wait_until(lambda host=host: host.is_staging() or not host.left(), "an upload")
                host.kill()
            if number == KILLS // 2:
                gateway.kill()
                gateway.start()
        assert [writer.wait(300) for writer in writers] == [0] * HOSTS
        for host in hosts:
            host.wait_until_shipped()
            assert "cannot be delivered" not in host.said()
    done = run("verify", gateway.url(), "--json", "--restore", str(tmp_path / "back"))
    report = json.loads(done.out)
    assert (done.code, report["problems"], report["notes"]) == (0, [], [])
    rows = [_row(host, tmp_path / "back") for host in hosts]
    besides = f"{wire.broken} connections broken, the storage killed {gateway.kills} times, {report['objects']} objects"
    text = f"{table(rows)}\n{besides}"
    request.node.user_properties.append(("shipped", f"to object storage:\n{text}"))
    assert [(row.accepted, row.copies, row.missing) for row in rows] == [(RECORDS, 0, 0)] * HOSTS, text
    assert report["objects"] == report["manifests"]
    assert list(gateway.root.rglob("*.jsonl.zst"))


def _row(host: Host, restored: Path) -> Row:
    arrived: Counter[tuple[int, int]] = Counter()
    for record in read_records(restored):
        if record.get("logger") == "fleet" and record["host"] == host.name:
            arrived[record["pid"], record["n"]] += 1
    copies = arrived.total() - len(arrived)
    return Row(host.name, RECORDS, len(arrived), copies, RECORDS - len(arrived), host.kills)
