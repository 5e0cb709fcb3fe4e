"""Conditions on the table of records find what Python finds in the lines; odd ones are refused by each command."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference_logging.read.table.conditions import Values, as_sql
from inference_logging.read.table.engine import texts
from inference_logging.read.table.table import Table
from inference_logging.read.where import Condition
from tests.kit.command_line import run
from tests.kit.segment_files import request, stamp, write_segment
from tests.read.table_questions import RESOURCES, ask, found, lines_of, open_table

NUMBERS = [
    "duration_s", "http.response.status_code", "gen_ai.usage.input_tokens", "engine.queued_s", "pid", "seq", "chunks",
]  # fmt: skip
TEXTS = ["outcome", "tenant.id", "http.route", "error.type", "logger", "event_name", "severity_text", "enduser.id"]
IDS = ["trace_id", "span_id", "request_id", "boot_id"]
# Fields without a column, and ways to fields.
OTHERS = [
    "message", "attributes", "attributes.n", "attributes.a.b", "gen_ai", "http", "http.response", "service.name",
    "severity", "outcome.x", "k8s", "timestamp",
]  # fmt: skip

words = st.sampled_from(["ok", "error", "", "é😀", 'a"b\\c', "x\ny\t\x00", "1", "1.0", "null", "'", "it's", "\u2028"])
numbers = st.one_of(
    st.integers(-3, 600),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0.5, 1.0, 1e-7, 1e16, 1.5, 2.0**53, -0.0, sys.float_info.max, 123456.789012, 0.1 + 0.2]),
    st.floats(allow_nan=False, allow_infinity=False),
)
ids = st.one_of(
    st.integers(0, 2**128 - 1).map(lambda number: f"{number:032x}"),
    st.integers(0, 2**64 - 1).map(lambda number: f"{number:016x}"),
    words,
)
scalars = st.one_of(st.none(), st.booleans(), numbers, words)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["n", "a", "b", "a.b", "id", "x"]), inner, max_size=3),
    ),
    max_leaves=5,
)
times, pids = st.integers(0, 100).map(stamp), st.integers(1, 99)
usual = st.fixed_dictionaries(
    # A record without a time or a process is an odd one, which only its line answers for.
    {"timestamp": st.one_of(times, times, times, times, words), "pid": st.one_of(pids, pids, pids, pids, numbers)},
    optional={
        **{name: numbers for name in NUMBERS if name != "pid"},
        **dict.fromkeys(TEXTS, words),
        **dict.fromkeys(IDS, ids),
    },
)
odd = st.dictionaries(st.sampled_from(NUMBERS + TEXTS + IDS + OTHERS + ["tenant", "error"]), values, max_size=4)
records = st.tuples(usual, odd, st.integers(0, 3)).map(
    lambda parts: {**parts[0], **(parts[1] if parts[2] == 0 else {})}
)
conditions = st.tuples(
    st.sampled_from(NUMBERS + TEXTS + IDS + OTHERS),
    st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "~"]),
    st.one_of(
        words,
        ids,
        numbers.map(str),
        st.sampled_from([
            "1_000", "inf", "-inf", "nan", "1e400", "١٢", "9" * 40, "-" + "9" * 40, "1_", "0x1", "true", "{'n': 1}",
            "None", "2026-11-21T05:00:50", " 5 ", "+1", "9007199254740993", "INFO", "9",
        ]),
    ),
).map("".join)  # fmt: skip


def conditions_on(rows: list[dict[str, Any]]) -> st.SearchStrategy[str]:
    """Make conditions whose values occur in the records, or parts of them, and others."""
    pairs = [(name, value) for row in rows for name, value in row.items() if isinstance(value, str | int | float)]
    if not pairs:
        return conditions
    operators = st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "~"])
    parts = st.sampled_from([slice(None), slice(None), slice(1), slice(1, None)])
    near = st.tuples(st.sampled_from(pairs), operators, parts)
    return st.one_of(near.map(lambda drawn: f"{drawn[0][0]}{drawn[1]}{str(drawn[0][1])[drawn[2]]}"), conditions)


def expected(by_key: Mapping[str, Mapping[str, Any]], where: Iterable[str]) -> set[str]:
    parsed = [Condition.parse(text) for text in where]
    return {key for key, record in by_key.items() if all(condition.holds(record) for condition in parsed)}


def said_by_columns(cache: Path, where: Iterable[str]) -> dict[str, list[bool]]:
    """Return what the SQL of conditions says of each record that is not odd; those without SQL are left out."""
    values: Values = {}
    sql = [one for text in where if (one := as_sql(Condition.parse(text), values)) is not None]
    files = texts([str(file) for file in cache.rglob("*.parquet")])
    statement = (
        f"SELECT segment || ':' || \"offset\", {', '.join(['true', *sql])} FROM read_parquet({files}) WHERE NOT odd"
    )
    with duckdb.connect() as connection:
        return {key: list(said) for key, _, *said in connection.execute(statement, values).fetchall()}


@pytest.mark.servers
@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=50)
@given(st.lists(records, min_size=1, max_size=12), st.data(), st.booleans())
def test_conditions_find_what_python_finds(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], data: st.DataObject, compressed: bool
) -> None:
    drawn = data.draw(st.lists(conditions_on(rows), min_size=10, max_size=30))
    directory, cache = tmp_path_factory.mktemp("segments"), tmp_path_factory.mktemp("cache")
    path = write_segment(directory, rows, resource=RESOURCES)
    by_key = {
        key: {"severity": number, **record} if (number := severity(record)) is not None else record
        for key, record in lines_of(path, RESOURCES).items()
    }
    if compressed:
        path.unlink()
        write_segment(directory, rows, resource=RESOURCES, compressed=True)
    table = open_table(directory, cache)
    in_columns = [text for text in drawn if as_sql(Condition.parse(text), {}) is not None]
    for key, said in said_by_columns(cache, in_columns).items():
        assert said == [Condition.parse(text).holds(by_key[key]) for text in in_columns], (by_key[key], in_columns)
    by_lines = [text for text in drawn if text not in in_columns]
    for where in ([], drawn[:2], by_lines[:1]):
        assert found(table, where=where) == expected(by_key, where), where
    answer = ask(table, "aggregate", where=drawn[:1], heatmap="duration_s")
    assert sum(answer["count"]) == len(expected(by_key, drawn[:1]))
    assert found(table, where=drawn[:1], order="oldest") == expected(by_key, drawn[:1])


EDGES = [0, 1, 2**52, 2**53 - 1, 2**53, 2**53 + 4, 10**16, 2**63 - 1, 2**63, 2**64 - 1, 2**64, int(sys.float_info.max)]


@pytest.mark.servers
@pytest.mark.parametrize("field", ["duration_s", "engine.queued_s", "http.response.status_code", "chunks"])
def test_numbers_that_no_float_has_are_compared_exactly(tmp_path: Path, field: str) -> None:
    kind, most = (float, math.inf) if field.endswith("_s") else (int, 2**63 - 1)
    values = [kind(sign * edge) for edge in EDGES for sign in (1, -1) if edge <= most]
    rows = [{"timestamp": stamp(1), "pid": 1, field: value} for value in values]
    path = write_segment(tmp_path, rows, resource=RESOURCES)
    open_table(tmp_path, tmp_path / "cache")
    by_key = lines_of(path, RESOURCES)
    numbers = [
        f"{sign}{text}" for edge in EDGES for text in (edge, edge + 1, edge - 1, f"{edge}.5") for sign in ("", "-")
    ]
    for operator in ("=", "!=", "<", "<=", ">", ">="):
        where = [f"{field}{operator}{number}" for number in numbers]
        said = said_by_columns(tmp_path / "cache", where)
        assert len(said) >= 8
        for key, holds in said.items():
            assert holds == [Condition.parse(text).holds(by_key[key]) for text in where], by_key[key]


@pytest.mark.parametrize("member", ["gen_ai", "http", "http.response", "service.name", "severity", "status", "model"])
def test_a_member_that_hides_a_column_is_found_by_its_own_value(tmp_path: Path, member: str) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    plain = {"timestamp": stamp(1), "event_name": "request", "pid": 1, "http.response.status_code": 200}
    path = write_segment(logs, [plain, {**plain, member: "mine"}], resource=RESOURCES)
    table = open_table(logs, tmp_path / "cache")
    lines = lines_of(path, RESOURCES)
    assert len(found(table, where=[f"{member}=mine"])) == 1
    for where in (f"{member}=mine", f"{member}!=mine", "status=200", "service.name=chat"):
        assert found(table, where=[where]) == expected(lines, [where]), where


def severity(record: Mapping[str, Any]) -> int | None:
    names = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"]
    text = record.get("severity_text")
    return 1 + 4 * names.index(text) if text in names else None


@pytest.mark.parametrize("text", ["", "outcome", "=x", " =x", "a b", "a!b"])
def test_text_that_is_no_condition_is_refused_as_python_refuses_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="must be FIELD") as theirs:
        Condition.parse(text)
    (tmp_path / "logs").mkdir()
    with pytest.raises(ValueError, match="must be FIELD") as ours:
        ask(Table([tmp_path / "logs"], None, tmp_path), "rows", where=[text])
    assert str(theirs.value).split(": ")[1] in str(ours.value)


NOT_A_NUMBER = "'chunk_gap_mean_us>2 ms': chunk_gap_mean_us is a number, but '2 ms' is not"


@pytest.mark.parametrize(
    ("where", "wrong"),
    [
        ("outcome==ok", "'outcome==ok': == is no operator: write outcome=ok"),
        ("outcome=~ok", "'outcome=~ok': =~ is no operator: write outcome~ok"),
        (
            "duration_s>100ms",
            "'duration_s>100ms': duration_s is a number, but '100ms' is not; in seconds, duration_s>0.1",
        ),
        ("chunk_gap_mean_us>2 ms", f"{NOT_A_NUMBER}; in microseconds, chunk_gap_mean_us>2000"),
        ("status=5xx", "'status=5xx': status is a number, but '5xx' is not"),
    ],
)
@pytest.mark.parametrize("command", [["tail"], ["stats"], ["export", "--format", "perfetto", "-o", "-"]])
def test_a_condition_that_can_hardly_be_meant_so_is_refused(
    command: list[str], where: str, wrong: str, tmp_path: Path
) -> None:
    write_segment(tmp_path, [request(1)])
    done = run(*command, str(tmp_path), "--where", where)
    said = f"Error: Invalid value for --where: {wrong} (see inference-logging {command[0]} --help)\n"
    assert done == (2, "", said)
