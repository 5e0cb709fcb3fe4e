"""A fleet ships to a real object storage through a wire that is slow and breaks, while its shippers are killed.

Others ship to ClickHouse's engine and to OpenSearch.

`make test-fleet` runs it at length (``FLEET_HOSTS``, ``FLEET_RECORDS``, ``FLEET_KILLS``) and prints the table.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from inference_logging.segments import read_records, segments
from inference_logging.ship.clickhouse_schema import statements
from inference_logging.ship.s3.place import Place, object_key
from inference_logging.ship.s3.store import ExistsError, Store
from tests.kit.command_line import run
from tests.kit.support import wait_until
from tests.ship.bucket import CREDENTIALS
from tests.ship.clickhouse import ClickHouse
from tests.ship.lossy import LossyWire
from tests.ship.objects import Objects, Wire
from tests.ship.opensearch import OpenSearch

PAYLOAD_BYTES: Final = 3000
"""Of noise in each record, so that objects are not small and have several parts."""

_WRITER: Final = """
import base64, os, sys, time
from inference_logging import Logger, get_logger
count, host = int(sys.argv[1]), sys.argv[2]
with Logger() as logger:
    for number in range(count):
        noise = base64.b64encode(os.urandom({bytes})).decode()
        while not get_logger("fleet").info("n", n=number, host=host, noise=noise):
            time.sleep(0.01)
    assert logger.flush()
"""


class Row(NamedTuple):
    """What became of a host's records."""

    host: str
    accepted: int
    arrived: int
    copies: int
    missing: int
    kills: int
    in_parts: int
    """Kills while an upload in parts was under way."""


class Host:
    """One directory with its writers and its shipper; ``url`` is where that goes, ``more`` are its parameters."""

    def __init__(self, name: str, folder: Path, url: str, *, rotate_bytes: int, **more: Any) -> None:
        self.name, self.directory = name, folder / name / "logs"
        self.kills = 0
        """Of its shippers."""
        self.killed_in: set[str] = set()
        """Uploads in parts that were under way then."""
        self.rotate_bytes = rotate_bytes
        self._url, self._folder = url, folder / name
        self._kind = url.partition("://")[0].partition("+")[0]
        self._folder.mkdir(parents=True)
        given = {
            "directory": self.directory,
            "queue_directory": self._folder / "queues",
            "service_name": "fleet",
            "rotate_bytes": rotate_bytes,
            "retention_waits_for": self._kind,
            "retention_s": 1,
            "ship_interval_s": 0.05,
            "ship_timeout_s": 5,
            "ship_retry_s": 1,
            "drain_deadline_s": 100,
            **more,
        }
        own = {f"INFERENCE_LOGGING_{key.upper()}": str(value) for key, value in given.items()}
        self._environment = {**os.environ, **CREDENTIALS, "OTEL_RESOURCE_ATTRIBUTES": f"k8s.pod.name={name}", **own}
        self._shipper: subprocess.Popen[bytes] | None = None

    def write(self, count: int) -> subprocess.Popen[bytes]:
        """Start a process that writes so many records."""
        script = _WRITER.replace("{bytes}", str(PAYLOAD_BYTES))
        return subprocess.Popen([sys.executable, "-c", script, str(count), self.name], env=self._environment)

    def start(self) -> None:
        """Start the shipper."""
        command = [sys.executable, "-m", "inference_logging.cli.main", "ship", "--to", self._url]
        with (self._folder / "said").open("ab") as said:
            self._shipper = subprocess.Popen(command, env=self._environment, stderr=said)

    def kill(self) -> None:
        """Kill it by SIGKILL, and start the next one."""
        assert self._shipper is not None
        assert self._shipper.poll() is None, (self._folder / "said").read_text()
        self.kills += 1
        self.end()
        self.start()

    def is_sending(self) -> bool:
        """Return whether an object is being made or sent."""
        return (self.directory / ".s3.staging" / "object").exists()

    def left(self) -> int:
        """Return how many segments have not arrived."""
        names = {path.name.removesuffix(".zst") for path in self.directory.glob("fleet-*.jsonl*")}
        suffix = f".shipped-{self._kind}"
        marks = {name for name in names if name.endswith(suffix)}
        return len((names - marks) - {mark.removesuffix(suffix) for mark in marks})

    def has_arrived(self) -> bool:
        """Return whether each segment has arrived."""
        return self.left() == 0

    def stop(self) -> int:
        """Let the shipper send what is left, and return its exit code."""
        assert self._shipper is not None
        self._shipper.terminate()
        return self._shipper.wait(120)

    def said(self) -> str:
        """Return what its shippers have said."""
        return (self._folder / "said").read_text()

    def end(self) -> None:
        """Make sure that nothing is left."""
        if self._shipper is not None:
            self._shipper.kill()
            self._shipper.wait()


def table(rows: list[Row]) -> str:
    """Return what arrived, as a table with a line of sums."""
    sums = Row("all", *(sum(column) for column in list(zip(*rows, strict=True))[1:]))
    lines = [Row._fields, *rows, sums]
    return "\n".join("  ".join(f"{cell!s:>9}" for cell in line) for line in lines)


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
    if host.rotate_bytes > LARGE:
        wait_until(lambda: own() or host.has_arrived(), "an upload in parts", 300)
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
