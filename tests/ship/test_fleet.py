"""A fleet ships to a real object storage through a wire that is slow and breaks, while its shippers are killed.

Others ship to ClickHouse's engine and to OpenSearch.

`make test-fleet` runs it at length (``FLEET_HOSTS``, ``FLEET_RECORDS``, ``FLEET_KILLS``) and prints the table.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from inference_logging.segments import read_records, segments
from inference_logging.ship.clickhouse_schema import statements
from inference_logging.ship.s3.place import Place, object_key
from inference_logging.ship.s3.store import ExistsError, Store
from tests.kit.command_line import run
from tests.kit.support import wait_until
from tests.ship.bucket import CREDENTIALS
from tests.ship.clickhouse import ClickHouse
from tests.ship.fleet import Host, Row, table
from tests.ship.lossy import LossyWire
from tests.ship.objects import Objects, Wire
from tests.ship.opensearch import OpenSearch

pytestmark = [pytest.mark.shipping, pytest.mark.kills]
Start = Callable[[Any], Any]

HOSTS: Final = int(os.environ.get("FLEET_HOSTS", "1"))
RECORDS: Final = int(os.environ.get("FLEET_RECORDS", "6000"))
"""Of each host."""
KILLS: Final = int(os.environ.get("FLEET_KILLS", "2"))
"""Of each host's shipper."""
SEED: Final = int(os.environ.get("FLEET_SEED", "23"))
MIB: Final = 1 << 20
LARGE: Final = 5 * MIB
"""Objects go in parts of so many bytes."""


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def test_what_was_accepted_has_arrived_once_whatever_was_killed(
    start: Start, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    gateway: Objects = start(Objects(tmp_path / "gateway"))
    choose = random.Random(SEED)
    with Wire(gateway.port, bytes_s=8 * MIB, breaks_after=8 * MIB, seed=SEED) as wire:
        url = f"{gateway.url(wire.port)}&part_bytes={LARGE}"
        # Objects of several parts, and on each third host small ones.
        sizes = [(2 if number % 3 == 2 else 9) * MIB for number in range(HOSTS)]
        hosts = [
            start(Host(f"host-{number}", tmp_path, url, rotate_bytes=size)) for number, size in enumerate(sizes, 1)
        ]
        writers = [host.write(RECORDS) for host in hosts]
        for number in range(KILLS):
            for host in choose.sample(hosts, len(hosts)):
                _kill(host, gateway)
            if number == KILLS // 2:
                gateway.kill()
                gateway.start()
        assert [writer.wait(300) for writer in writers] == [0] * HOSTS
        for host in hosts:
            wait_until(host.has_arrived, f"the segments of {host.name} to arrive", 300)
            assert host.stop() == 0, host.said()
            assert "cannot be delivered" not in host.said()
    done = run("verify", gateway.url(), "--json")
    report = json.loads(done.out)
    rows = _rows(hosts, gateway.root)
    removed = report["objects"] - sum(len(segments(host.directory)) for host in hosts)
    besides = (
        f"{wire.broken} connections broken, the storage killed {gateway.kills} times; {report['objects']} objects, of "
        f"which retention has removed {removed} segments"
    )
    text = f"{table(rows)}\n{besides}"
    request.node.user_properties.append(("shipped", f"to object storage:\n{text}"))
    assert [(row.accepted, row.copies, row.missing) for row in rows] == [(RECORDS, 0, 0)] * HOSTS, text
    assert (done.code, report["problems"], report["notes"]) == (0, [], [])
    assert report["objects"] == report["manifests"]
    assert sum(row.in_parts for row in rows) > 0, text
    assert gateway.uploads() == set(), "an upload of a shipper that was killed is left"


def _kill(host: Host, gateway: Objects) -> None:
    """Kill a shipper in the middle of an upload in parts, where one of these is soon under way."""

    def own() -> set[str]:
        keys = [object_key(segment, "fleet", host.name, "jsonl.zst") for segment in segments(host.directory)]
        return gateway.uploads(*keys) - host.killed_in if keys else set()

    wait_until(host.is_sending, "a segment to be sent")
    with contextlib.suppress(AssertionError):
        wait_until(
            lambda: own() or host.has_arrived(), "an upload in parts", 20.0 if host.rotate_bytes > LARGE else 0.5
        )
    host.killed_in |= own()
    host.kill()


def _rows(hosts: list[Host], objects: Path) -> list[Row]:
    """Count the records of each host in all objects that lie there, whatever names them."""
    arrived: Counter[tuple[str, int, int]] = Counter()
    for path in objects.rglob("*.jsonl.zst"):
        for record in read_records(path):
            if record.get("logger") == "fleet":
                arrived[record["attributes"]["host"], record["pid"], record["attributes"]["n"]] += 1
    rows = []
    for host in hosts:
        found = {key: times for key, times in arrived.items() if key[0] == host.name}
        copies = sum(found.values()) - len(found)
        rows.append(Row(host.name, RECORDS, len(found), copies, RECORDS - len(found), host.kills, len(host.killed_in)))
    return rows


def _deliver(
    hosts: list[Host], wires: list[LossyWire], server: ClickHouse | OpenSearch, again: Callable[[], None]
) -> None:
    """Write and ship; each kill comes when a batch is delivered and its shipper does not know it."""
    writers = [host.write(RECORDS) for host in hosts]
    choose = random.Random(SEED)
    for number in range(KILLS):
        for host, wire in choose.sample(list(zip(hosts, wires, strict=True)), len(hosts)):
            wire.lose_an_answer()
            host.kill()
            wire.break_off()
        if number == KILLS // 2:
            wires[0].lose_an_answer()
            server.kill()
            again()
            wires[0].break_off()
    assert [writer.wait(300) for writer in writers] == [0] * HOSTS
    for host in hosts:
        wait_until(host.has_arrived, f"the segments of {host.name} to arrive", 300)
        assert host.stop() == 0, host.said()


@pytest.mark.clickhouse
def test_what_was_accepted_is_one_row_of_a_database_whatever_was_killed(
    start: Start, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server: ClickHouse = start(ClickHouse(tmp_path / "clickhouse"))
    for statement in statements():
        server.ask(statement)
    # A merge would leave one of two rows of a record; of tables that are there it is stopped.
    server.ask("SYSTEM STOP MERGES")
    given = {"ship_headers_file": server.headers, "ship_batch_records": 5000, "ship_timeout_s": 60}

    def again() -> None:
        server.start()
        server.ask("SYSTEM STOP MERGES")

    with contextlib.ExitStack() as stack:
        # Only records are compressed.
        wires = [stack.enter_context(LossyWire(server.port, b"Content-Encoding: gzip")) for _ in range(HOSTS)]
        hosts = [
            start(Host(f"host-{number}", tmp_path, wire.via(server.url()), rotate_bytes=2 * MIB, **given))
            for number, wire in enumerate(wires, 1)
        ]
        _deliver(hosts, wires, server, again)
    found = server.rows(
        "SELECT `k8s.pod.name` AS host, count() AS rows, uniqExact(pid, JSONExtractUInt(attributes, 'n')) AS arrived "
        "FROM records WHERE logger = 'fleet' GROUP BY host"
    )
    of = {row["host"]: (row["rows"], row["arrived"]) for row in found}
    rows = [
        Row(host.name, RECORDS, there, there_in_all - there, RECORDS - there, host.kills, 0)
        for host in hosts
        for there_in_all, there in [of.get(host.name, (0, 0))]
    ]
    text = f"{table(rows)}\nthe server killed {server.kills} times"
    request.node.user_properties.append(("shipped", f"to ClickHouse's engine:\n{text}"))
    assert [(row.accepted, row.copies, row.missing) for row in rows] == [(RECORDS, 0, 0)] * HOSTS, text


def test_what_was_accepted_is_one_document_of_an_index_whatever_was_killed(
    start: Start, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server: OpenSearch = start(OpenSearch(tmp_path / "opensearch"))
    given = {"ship_batch_records": 500, "ship_timeout_s": 60}
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(LossyWire(server.port)) for _ in range(HOSTS)]
        hosts = [
            start(Host(f"host-{number}", tmp_path, wire.via(server.to), rotate_bytes=2 * MIB, **given))
            for number, wire in enumerate(wires, 1)
        ]
        _deliver(hosts, wires, server, server.start)
    fleet = [document for document in server.documents() if document.get("logger") == "fleet"]
    arrived = Counter((one["attributes"]["host"], one["pid"], one["attributes"]["n"]) for one in fleet)
    rows = []
    for host in hosts:
        found = [times for key, times in arrived.items() if key[0] == host.name]
        rows.append(Row(host.name, RECORDS, len(found), sum(found) - len(found), RECORDS - len(found), host.kills, 0))
    text = f"{table(rows)}\nthe server killed {server.kills} times"
    request.node.user_properties.append(("shipped", f"to OpenSearch:\n{text}"))
    assert [(row.accepted, row.copies, row.missing) for row in rows] == [(RECORDS, 0, 0)] * HOSTS, text


def test_verify_of_a_real_bucket_is_red_for_an_object_that_is_removed_altered_or_doubled(
    start: Start, tmp_path: Path
) -> None:
    gateway: Objects = start(Objects(tmp_path / "gateway"))
    host = Host("host", tmp_path, gateway.url(), rotate_bytes=MIB // 8)
    assert host.write(600).wait(60) == 0
    assert run("ship", "--directory", str(host.directory), "--to", gateway.url(), "--once").code == 0
    assert run("verify", gateway.url()).code == 0
    one, other, third, *_ = sorted(gateway.root.rglob("*.jsonl.zst"))
    content = bytearray(other.read_bytes())
    content[-10] ^= 1
    other.write_bytes(content)
    store = Store(Place.parse(gateway.url()))
    store.put(f"copies/{third.name}", third.read_bytes(), {}, "application/zstd")
    one.unlink()
    report = json.loads(run("verify", gateway.url(), "--json").out)
    problems = [(problem["kind"], problem["text"].partition(": ")[0]) for problem in report["problems"]]
    root = "s3://logs/here"
    expected = [
        ("removed", f"{root}/{one.relative_to(gateway.root / 'here')}"),
        ("altered", f"{root}/{other.relative_to(gateway.root / 'here')}"),
        ("doubled", f"{root}/copies/{third.name}"),
    ]
    assert problems[:3] == expected
    assert {kind for kind, _ in problems[3:]} == {"missing"}
    with pytest.raises(ExistsError):
        store.put(f"copies/{third.name}", b"another", {}, "application/zstd")
