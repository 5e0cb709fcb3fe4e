"""Whatever an application logs: its line, every reader and every destination take it, and say the same."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from inference_logging import Config, get_logger
from inference_logging.segments import Segment, segments
from inference_logging.ship import Shipper, Source
from inference_logging.ship.line import Destination, Line, Sent
from inference_logging.ship.opening import open_destination
from inference_logging.ship.otlp_messages import Logs
from inference_logging.ship.s3.staging import Staging
from tests.kit.command_line import run
from tests.kit.segment_files import name, write
from tests.kit.support import Recorded
from tests.ship.endpoint import Collector
from tests.ship.shipper_parts import Limits, Stop

DEEPEST: Final = 30
DESTINATIONS: Final = (
    "kafka://127.0.0.1:1/t",
    "otlp+http://127.0.0.1:1?signal=both",
    "clickhouse+http://127.0.0.1:1/d",
    "opensearch+http://127.0.0.1:1/d",
    "syslog+tcp://127.0.0.1:1",
    "journald:///run/systemd/journal/socket",
)


@pytest.fixture
def destinations() -> Iterator[list[Destination]]:
    """Open one of each kind; none connects before it sends."""
    opened = [open_destination(Config(ship_to=to)) for to in DESTINATIONS]
    yield opened
    for destination in opened:
        destination.close()


def wrapped(value: Any, levels: int, kinds: int) -> Any:
    """Return a value within lists and objects, whose order ``kinds`` has the bits of."""
    for level in range(levels):
        value = {"k": value, "n": level} if kinds >> (level % 60) & 1 else [value, level]
    return value


NUMBERS: Final = st.one_of(
    st.integers(),
    st.integers(-(2**66), 2**66),
    st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**308, 10**400, -(10**4000)]),
    st.floats(),
)
PLAIN: Final = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), inner)
    ),
    max_leaves=6,
)
VALUES: Final = st.builds(wrapped, PLAIN, st.integers(0, 60) | st.just(200), st.integers(0, 2**60))


def depth(value: Any) -> int:
    """Return how many containers are within each other."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def says_the_same(given: Any, found: Any, levels: int) -> bool:
    """Return whether ``found`` says what was given, which has room for so many levels."""
    if isinstance(given, dict | list) and levels == 0:
        return says_the_same(given, json.loads(found), DEEPEST * 10)
    match given:
        case dict():
            members = {str(key): value for key, value in given.items()}
            same_names = isinstance(found, dict) and members.keys() == found.keys()
            return same_names and all(says_the_same(members[key], found[key], levels - 1) for key in members)
        case list():
            same_length = isinstance(found, list) and len(given) == len(found)
            return same_length and all(says_the_same(*pair, levels - 1) for pair in zip(given, found, strict=True))
        case float() if not math.isfinite(given):
            return found in (None, str(given).replace("inf", "Infinity").replace("nan", "NaN"))
        case int() if not isinstance(given, bool) and not -(2**63) <= given < 2**64:
            return str(found) == str(given)
    return type(found) is type(given) and found == given


@pytest.mark.servers
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(VALUES, min_size=20, max_size=20))
def test_a_logged_value_passes_each_destinations_converter_and_says_the_same(
    recorded: Recorded, destinations: list[Destination], values: list[Any]
) -> None:
    before = recorded.logger.stats()["accepted"]
    for value in values:
        assert get_logger("app").info("m", value=value)
    assert recorded.logger.flush()
    (segment,) = segments(recorded.config.directory)
    written = [raw for raw in segment.path.read_bytes().splitlines() if b'"event_name":"log"' in raw]
    for given_value, raw in zip(values, written[before:], strict=True):
        record = orjson.loads(raw)
        assert depth(record) <= DEEPEST
        # The line is a level, and so are its attributes.
        assert says_the_same(given_value, record["attributes"]["value"], DEEPEST - 2)
        line = Line("svc", segment.name, 0, raw, record, {"service.name": "svc"})
        for destination in destinations:
            destination.convert(line)
        # As a collector reads it.
        ExportLogsServiceRequest.FromString(Logs.request([line]))


def test_every_reader_takes_each_value_and_they_agree_on_numbers(recorded: Recorded, tmp_path: Path) -> None:
    numbers = [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**308, 10**400]
    deep = [wrapped("x", levels, kinds) for levels in (28, 29, 32, 50, 200) for kinds in (0, -1, 0b1010)]
    emit = recorded.logger.event("sized", ["n", "deep"])
    for number in numbers:
        assert emit(number, deep[0])
    for value in deep:
        assert emit(1, value)
    recorded.logger.close()
    directory = str(recorded.config.directory)

    for number in numbers:
        is_number = -(2**63) <= number < 2**64
        tailed = run("tail", directory, "--json", "--last", "99", "--where", f"n={number}")
        (found,) = [orjson.loads(line)["n"] for line in tailed.out.splitlines()]
        assert found == (number if is_number else str(number))
    stats = run("stats", directory, "--json")
    assert (stats.code, json.loads(stats.out)["corrupt_lines"]) == (0, 0)
    rows = asked("SELECT n FROM records WHERE event_name = 'sized' ORDER BY seq", directory)
    assert [str(row["n"]) for row in rows] == [*map(str, numbers), *["1"] * len(deep)]
    (segment,) = segments(recorded.config.directory)
    for form in ("jsonl.zst", "parquet"):
        assert Staging(tmp_path / form).stage(segment, form).account.records >= len(rows)


def asked(sql: str, directory: str) -> list[dict[str, Any]]:
    """Return what `query` answers."""
    done = run("query", sql, directory, "--format", "json")
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def foreign(number: int, value: bytes) -> bytes:
    """Return a line that another program, or an old version, has written."""
    head = b'{"timestamp":"2026-11-21T05:00:0%d.000000000Z","event_name":"log","n":%d,' % (number, number)
    return head + b'"trace_id":"0123456789abcdef0123456789abcdef","value":' + value + b"}\n"


FOREIGN: Final = {
    0: b"1",
    1: b'{"a":' * 40 + b"1" + b"}" * 40,
    2: b"[" * 60 + b"]" * 60,
    3: b"[" * 1000 + b"]" * 1000,
    4: b"1" * 400,
    5: b"18446744073709551616",
    6: b"1",
}
"""Values by number of their record."""


@pytest.mark.parametrize("to", [to for to in DESTINATIONS if not to.startswith("kafka")])
def test_lines_of_others_that_go_beyond_stop_no_converter(to: str, tmp_path: Path) -> None:
    write(tmp_path / name(1), b"".join(foreign(*one) for one in FOREIGN.items()))
    destination = open_destination(Config(ship_to=to))
    got: list[int] = []

    def send(lines: list[Line]) -> Sent:
        for line in lines:
            destination.convert(line)
        got.extend(line.record["n"] for line in lines)
        return Sent()

    destination.send = send  # type: ignore[method-assign, assignment]
    shipper = Shipper(Source(tmp_path, "test"), destination, Limits(ship_batch_records=5), report=lambda _: None)
    assert shipper.run(Stop(), once=True)
    shipper.close()
    letters = [json.loads(line) for line in (tmp_path / ".test.dead-letters").read_bytes().splitlines()]
    missing = {int(one["line"].split('"n":')[1].split(",")[0]) for one in letters}
    assert sorted([*got, *missing]) == list(FOREIGN)
    assert {0, 5, 6} <= set(got)
    assert 4 in missing, "it is no record for any reader"


def test_a_collector_gets_what_stands_behind_records_that_otlp_has_no_room_for(
    collector: Collector, tmp_path: Path
) -> None:
    write(tmp_path / name(1), b"".join(foreign(*one) for one in FOREIGN.items()))
    done = run("ship", "--directory", str(tmp_path), "--to", collector.url, "--once")
    assert done.code == 1
    assert "ended records=3 refused=4 lag_bytes=0" in done.err
    assert [len(export.resource_logs[0].scope_logs[0].log_records) for _, _, export in collector.logs()] == [3]
    assert run("ship", "--directory", str(tmp_path), "--to", collector.url, "--once").code == 0, "not again"


def test_every_reader_goes_on_behind_the_lines_of_others(tmp_path: Path) -> None:
    (segment,) = [write(tmp_path / name(1), b"".join(foreign(*one) for one in FOREIGN.items()))]
    tailed = run("tail", str(tmp_path), "--json", "--last", "99")
    assert [orjson.loads(line)["n"] for line in tailed.out.splitlines()] == [0, 1, 2, 3, 5, 6]
    stats = run("stats", str(tmp_path), "--json")
    assert json.loads(stats.out)["corrupt_lines"] == 1
    rows = asked("SELECT n, value FROM records ORDER BY n::INT", str(tmp_path))
    # DuckDB reads a number of any length.
    assert [row["n"] for row in rows] == list(FOREIGN)
    assert rows[4]["value"] == "1" * 400
    parsed = Segment.parse(segment)
    assert parsed is not None
    for form in ("jsonl.zst", "parquet"):
        assert Staging(tmp_path / form).stage(parsed, form).account.records == 6
