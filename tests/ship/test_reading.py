"""Objects of a bucket: reading many, their rows and tables, retention, and how far a shipper has come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, cast

import duckdb
import orjson
import pytest

from inference_logging.read.segments.columns import COLUMNS, OTHER, RESOURCE, row
from inference_logging.segments import segments
from inference_logging.ship.clickhouse import row_line
from inference_logging.ship.clickhouse_schema import COLUMNS as OF_CLICKHOUSE
from inference_logging.ship.clickhouse_schema import OBJECTS, TEXTS, statements, text
from inference_logging.ship.line import Line
from inference_logging.ship.s3.place import MANIFESTS, Place
from inference_logging.ship.s3.reading import AT_ONCE, ahead, manifests
from inference_logging.ship.s3.staging import Staging
from inference_logging.ship.s3.store import Listed, Store
from tests.kit.segment_files import log, request, write_segment
from tests.kit.signatures import Configure
from tests.kit.support import Recorded, answer, parse, replying, wait_until
from tests.ship.arrived import key, written_lines
from tests.ship.bucket import Bucket, rows, ship
from tests.ship.endpoint import Collector
from tests.ship.kafka import TOPIC, Kafka
from tests.ship.otelcol import as_record, with_body
from tests.ship.shippers import Ship
from tests.ship.stage import Stage

PATIENCE_S = 30


class Slow:
    """A store whose answers come once all that may be under way are."""

    def __init__(self, count: int) -> None:
        self.keys = [
            f"{MANIFESTS}service=s/date=2026-11-21/hour=05/pod=p/{at:03}.jsonl.zst.json" for at in range(count)
        ]
        self.barrier = threading.Barrier(AT_ONCE)

    def list(self, _beginning: str) -> Iterator[Listed]:
        """Iterate over the manifests."""
        return (Listed(key, 1, "") for key in self.keys)

    def read(self, _key: str) -> bytes:
        """Wait for the others."""
        self.barrier.wait(PATIENCE_S)
        return b"no manifest"


def test_manifests_are_read_many_at_once_and_come_in_their_order() -> None:
    store = Slow(4 * AT_ONCE)
    found = manifests(cast("Store", store), Place.parse("s3://bucket/logs"))
    assert [one.key for one in found] == store.keys


def test_after_a_failure_no_further_item_is_asked_for() -> None:
    asked = []

    def ask(item: int) -> int:
        asked.append(item)
        if item == 2:
            raise KeyError(item)
        return item

    items = iter(range(1000))
    with pytest.raises(KeyError):
        list(ahead(ask, items))
    assert next(items) <= 2 + AT_ONCE
    assert set(asked) <= set(range(3 + AT_ONCE))


@pytest.mark.servers
def test_many_small_objects_are_all_there(tmp_path: Path, bucket: Bucket) -> None:
    count = 3 * AT_ONCE
    for number in range(1, count + 1):
        write_segment(tmp_path / "logs", [log(number, f"m{number}")], number=number)
    assert ship(tmp_path / "logs", bucket.url).code == 0
    assert rows(bucket.url, "SELECT count(DISTINCT message) AS n FROM records") == [{"n": count}]


NAME: Final = "svc-20261121T050000.000Z-00000000deadbeef-000001.jsonl"
VALUES: Final[dict[str, Any]] = {
    "BIGINT": -1,
    "BIGINT[]": [1, 2],
    "UBIGINT": 2**64 - 1,
    "DOUBLE": 0.5,
    "BOOLEAN": False,
    "VARCHAR": "text",
    "VARCHAR[]": ["a", "b"],
    "TIMESTAMP": "2026-11-21T05:00:00.000000001Z",
    "JSON": {"a": [1]},
}


@pytest.mark.parametrize("name", sorted(COLUMNS.keys() - {*RESOURCE, OTHER}))
def test_a_value_of_a_columns_type_is_in_the_column_and_another_is_not(name: str) -> None:
    record = {name: VALUES[COLUMNS[name]]}
    assert row(record) == record
    wrong = {name: {"of": "another type"}}
    assert row(wrong) == (wrong if COLUMNS[name] == "JSON" else {OTHER: wrong})


@pytest.mark.parametrize("name", RESOURCE)
def test_what_a_record_says_of_its_resource_is_not_in_the_segments_column(name: str) -> None:
    assert row({name: "text"}) == {OTHER: {name: "text"}}


def line(record: dict[str, Any], **resource: str) -> Line:
    return Line("svc", NAME, 7, orjson.dumps(record), record, {"service.name": "svc", **resource})


def test_a_row_of_clickhouse_names_columns_of_its_table_alone() -> None:
    record = request(1, chunk_gaps_us=[1], attributes={"a": 1}, unheard=2)
    made = orjson.loads(row_line(line(record, **{"k8s.pod.name": "p", "cloud.region": "r"})))
    assert made.keys() <= OF_CLICKHOUSE.keys()
    assert (made["segment"], made["offset"], made["service.name"], made["k8s.pod.name"]) == (NAME, 7, "svc", "p")
    assert (made["chunk_gaps_us"], made["attributes"], made["other"]) == ("[1]", '{"a":1}', '{"unheard":2}')


def test_a_time_that_is_none_is_replaced_and_kept() -> None:
    made = orjson.loads(row_line(line(log(1) | {"timestamp": "2026-02-30T00:00:00.0Z"})))
    assert made["timestamp"] == "2026-11-21T05:00:00.000000Z"
    assert made["other"] == '{"timestamp":"2026-02-30T00:00:00.0Z"}'


def test_clickhouse_has_each_column_of_query_and_no_array() -> None:
    assert OF_CLICKHOUSE.keys() == {*COLUMNS, "segment", "offset"}
    assert not [name for name, kind in OF_CLICKHOUSE.items() if "Array" in kind]
    assert {name for name, kind in OF_CLICKHOUSE.items() if kind.startswith("String")} == TEXTS


def test_the_printed_statements_are_those_that_are_sent() -> None:
    assert text(30).removesuffix(";\n").split(";\n\n") == statements(30)
    made = [statement.split(" IF NOT EXISTS ")[1].split()[0] for statement in statements()]
    assert sorted(made) == sorted(OBJECTS)
    assert "TTL" not in text()
    assert "TTL toDateTime(timestamp) + INTERVAL 30 DAY" in text(30)


Start = Callable[[Any], Any]
ROTATE_BYTES: Final = 64 << 10
WAITING: Final = {"retention_waits_for": ("kafka",), "rotate_bytes": ROTATE_BYTES}


@pytest.fixture
def kafka(start: Start, tmp_path: Path) -> Kafka:
    """Return a broker that has the topic, and is away."""
    made: Kafka = start(Kafka(tmp_path / "kafka"))
    made.kill()
    return made


@pytest.mark.shipping
def test_what_is_not_shipped_outlives_its_age_and_goes_once_it_is(
    stage: Callable[..., Stage], start: Start, tmp_path: Path, kafka: Kafka
) -> None:
    staged = stage(**WAITING, retention_s=1.0)
    directory = staged.config.directory
    ship: Ship = start(Ship(staged.config, f"kafka://{kafka.address}/{TOPIC}"))
    with staged.load():
        wait_until(lambda: len(segments(directory)) > 5, "five sealed segments")
        ship.wait_until_failing()
    *waiting, marked, _ = segments(directory)
    # Younger than all that wait: once its age has removed it, theirs would have.
    marked.path.with_name(f"{marked.name}.shipped-kafka").touch()
    wait_until(lambda: not marked.path.exists(), "the marked segment to be removed")
    assert set(waiting) <= set(segments(directory))
    wait_until(lambda: staged.removed("age"), "that to be counted")
    assert (staged.removed("age"), staged.removed("unshipped")) == (1, 0)
    (kept := tmp_path / "kept").mkdir()
    for one in segments(directory):
        (kept / one.path.name).hardlink_to(one.path)
    kafka.start()
    wait_until(lambda: not any(one.path.exists() for one in waiting), "what was shipped to be removed")
    wait_until(lambda: staged.removed("age") > len(waiting), "that to be counted")
    assert staged.removed("unshipped") == 0
    left = staged.end()
    assert ship.stop() == 0, ship.lines
    written = {key(one): one for one in [*left, *map(parse, written_lines(kept))]}
    name = "retention that waits for Kafka"
    staged.show(name, written.values(), map(parse, kafka.values()), kafka, ship)


@pytest.mark.shipping
def test_the_quota_removes_what_is_not_shipped_and_counts_it_and_the_rest_arrives(
    stage: Callable[..., Stage], start: Start, tmp_path: Path, kafka: Kafka
) -> None:
    quota_bytes = 4 * ROTATE_BYTES
    staged = stage(**WAITING, quota_bytes=quota_bytes)
    directory = staged.config.directory
    ship: Ship = start(Ship(staged.config, f"kafka://{kafka.address}/{TOPIC}"))
    with staged.load() as load:
        wait_until(lambda: staged.removed("unshipped") >= 3, "three segments to be removed before they are shipped")
        assert staged.removed("quota") == 0
        kafka.start()
        wait_until(lambda: staged.removed("quota") >= 3, "three segments to be removed that were shipped")
        load.wait_for(20)
    left = {key(one): one for one in staged.end()}
    assert ship.stop() == 0, ship.lines
    assert sum(one.path.stat().st_size for one in segments(directory)) < 2 * quota_bytes
    present, marked = staged.marks("kafka")
    assert present == marked, "marks go with their segments"
    arrived = [one for one in map(parse, kafka.values()) if key(one) in left]
    staged.show("the quota while Kafka is away; what is left of it", left.values(), arrived, kafka, ship)


@pytest.mark.shipping
def test_each_record_arrives_though_shipper_and_listener_are_killed_and_offsets_are_older(
    stage: Callable[..., Stage], start: Callable[[Any], Any], collector: Collector
) -> None:
    staged = stage(compress="zstd")
    ship: Ship = start(Ship(staged.config, collector.url, ship_batch_records=20))
    offsets = staged.config.directory / ".otlp.offsets"
    with staged.load() as load:
        for number in range(4):
            ship.wait_until_shipped(40)
            saved = offsets.read_bytes()
            ship.wait_until_shipped(60)
            ship.kill()
            if number % 2 == 0:
                # As if it had been killed after it sent and before it saved.
                offsets.write_bytes(saved)
            else:
                staged.kill_listener()
                load.wait_for(20)
            ship.start()
    written = staged.end()
    assert ship.stop() == 0, ship.lines
    records = [as_record(record) for record, _ in collector.received()]
    copies = staged.show("OTLP, with zstd", map(with_body, written), records, ship)
    assert copies >= 2 * 60, "what was not saved is sent again"
    segments, marked = staged.marks("otlp")
    assert segments == marked


def test_the_times_of_a_stream_are_in_their_column(configure: Configure, tmp_path: Path) -> None:
    recorded = Recorded(configure())
    recorded.serve(replying(*answer(b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\n", content_type=b"text/event-stream")))
    (request,) = recorded.records("request")
    recorded.close()
    (segment,) = segments(recorded.config.directory)
    staged = Staging(tmp_path / "staged").stage(segment, "parquet")
    found = duckdb.execute(
        f"SELECT chunks, chunk_gaps_us, other FROM read_parquet('{staged.path}') WHERE event_name = 'request'"
    ).fetchall()
    assert len(request["chunk_gaps_us"]) > 0
    assert found == [(request["chunks"], request["chunk_gaps_us"], None)]


def test_a_value_of_another_kind_than_its_columns_stands_below_other() -> None:
    of_lists = {name: kind for name, kind in COLUMNS.items() if kind.endswith("[]")}
    assert set(of_lists.values()) == {"BIGINT[]", "VARCHAR[]"}
    for name, kind in of_lists.items():
        wrong = ["1"] if kind == "BIGINT[]" else [1]
        assert row({name: wrong}) == {"other": {name: wrong}}
        assert row({name: []}) == {name: []}


def test_every_kind_of_column_takes_a_record() -> None:
    # A kind that nothing judges would be an error for the first record that has such a column.
    assert row(dict.fromkeys(COLUMNS))["other"].keys() >= {"timestamp", "chunk_gaps_us"}
