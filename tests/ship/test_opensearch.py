"""`inference-logging ship` to a real OpenSearch: each record is one document, whatever is killed on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from inference_logging.ship.line import Destination, Line
from inference_logging.ship.opensearch import FIELDS, MESSAGES
from tests.kit.command_line import run
from tests.kit.segment_files import log, request
from tests.ship.lossy import LossyWire
from tests.ship.opensearch import INDEX, OpenSearch, as_record
from tests.ship.shippers import Ship
from tests.ship.stage import Stage

pytestmark = pytest.mark.shipping
Start = Callable[[Any], Any]
Open = Callable[..., Destination]

NAME: Final = "svc-20261121T050000.000Z-00000000deadbeef-000001.jsonl"
RESOURCES: Final = {"service.name": "svc", "k8s.pod.name": "pod-1"}


def line(record: dict[str, Any], offset: int = 0) -> Line:
    return Line("svc", NAME, offset, orjson.dumps(record), record, RESOURCES)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    started = OpenSearch(tmp_path_factory.mktemp("opensearch") / "node")
    try:
        started.start()
        yield started
    finally:
        started.end()


@pytest.fixture(autouse=True)
def clean(request: pytest.FixtureRequest) -> None:
    """Begin without indexes and templates, where a test has the server of this file."""
    if "server" in request.fixturenames:
        server = request.getfixturevalue("server")
        server.ask("DELETE", f"{INDEX}*")
        server.ask("DELETE", "_index_template/*")


def test_each_record_is_one_document_though_server_and_shipper_are_killed(
    stage: Callable[..., Stage], start: Start, tmp_path: Path
) -> None:
    server: OpenSearch = start(OpenSearch(tmp_path / "opensearch"))
    staged = stage()
    with LossyWire(server.port) as wire:
        ship: Ship = start(Ship(staged.config, wire.via(server.to), ship_timeout_s="10"))
        with staged.load() as load:
            for _ in range(2):
                for mortal in (ship, server, None):
                    ship.wait_until_shipped(100)
                    # What was sent is there, and the shipper does not know it.
                    wire.lose_an_answer()
                    if mortal is not None:
                        mortal.kill()
                        load.wait_for(20)
                        mortal.start()
                    wire.break_off()
            ship.wait_until_shipped(100)
            ship.outlive(server, load)
        written = staged.end()
        assert ship.stop() == 0, ship.lines
    documents = server.documents()
    assert staged.show("OpenSearch", written, map(as_record, documents), server, ship) == 0
    assert {one["_index"] for one in documents} == {
        f"{INDEX}-{one['timestamp'][:10].replace('-', '.')}" for one in written
    }
    assert {one["event_name"] for one in written} >= {"log", "request"}
    segments, marked = staged.marks("opensearch")
    assert segments == marked


def test_a_record_is_one_document_however_often_and_by_any_shipper_it_is_sent(server: OpenSearch, opened: Open) -> None:
    block = [line(request(at), at) for at in range(90)]
    for _ in range(3):
        assert not opened(ship_to=server.to, ship_timeout_s=60).send(block).failed
    assert len(server.documents()) == 90


def test_what_is_searched_for_has_its_type_and_texts_are_kept_alone(server: OpenSearch, opened: Open) -> None:
    texts = {name: [{"role": "user", "parts": [{"content": "the secret plan"}]}] for name in MESSAGES}
    records = [
        request(
            1,
            chunk_gaps_us=[1, 2, 3],
            gen_ai__request__stop_sequences=["a", "ü"],
            gen_ai__request__stream=True,
            gen_ai__request__temperature=0.1,
            gen_ai__usage__input_tokens=7,
            http__request__body="the secret plan",
            http__request__body__size=9,
            attributes={"a": [1, None, {"b": "c", "": 1, "x..y": 2}]},
        )
        | texts
        | {"timestamp": "2026-11-21T05:00:01.123456789Z", "exception.stacktrace": "x" * 40_000},
        log(2, f"hello world {'x' * 40_000}", duration_s="not a number", pid=-1, unheard={"of": True}, attributes=5),
        log(3, logger="y" * 40_000) | {"seq": 2**64 - 1},
        {"event_name": "step", "boot_id": "b", "timestamp": "long ago", ".": 1, "": 2},
    ]
    sent = opened(ship_to=server.to, ship_timeout_s=60).send([line(one, at) for at, one in enumerate(records)])
    assert (list(sent.failed), sent.refused, sent.error) == ([], {}, "")
    documents = sorted(server.documents(), key=lambda one: int(one["offset"]))
    assert [as_record(one) for one in documents] == [*records[:3], records[3] | {"timestamp": "long ago"}]
    found = {
        1: {"range": {"timestamp": {"gte": "2026-11-21T05:00:01.123456789Z", "lt": "2026-11-21T05:00:01.123456790Z"}}},
        2: {"match": {"message": "WORLD"}},
        3: {"term": {"seq": 2**64 - 1}},
    }
    for at, query in found.items():
        (one,) = server.ask("POST", f"{INDEX}-*/_search", {"query": query})["hits"]["hits"]
        assert one["_source"]["offset"] == at - 1, query
    assert server.count({"range": {"http.request.body.size": {"gt": 8}}}) == 1
    assert server.count({"term": {"gen_ai.request.stop_sequences": "ü"}}) == 1
    assert server.count({"term": {"k8s.pod.name": "pod-1"}}) == 4
    assert server.count({"simple_query_string": {"query": "secret", "fields": ["*"], "lenient": True}}) == 0
    assert server.count({"simple_query_string": {"query": "world", "fields": ["*"], "lenient": True}}) == 1
    summed = {"size": 0, "aggs": {"n": {"sum": {"field": "gen_ai.usage.input_tokens"}}}}
    assert server.ask("POST", f"{INDEX}-*/_search", summed)["aggregations"]["n"]["value"] == 7


def test_the_mapping_is_the_templates_and_no_field_is_added(server: OpenSearch, opened: Open) -> None:
    assert not opened(ship_to=server.to, ship_timeout_s=60).send([line(request(1) | {"unheard.of": 1})]).failed
    (index,) = server.ask("GET", f"{INDEX}-*/_mapping").values()
    assert flat(index["mappings"]["properties"]) == {name: {**kind} for name, kind in FIELDS.items()}
    assert index["mappings"]["dynamic"] == "false"


def flat(properties: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Return the fields of a mapping, named as records name them."""
    found: dict[str, Any] = {}
    for name, kind in properties.items():
        found |= flat(kind["properties"], f"{before}{name}.") if "properties" in kind else {f"{before}{name}": kind}
    return found


def test_what_an_administrator_has_made_from_the_printed_template_stays(
    server: OpenSearch, opened: Open, tmp_path: Path
) -> None:
    done = run("ship", "--directory", str(tmp_path / "none"), "--to", server.to, "--print-schema")
    altered = orjson.loads(done.out)
    altered["template"]["settings"]["index.number_of_replicas"] = 0
    server.ask("PUT", f"_index_template/{INDEX}", altered)
    assert not opened(ship_to=server.to, ship_timeout_s=60).send([line(request(1))]).failed
    (index,) = server.ask("GET", f"{INDEX}-*/_settings").values()
    assert index["settings"]["index"]["number_of_replicas"] == "0"


def test_a_document_that_another_mapping_cannot_take_is_refused_and_the_others_are_there(
    server: OpenSearch, opened: Open, tmp_path: Path
) -> None:
    done = run("ship", "--directory", str(tmp_path / "none"), "--to", server.to, "--print-schema")
    altered = orjson.loads(done.out)
    altered["template"]["settings"]["index.mapping.ignore_malformed"] = False
    altered["template"]["mappings"]["properties"] |= {
        "logger": {"type": "ip"},
        "request_id": {"type": "keyword"},
        "other": {"type": "object", "dynamic": "strict"},
    }
    server.ask("PUT", f"_index_template/{INDEX}", altered)
    block = [
        line(request(0), 0),
        line(log(1), 1),
        line(request(2, request_id="x" * 40_000), 2),
        line(request(3, unheard=1), 3),
        line(request(4), 4),
    ]
    sent = opened(ship_to=server.to, ship_timeout_s=60).send(block)
    expected = {"mapper_parsing_exception": 1, "illegal_argument_exception": 1, "strict_dynamic_mapping_exception": 1}
    assert (list(sent.failed), sent.refused) == ([], expected), sent.error
    assert sorted(one["offset"] for one in server.documents()) == [0, 4]


def test_an_index_that_may_not_be_written_is_waited_for(server: OpenSearch, opened: Open) -> None:
    destination = opened(ship_to=server.to, ship_timeout_s=60)
    yesterday = {"timestamp": "2026-11-20T05:00:00.000000000Z"}
    assert not destination.send([line(request(1), 1)]).failed
    server.ask("PUT", f"{INDEX}-2026.11.21/_settings", {"index.blocks.write": True})
    block = [line(request(2), 2), line(request(3) | yesterday, 3)]
    sent = destination.send(block)
    assert ([one.offset for one in sent.failed], sent.refused) == ([2], {})
    assert sent.error_type == "cluster_block_exception"
    server.ask("PUT", f"{INDEX}-2026.11.21/_settings", {"index.blocks.write": False})
    assert not destination.send(sent.failed).failed
    assert sorted(one["offset"] for one in server.documents()) == [1, 2, 3]


def test_a_cluster_without_room_for_an_index_is_waited_for(server: OpenSearch, opened: Open) -> None:
    setting = "cluster.max_shards_per_node"
    destination = opened(ship_to=server.to, ship_timeout_s=60)
    assert not destination.send([line(request(1), 1)]).failed
    server.ask("PUT", "_cluster/settings", {"persistent": {setting: 1}})
    later = line(request(2) | {"timestamp": "2026-11-22T05:00:00.000000000Z"}, 2)
    sent = destination.send([later])
    server.ask("PUT", "_cluster/settings", {"persistent": {setting: None}})
    assert ([one.offset for one in sent.failed], sent.refused) == ([2], {}), "a full cluster is no fault of a record"
    assert not destination.send([later]).failed
