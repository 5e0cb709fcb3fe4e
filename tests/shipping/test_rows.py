"""A record as a row: each column takes what it is for, and nothing is left out."""

from __future__ import annotations

from typing import Any, Final

import orjson
import pytest

from inference_logging.read.segments.columns import RESOURCE
from inference_logging.ship.clickhouse.rows import row_line
from inference_logging.ship.clickhouse.schema import COLUMNS as OF_CLICKHOUSE
from inference_logging.ship.clickhouse.schema import OBJECTS, TEXTS, statements, text
from inference_logging.ship.line import Line
from inference_logging.ship.rows import COLUMNS, OTHER, row
from tests.segment_files import log, request

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
