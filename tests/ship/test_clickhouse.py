"""`inference-logging ship` to ClickHouse's embedded engine: each record once, in the table and in the view."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from inference_logging.read.query.questions import QUESTIONS
from inference_logging.read.segments.columns import OTHER, RESOURCE
from inference_logging.ship.clickhouse_schema import COLUMNS, OBJECTS, TEXTS
from inference_logging.ship.line import Destination, Line
from tests.kit.command_line import run
from tests.kit.segment_files import log, request, write_segment
from tests.kit.support import wait_until
from tests.ship.arrived import Record
from tests.ship.clickhouse import ClickHouse
from tests.ship.shippers import Ship
from tests.ship.stage import Stage

pytestmark = pytest.mark.clickhouse
Start = Callable[[Any], Any]
Open = Callable[..., Destination]

NAME: Final = "svc-20261121T050000.000Z-00000000deadbeef-000001.jsonl"
RESOURCES: Final = {"service.name": "svc", "k8s.pod.name": "pod-1", "k8s.node.name": "node-1"}


def line(record: dict[str, Any], offset: int = 0) -> Line:
    return Line("svc", NAME, offset, orjson.dumps(record), record, RESOURCES)


def lines(*numbers: int) -> list[Line]:
    return [line(request(at, gen_ai__usage__input_tokens=10), at) for at in numbers]


@pytest.fixture
def server(start: Start, tmp_path: Path) -> ClickHouse:
    started: ClickHouse = start(ClickHouse(tmp_path / "clickhouse"))
    return started


@pytest.fixture
def connect(server: ClickHouse, opened: Open) -> Callable[..., Destination]:
    def begin(**of_url: str) -> Destination:
        return opened(ship_to=server.url(**of_url), ship_headers_file=server.headers, ship_timeout_s=60)

    return begin


def as_record(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record that a row was made from."""
    own = {name: row[name] for name in COLUMNS if name not in {*RESOURCE, "segment", "offset", OTHER}}
    given = {name: value for name, value in own.items() if value is not None and not (name in TEXTS and value == "")}
    found = {name: orjson.loads(value) if name in TEXTS else value for name, value in given.items()}
    found["timestamp"] = f"{found['timestamp'].replace(' ', 'T')}Z"
    return {**found, **orjson.loads(row[OTHER] or "{}")}


def assert_minutes_are_those_of(server: ClickHouse, records: Iterable[Record]) -> None:
    """Check that the view has counted each request once."""
    requests = [record for record in records if record["event_name"] == "request"]
    expected: Counter[str] = Counter()
    for record in requests:
        weight = record.get("adjusted_count", 1)
        expected["requests"] += weight
        expected["failed"] += weight if record["outcome"] not in ("ok", "client_disconnect") else 0
        expected["output_tokens"] += weight * record.get("gen_ai.usage.output_tokens", 0)
    (found,) = server.rows(
        f"SELECT {', '.join(f'sum({name}) AS {name}' for name in expected)} FROM requests_per_minute"
    )
    assert found == dict(expected)


def test_each_record_is_there_once_whatever_is_killed(
    stage: Callable[..., Stage], start: Start, server: ClickHouse
) -> None:
    staged = stage()
    # A block ends with what is there, so that the next shipper would find more.
    given = {"ship_headers_file": server.headers, "ship_timeout_s": "60", "ship_batch_records": "5000"}
    ship: Ship = start(Ship(staged.config, server.url(), **given))
    with staged.load() as load:
        for fault in ("die-after", "hold", "die-before", "break-after", "503"):
            ship.wait_until_shipped(100)
            server.next_insert(fault)
            wait_until(server.has_done, f"{fault} to be done")
            if fault == "hold":
                wait_until(server.holds, "an answer to be held back")
                load.wait_for(20)
                ship.restart()
            elif fault.startswith("die"):
                wait_until(lambda: not server.is_running(), "the server to be killed")
                server.kills += 1
                load.wait_for(20)
                ship.restart()
                server.start()
        ship.outlive(server, load)
    written = staged.end()
    assert ship.stop() == 0, ship.lines
    arrived = [as_record(row) for row in server.rows("SELECT * FROM records")]
    assert staged.show("ClickHouse's engine", written, arrived, server, ship) == 0
    assert_minutes_are_those_of(server, written)
    assert {one["event_name"] for one in arrived} >= {"log", "request"}
    segments, marked = staged.marks("clickhouse")
    assert segments == marked


def test_a_block_is_there_once_however_often_it_is_sent(server: ClickHouse, connect: Open) -> None:
    block = lines(*range(90))
    for _ in range(3):
        assert not connect().send(block).failed
        # What a merge would leave of two rows with one key is not what is asked here.
        server.ask("SYSTEM STOP MERGES logs.records")
    assert server.number("SELECT count() FROM records") == 90
    assert_minutes_are_those_of(server, [one.record for one in block])


def test_a_record_that_the_tokens_do_not_know_any_more_is_one_row_of_each_question(
    server: ClickHouse, connect: Open
) -> None:
    assert not connect().send(lines(*range(9))).failed
    server.ask("SYSTEM STOP MERGES logs.records")
    assert not connect().send(lines(*range(5))).failed, "another block, of the same records"
    assert server.number("SELECT count() FROM records") == 14
    assert server.number("SELECT count() FROM requests") == 9
    server.ask("SYSTEM START MERGES logs.records")
    server.ask("OPTIMIZE TABLE records FINAL")
    assert server.number("SELECT count() FROM records") == 9


def test_rows_whose_token_is_noted_without_them_are_sent_again(server: ClickHouse, connect: Open) -> None:
    destination = connect()
    assert not destination.send(lines(*range(9))).failed
    # As if the server had been killed after it noted the token, and before it had the rows.
    server.ask("ALTER TABLE records DELETE WHERE offset > 3 SETTINGS mutations_sync = 1")
    assert server.number("SELECT count() FROM records") == 4
    assert not destination.send(lines(*range(9))).failed
    assert server.number("SELECT count() FROM records") == 4, "a shipper that is sure does not look"
    assert not connect().send(lines(*range(9))).failed
    assert server.number("SELECT count() FROM records") == 9


def test_a_view_that_failed_has_the_block_once_it_is_sent_again(server: ClickHouse, connect: Open) -> None:
    destination = connect()
    assert not destination.send(lines(1)).failed
    server.ask("RENAME TABLE requests_per_minute_states TO away")
    sent = destination.send(lines(2, 3))
    assert [one.offset for one in sent.failed] == [2, 3]
    assert sent.error_type == "UNKNOWN_TABLE"
    server.ask("RENAME TABLE away TO requests_per_minute_states")
    assert not destination.send(lines(2, 3)).failed
    server.ask("SYSTEM STOP MERGES logs.records")
    assert server.number("SELECT count() FROM records") == 3
    assert_minutes_are_those_of(server, [one.record for one in lines(1, 2, 3)])


def test_a_value_of_each_type_is_what_the_record_has(server: ClickHouse, connect: Open) -> None:
    records = [
        request(
            1,
            chunk_gaps_us=[1, 2, 3],
            gen_ai__request__stop_sequences=["a", "ü"],
            gen_ai__response__finish_reasons=["stop"],
            gen_ai__request__stream=True,
            gen_ai__request__temperature=0.1,
            http__request__body="all of it",
            http__request__body__size=9,
            http__request__body__truncated=False,
            attributes={"a": [1, None, {"b": "c"}]},
        )
        | {"timestamp": "2026-11-21T05:00:01.123456789Z"},
        log(2, "a'b\\c\n\t\0d", duration_s="not a number", pid=-1, unheard={"of": True}),
        log(3) | {"seq": 2**64 - 1},
        {"event_name": "step", "boot_id": "b", "timestamp": "long ago"},
        {"without": "a name", "timestamp": "1969-12-31T23:59:59.999999999Z"},
    ]
    block = [line(record, at) for at, record in enumerate(records)]
    sent = connect().send(block)
    assert (list(sent.failed), sent.refused) == ([], {})
    rows = server.rows("SELECT * FROM records ORDER BY offset")
    assert [as_record(row) for row in rows[:3]] == records[:3]
    # What has no time is found at the beginning of its segment.
    assert [as_record(row)["timestamp"] for row in rows[3:]] == ["long ago", "1969-12-31T23:59:59.999999999Z"]
    assert {row["timestamp"][:19] for row in rows[3:]} == {"2026-11-21 05:00:00"}
    assert {name: rows[0][name] for name in RESOURCES} == RESOURCES
    assert server.rows("SELECT JSONExtract(chunk_gaps_us, 'Array(Int64)') AS gaps FROM requests") == [
        {"gaps": [1, 2, 3]}
    ]


def test_a_record_that_breaks_a_constraint_is_refused_and_the_others_are_there(
    server: ClickHouse, connect: Open
) -> None:
    destination = connect()
    assert not destination.send(lines(0)).failed
    server.ask("ALTER TABLE records ADD CONSTRAINT small CHECK offset != 5")
    sent = destination.send(lines(*range(1, 9)))
    assert (list(sent.failed), sent.refused) == ([], {"VIOLATED_CONSTRAINT": 1})
    assert server.rows("SELECT offset FROM records ORDER BY offset") == [{"offset": at} for at in range(9) if at != 5]


@pytest.mark.parametrize(
    ("of_url", "kind"), [({"database": "nowhere"}, "UNKNOWN_DATABASE"), ({"user": "nobody"}, "AUTHENTICATION_FAILED")]
)
def test_what_is_wrong_is_named_and_tried_again(connect: Open, of_url: dict[str, str], kind: str) -> None:
    sent = connect(**of_url).send(lines(1))
    assert ([one.offset for one in sent.failed], sent.refused, sent.error_type) == ([1], {}, kind)
    assert kind in sent.error


def test_what_an_administrator_has_made_from_the_printed_statements_stays_as_it_is(
    server: ClickHouse, connect: Open, tmp_path: Path
) -> None:
    url = server.url(options="?ttl_days=9000")
    done = run("ship", "--directory", str(tmp_path / "none"), "--to", url, "--print-schema")
    assert (done.code, done.err) == (0, "")
    for statement in done.out.removesuffix(";\n").split(";\n\n"):
        server.ask(statement.replace("INTERVAL 9000 DAY", "INTERVAL 8000 DAY"))
    made = server.ask("SELECT name, create_table_query FROM system.tables WHERE database = 'logs' ORDER BY name")
    assert not connect(options="?ttl_days=9000").send(lines(1)).failed
    assert (
        server.ask("SELECT name, create_table_query FROM system.tables WHERE database = 'logs' ORDER BY name") == made
    )
    assert "toIntervalDay(8000)" in made
    assert {row.split("\t")[0] for row in made.splitlines()} == set(OBJECTS)


@pytest.mark.parametrize("view", ["CREATE VIEW requests AS SELECT outcome FROM records FINAL", None])
def test_a_table_of_an_earlier_version_gets_its_columns(server: ClickHouse, connect: Open, view: str | None) -> None:
    records = [request(at, client_request_id=f"r{at}") for at in (1, 2)]
    assert not connect().send([line(records[0], 0)]).failed
    server.ask("DROP VIEW requests")
    server.ask("ALTER TABLE records DROP COLUMN client_request_id")
    if view is not None:
        server.ask(view)
    assert not connect().send([line(records[1], 1)]).failed
    found = server.rows("SELECT client_request_id AS id FROM requests ORDER BY timestamp")
    assert found == [{"id": None}, {"id": "r2"}]


@pytest.mark.parametrize("name", ["records", "requests", "logs", "requests_per_minute"])
def test_a_table_of_another_program_stays_as_it_is_and_is_named(server: ClickHouse, connect: Open, name: str) -> None:
    server.ask(f"CREATE TABLE {name} (id UInt64) ENGINE = MergeTree ORDER BY id")
    server.ask(f"INSERT INTO {name} VALUES (7)")
    made = server.ask("SELECT name, create_table_query FROM system.tables WHERE database = 'logs'")
    destination = connect()
    sent = destination.send(lines(1))
    assert ([one.offset for one in sent.failed], sent.refused, sent.error_type) == ([1], {}, "foreign_table")
    assert sent.error.startswith(f"logs.{name}: ")
    assert server.ask("SELECT name, create_table_query FROM system.tables WHERE database = 'logs'") == made
    assert server.number(f"SELECT id FROM {name}") == 7
    server.ask(f"RENAME TABLE {name} TO theirs")
    assert not destination.send(lines(1)).failed


def test_a_later_version_does_not_take_the_place_of_another_programs_table(server: ClickHouse, connect: Open) -> None:
    assert not connect().send(lines(1)).failed
    server.ask("DROP VIEW logs")
    server.ask("CREATE TABLE logs (id UInt64) ENGINE = MergeTree ORDER BY id")
    server.ask("INSERT INTO logs VALUES (7)")
    server.ask("DROP VIEW requests")
    server.ask("ALTER TABLE records DROP COLUMN client_request_id")
    assert connect().send(lines(2)).error_type == "foreign_table"
    assert server.number("SELECT id FROM logs") == 7


def test_each_question_has_the_answer_that_duckdb_gives_over_the_segments(server: ClickHouse, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for number in range(3):
        resource = {"service.name": "svc", "k8s.pod.name": f"pod-{number % 2}", "k8s.node.name": "node-1"}
        write_segment(logs, varied(number), number=number + 1, second=number, resource=resource, compressed=number == 0)
    headers = {"ship_headers_file": str(server.headers)}
    ship_once(logs, server.url(), headers)
    for name in QUESTIONS:
        done = run("query", "--example", name, str(logs), "--format", "json")
        assert (done.code, done.err) == (0, ""), name
        expected = [orjson.loads(row) for row in done.out.splitlines()]
        asked = run("query", "--example", name, "--dialect", "clickhouse")
        found = server.rows(asked.out.strip())
        assert expected, name
        # Rows of equal rank stand in no order.
        assert sorted(map(comparable, found), key=str) == sorted(map(comparable, expected), key=str), name


def varied(number: int) -> list[dict[str, Any]]:
    """Return requests of several tenants, models, routes, outcomes and weights."""
    outcomes = ("ok", "ok", "error", "client_disconnect", "process_died")
    records = []
    for at in range(60):
        more: dict[str, Any] = {"tenant.id": f"t{at % 4}"} if at % 5 else {}
        if at % 3:
            more |= {"gen_ai.usage.input_tokens": 10 * at, "gen_ai.usage.cache_read.input_tokens": 4 * at}
            more |= {"gen_ai.usage.output_tokens": at, "gen_ai.response.time_to_first_chunk": at / 7}
        if at % 7 == 0:
            more |= {"engine.queued_s": at / 100, "openai.request.prompt_cache_key": f"key-{at % 2}"}
        more["gen_ai.request.model"] = f"model-{number % 2}"
        more["adjusted_count"] = (1.0, 2.0, 10.0)[at % 3]
        more["duration_s"] = 0.01 + ((at * 37 + number) % 101) / 10
        more["http.route"] = None if at % 11 == 0 else f"/v1/{at % 2}"
        outcome = outcomes[at % 5]
        more |= {"error.type": "Broken"} if outcome == "error" else {}
        second = 10 + number * 1900 + at * 30.5
        made = request(second, outcome) | more
        records.append({name: value for name, value in made.items() if value is not None})
    return records


def ship_once(directory: Path, url: str, headers: Mapping[str, str]) -> None:
    config = directory.parent / "ship.yaml"
    config.write_bytes(orjson.dumps({"version": 1, **headers}))
    done = run("ship", "--config", str(config), "--directory", str(directory), "--to", url, "--once")
    assert done.code == 0, done.err


def comparable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with numbers of one kind, and with times as far as DuckDB has them."""
    return {name: _comparable(value) for name, value in row.items()}


def _comparable(value: Any) -> Any:
    if isinstance(value, int | float):
        return float(f"{value:.9g}")
    if isinstance(value, str) and value[:2] == "20" and value[4:5] == "-":
        time, _, fraction = value.replace(" ", "T").rstrip("Z").partition(".")
        return f"{time}.{fraction.ljust(6, '0')[:6]}"
    return value


def test_the_view_has_the_percentiles_of_the_requests(server: ClickHouse, connect: Open) -> None:
    durations = [(at * 7919 % 1000) / 100 for at in range(1000)]
    block = [line(request(at / 100) | {"duration_s": took}, at) for at, took in enumerate(durations)]
    destination = connect()
    for begin in range(0, 1000, 100):
        assert not destination.send(block[begin : begin + 100]).failed
    (found,) = server.rows("SELECT * FROM requests_per_minute")
    ranked = sorted(durations)
    for name, level in (("duration_p50_s", 0.5), ("duration_p90_s", 0.9), ("duration_p99_s", 0.99)):
        assert math.isclose(found[name], ranked[round(level * 1000)], rel_tol=0.02), name
    assert (found["requests"], found["service.name"], found["route"]) == (1000, "svc", "/v1/chat/completions")


def test_the_page_says_how_a_month_is_counted_anew_and_what_can_be_asked(server: ClickHouse, connect: Open) -> None:
    page = (Path(__file__).parents[2] / "docs" / "clickhouse.md").read_text()
    again, question = re.findall(r"^```sql\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    records = [request(at, gen_ai__usage__output_tokens=at) for at in range(20)]
    block = [line(record, at) for at, record in enumerate(records)]
    assert not connect().send(block).failed
    assert not connect().send(block[:10]).failed, "another block, of the same records"
    assert server.number("SELECT sum(requests) FROM requests_per_minute") == 30
    for statement in again.strip().removesuffix(";").split(";\n") * 2:
        server.ask(statement)
    assert_minutes_are_those_of(server, records)
    assert server.rows(question.strip().removesuffix(";")) == [], "of the last hour"
