"""`inference-logging query`: SQL over plain, compressed, live and differing segments; reading only; three forms."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from inference_logging import Logger
from inference_logging.read.query.lines import common
from inference_logging.read.query.questions import QUESTIONS
from inference_logging.read.segments.columns import HEAD, LOGS, NONE, RESOURCE
from inference_logging.read.view.app import STATIC
from tests.kit.command_line import run
from tests.kit.segment_files import log, request, write_segment
from tests.kit.signatures import Configure


def rows(sql: str, directory: Path, *options: str) -> list[dict[str, Any]]:
    done = run("query", sql, str(directory), "--format", "json", *options)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Write a compressed, a plain and a live segment, whose records have different fields."""
    write_segment(tmp_path, [request(1), request(2, "error", duration_s=2.5), log(3)], compressed=True)
    attributes = {"n": 3, "name": "a,b"}
    records = [request(4, gen_ai__response__model="m"), log(5, attributes=attributes), log(6, event_name="step", n=1)]
    write_segment(tmp_path, records, number=2, second=4, dropped={"queue_full": {"INFO": 1}})
    live = [log(7, "live", event_name="step", n=2.5), log(8, event_name="step", n="text")]
    write_segment(tmp_path, live, number=1, second=7, prefix="other", sealed=False, tail=b'{"timestamp":"2026-11-2')
    return tmp_path


def test_the_three_tables_have_the_records_of_all_segments(directory: Path) -> None:
    assert rows("SELECT count(*) AS n, sum(duration_s) AS s FROM requests", directory) == [{"n": 3, "s": 3.5}]
    assert rows("SELECT count(*) AS n FROM logs", directory) == [{"n": 2}]
    assert rows("SELECT event_name, count(*) AS n FROM records GROUP BY ALL ORDER BY n, 1", directory) == [
        {"event_name": "log", "n": 2},
        {"event_name": "request", "n": 3},
        {"event_name": "step", "n": 3},
    ]


def test_fields_of_any_type_that_occur_in_some_segments_only_are_columns_of_records(directory: Path) -> None:
    found = rows("SELECT n FROM records WHERE event_name = 'step' ORDER BY timestamp", directory)
    assert [str(row["n"]) for row in found] == ["1", "2.5", "text"]


def test_a_field_that_only_the_last_of_many_segments_has_is_found(tmp_path: Path) -> None:
    for number in range(1, 41):
        record = {**log(number, event_name="step"), f"field{number}": number}
        write_segment(tmp_path, [record], number=number, second=number)
    assert rows("SELECT sum(field1) AS a, sum(field40) AS z FROM records", tmp_path) == [{"a": 1, "z": 40}]


def test_memory_does_not_grow_with_the_number_of_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, "600MiB")
    for number in range(1, 31):
        write_segment(tmp_path, [log(number, event_name="step", n=number)], number=number)
    assert rows("SELECT sum(n) AS n FROM records", tmp_path) == [{"n": 30 * 31 / 2}]


VALUES: dict[str, list[Any]] = {
    "numbers": [1, 2.5], "large": [1, 1 << 63], "same": [1, 2],
    "number_or_text": [1, "a"], "flag_or_text": [True, "a"],
    "flag_or_number": [True, 3],
    "time_or_number": ["2026-11-21", 1], "time_or_text": ["2026-11-21", "x"],
    "times": ["2026-11-21", "2026-11-21T05:00:00Z"], "id_or_text": ["2bd5ccaa-6b39-4e3c-9b39-6b394e3c9b39", "x"],
    "objects": [{"a": 1}, {"b": "x"}], "different_inside": [{"a": 1, 'b"c': 1}, {"a": "x", 'b"c': 2.5}],
    "deep": [{"a": [1]}, {"a": 1}], "object_or_text": [{"a": 1}, "x"], "lists": [[1], ["a"]],
    "of_numbers": [[1], [2.5]], "list_or_one": [[1], 1],
}  # fmt: skip


@pytest.mark.servers
@pytest.mark.parametrize("name", VALUES)
def test_a_field_has_the_same_type_whether_few_or_many_segments_are_seen_together(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, value in enumerate(VALUES[name], 1):
        write_segment(tmp_path, [log(number, event_name="step", **{name: value})], number=number)
    sql = f"SELECT typeof({name}) AS kind, CAST({name} AS VARCHAR) AS text FROM records ORDER BY seq"
    together = rows(sql, tmp_path)
    limited(monkeypatch, "200MiB")
    assert rows(sql, tmp_path) == together


def test_a_field_that_is_null_in_one_segment_has_the_values_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine says JSON of a field without a value, and later versions NULL."""
    for number, value in enumerate([None, 5, None], 1):
        write_segment(tmp_path, [log(number, event_name="step", often=value)], number=number)
    limited(monkeypatch, "200MiB")
    found = rows("SELECT CAST(often AS VARCHAR) AS text FROM records ORDER BY seq", tmp_path)
    assert [row["text"] for row in found] == [None, "5", None]
    null, bigint = duckdb.sqltype('"NULL"'), duckdb.sqltype("BIGINT")
    assert common(null, bigint) == common(bigint, null) == "BIGINT"


def limited(monkeypatch: pytest.MonkeyPatch, memory: str) -> None:
    """Give the engine so much, as it has in a small container."""
    connect = duckdb.connect

    def connected(database: str, config: dict[str, str] | None = None) -> Any:
        return connect(database, config={**(config or {}), "memory_limit": memory})

    monkeypatch.setattr(duckdb, "connect", connected)


def test_a_field_that_no_record_has_is_a_column_without_values(directory: Path, tmp_path: Path) -> None:
    sql = 'SELECT count("error.type") AS errors, count("gen_ai.response.model") AS models FROM requests'
    assert rows(sql, directory) == [{"errors": 0, "models": 1}]
    empty = tmp_path / "empty"
    write_segment(empty, [])
    assert rows(sql, empty) == [{"errors": 0, "models": 0}]
    assert rows("SELECT * FROM records", empty) == []


def test_only_the_segments_of_a_named_service_are_read(directory: Path) -> None:
    assert rows("SELECT count(*) AS n FROM records", directory, "--prefix", "other") == [{"n": 2}]


def test_times_are_times_and_nested_values_are_reached(directory: Path) -> None:
    assert rows("SELECT max(timestamp) - min(timestamp) AS d, max(timestamp) AS t FROM records", directory) == [
        {"d": 7.0, "t": "2026-11-21T05:00:08Z"}
    ]
    sql = "SELECT attributes, attributes->>'name' AS name FROM logs WHERE attributes IS NOT NULL"
    assert rows(sql, directory) == [{"attributes": {"n": 3, "name": "a,b"}, "name": "a,b"}]


def test_every_record_can_be_read_once_a_process_has_ended(configure: Configure, tmp_path: Path) -> None:
    config = configure(directory=tmp_path / "segments")
    with Logger(config) as logger:
        assert logger.event("step", ["n"])(1)
    ended = {"event_name": "process.ended", "ended": "2026-11-21T05:00:09.123456789Z"}
    write_segment(config.directory, [log(9, **ended)], prefix="other")
    found = rows("SELECT * FROM records ORDER BY timestamp", config.directory)
    assert {"step", "process.ended"} <= {row["event_name"] for row in found}
    # DuckDB 1 reads such a time to the nanosecond, DuckDB 2 to the microsecond.
    assert re.fullmatch(r"2026-11-21T05:00:09\.123456(789)?Z", found[0]["ended"])


@pytest.mark.parametrize(
    ("sql", "answer"),
    [
        ("SELECT now() BETWEEN '2000-01-01' AND '2100-01-01' AS n", {"n": True}),
        ("SELECT TIMESTAMPTZ '2026-11-21T07:00:00+02:00' AS t", {"t": "2026-11-21T05:00:00Z"}),
        ("SELECT [TIMESTAMPTZ '2026-11-21T05:00:00Z'] AS t -- in a list", {"t": ["2026-11-21T05:00:00Z"]}),
        ("SELECT {'a': TIMESTAMPTZ '2026-11-21T05:00:00Z'} AS \"a b\";", {"a b": {"a": "2026-11-21T05:00:00Z"}}),
    ],
)
def test_times_with_a_zone_are_shown_as_utc(sql: str, answer: dict[str, Any], directory: Path) -> None:
    assert rows(sql, directory) == [answer]


def test_the_order_of_an_answer_with_times_of_a_zone_is_the_statements(directory: Path) -> None:
    sql = "SELECT timestamp::TIMESTAMPTZ AS t FROM records ORDER BY t DESC"
    found = [row["t"] for row in rows(sql, directory)]
    assert len(found) > 5
    assert found == sorted(found, reverse=True)


def test_csv_is_quoted_and_has_a_head(directory: Path) -> None:
    done = run(
        "query", "SELECT attributes, message, NULL AS x FROM logs ORDER BY timestamp", str(directory), "--format=csv"
    )
    assert list(csv.reader(io.StringIO(done.out))) == [
        ["attributes", "message", "x"],
        ["", "hello", ""],
        ['{"n":3,"name":"a,b"}', "hello", ""],
    ]


def test_the_table_has_numbers_to_the_right_and_nothing_that_acts_on_a_terminal(tmp_path: Path) -> None:
    write_segment(tmp_path, [log(1, "\x1b[2Jab"), log(2, "long " * 3)])
    done = run("query", "SELECT message, 12345 AS number, NULL AS nothing FROM logs ORDER BY timestamp", str(tmp_path))
    assert done.out.splitlines() == [
        "message          number  nothing",
        "───────────────  ──────  ───────",
        "\\u001b[2Jab       12345",
        "long long long    12345",
    ]


def test_a_float_in_a_table_is_rounded_and_that_of_a_program_is_not(tmp_path: Path) -> None:
    write_segment(tmp_path, [log(1)])
    question = ["query", "SELECT 0.1::DOUBLE + 0.2 AS a, 4::DOUBLE AS b, 'nan'::DOUBLE AS c", str(tmp_path)]
    assert run(*question).out.split()[-3:] == ["0.3", "4", "nan"]
    assert run(*question, "--format=csv").out.splitlines()[1].startswith("0.30000000000000004,4.0,")


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO '{0}/stolen'",
        "COPY (SELECT 1) TO '{1}'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{1}'",
        "DELETE FROM requests",
        "DROP VIEW requests",
        "CREATE TABLE t AS SELECT 1",
        "ATTACH '{0}/stolen'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "SELECT 1; SELECT 2",
        "PRAGMA enable_profiling",
        "",
    ],
)
def test_what_is_not_one_select_is_refused(sql: str, tmp_path: Path) -> None:
    segment = write_segment(tmp_path, [log(1)])
    before = segment.read_bytes()
    done = run("query", sql.format(tmp_path, segment), str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert "must be one SELECT" in done.err
    assert segment.read_bytes() == before
    assert list(tmp_path.iterdir()) == [segment]


@pytest.mark.parametrize("source", ["read_text('{}')", "read_csv('{}')", "'{}'", "glob('/etc/*')"])
def test_a_select_can_not_read_other_files(source: str, directory: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    done = run("query", f"SELECT * FROM {source.format(secret)}", str(directory))
    assert (done.code, done.out) == (1, "")
    assert "disabled" in done.err


@pytest.mark.parametrize(
    ("sql", "code"),
    [("SELECT nope FROM requests", 2), ("SELEC 1", 2), ("SELECT 'a'::INT", 1), ("SELECT 1 FROM nope", 2)],
)
def test_a_wrong_statement_fails_with_the_engines_words_on_their_own_lines(
    sql: str, code: int, directory: Path
) -> None:
    done = run("query", sql, str(directory))
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("Error: ")
    lines = done.err.splitlines()
    shown = next(number for number, line in enumerate(lines) if line.startswith("LINE 1: "))
    assert lines[shown].endswith(sql)
    assert lines[shown + 1].strip("^ ") == ""


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT http.route FROM requests", 'Put a name with dots in double quotes, "http.route", and the whole'),
        ("SELECT 1 FROM requests WHERE k8s.pod.name = 'a'", 'in double quotes, "k8s.pod.name", and the whole'),
        ("SELECT gen_ai.request.model FROM requests", 'in double quotes, "gen_ai.request.model", and the whole'),
        ("SELECT status FROM requests", 'For status write "http.response.status_code".'),
        ("SELECT 1 FROM requests WHERE model = 'm'", 'For model write coalesce("gen_ai.response.model", '),
        ("SELECT stauts FROM requests", 'stauts is no column; the nearest: "http.response.status_code".'),
        ("SELECT r.input_tokens FROM requests r", 'the nearest: "gen_ai.usage.input_tokens", "gen_ai.usage.audio'),
        ("SELECT duration FROM requests", "duration is no column; the nearest: duration_s."),
        ("SELECT user.tier FROM logs", "If the application added this field, write attributes->>'$.user.tier'."),
        ('SELECT "user.tier" FROM requests', "user.tier is no column. If the application added this field, write"),
        ("SELECT total FROM logs", "If the application added this field, write attributes->>'total'."),
    ],
)
def test_a_name_that_sql_does_not_know_is_written_right(sql: str, hint: str, directory: Path) -> None:
    done = run("query", sql, str(directory))
    assert (done.code, hint in done.err.splitlines()[-1]) == (2, True), done.err


def test_a_wrong_statement_that_names_columns_rightly_gets_no_hint(directory: Path) -> None:
    done = run("query", 'SELECT nosuch AS model, "http.route" FROM requests', str(directory))
    assert (done.code, "double quotes" in done.err or "For model" in done.err) == (2, False)


@pytest.mark.servers
@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_no_rows_are_said(form: str, directory: Path) -> None:
    done = run("query", "SELECT pid FROM requests WHERE outcome = 'none'", str(directory), "--format", form)
    assert done.code == 0
    assert done.err == "inference-logging query: no rows: 3 requests read, none matches\n"
    done = run("query", "SELECT pid FROM requests WHERE 'http.route' = '/'", str(directory), "--format", form)
    assert done.err.endswith("""'http.route' is a text: put the name of a column in double quotes, "http.route"\n""")
    assert run("query", "SELECT count(*) FROM requests", str(directory), "--format", form).err == ""


@pytest.mark.servers
@pytest.mark.parametrize("options", [[], ["--no-index"]])
def test_a_statement_without_rows_says_how_many_records_it_read(directory: Path, options: list[str]) -> None:
    def why(sql: str, place: Path) -> str:
        return run("query", sql, str(place), *options).err.partition("no rows: ")[2].strip()

    texts = "SELECT severity_text FROM logs WHERE severity_text = 'requests'"
    assert why(texts, directory) == "2 application records read, none matches"
    both = "SELECT r.pid FROM requests r JOIN logs l ON r.pid = l.pid + 1"
    assert why(both, directory) == "3 requests and 2 application records read, none matches"
    write_segment(directory / "empty", [log(1)])
    assert why("SELECT pid FROM requests", directory / "empty") == "there are no requests"
    assert why("SELECT 1 WHERE false", directory) == "the statement reads no table"


def test_the_form_that_a_hint_gives_finds_a_nested_field(tmp_path: Path) -> None:
    write_segment(tmp_path, [log(1, attributes={"user": {"tier": "gold"}})])
    done = run("query", "SELECT user.tier FROM logs", str(tmp_path))
    form = done.err.rpartition("write ")[2].strip().removesuffix(".")
    assert rows(f"SELECT {form} AS tier FROM logs", tmp_path) == [{"tier": "gold"}]


def test_what_a_wrong_statement_holds_does_not_act_on_a_terminal(directory: Path) -> None:
    done = run("query", "SELECT \x1b[2J", str(directory))
    assert "\\u001b[2J" in done.err
    assert "\x1b" not in done.err


def test_the_head_and_the_logs_have_their_columns(directory: Path) -> None:
    found = [row["column_name"] for row in rows("DESCRIBE logs", directory)]
    assert found == [*HEAD, *LOGS, *RESOURCE]


def test_each_row_has_the_resource_that_the_header_of_its_segment_names(tmp_path: Path) -> None:
    for number, pod in enumerate(["pod-a", "pod-b"], 1):
        resource = {"k8s.pod.name": pod, "service.name": "svc"}
        records = [request(number), log(number)]
        write_segment(tmp_path, records, number=number, second=number, resource=resource, compressed=pod == "pod-b")
    write_segment(tmp_path, [request(9)], number=3, second=9)
    found = rows('SELECT "k8s.pod.name" AS pod, count(*) AS n FROM records GROUP BY ALL ORDER BY pod', tmp_path)
    assert found == [{"pod": "pod-a", "n": 2}, {"pod": "pod-b", "n": 2}, {"pod": None, "n": 1}]
    for table in ("requests", "logs"):
        found = rows(f'SELECT "service.name" AS s FROM {table} WHERE "k8s.pod.name" = \'pod-b\'', tmp_path)
        assert found == [{"s": "svc"}]


def test_recorded_headers_are_columns_of_requests(tmp_path: Path) -> None:
    write_segment(tmp_path, [request(1, **{"http.request.header.x-team": "red"}), request(2)])
    found = rows('SELECT "http.request.header.x-team" AS team FROM requests ORDER BY timestamp', tmp_path)
    assert found == [{"team": "red"}, {"team": None}]


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_a_ready_made_question_runs_where_no_record_has_the_new_fields(name: str, directory: Path) -> None:
    done = run("query", "--example", name, str(directory), "--format", "json")
    has_rows = name not in ("killed-in-flight", "cache-hit-by-prefix")
    assert (done.code, bool(done.out), "no rows" in done.err) == (0, has_rows, not has_rows)


def test_the_questions_find_the_slow_tenant_and_its_pod(tmp_path: Path) -> None:
    for number, (pod, tenant, seconds) in enumerate([("pod-a", "red", 1.0), ("pod-b", "blue", 9.0)], 1):
        records = [
            request(number * 100 + at, duration_s=seconds + at / 10, tenant__id=tenant, adjusted_count=2.0)
            for at in range(5)
        ]
        write_segment(tmp_path, records, number=number, second=number, resource={"k8s.pod.name": pod})

    def first(name: str) -> dict[str, Any]:
        done = run("query", "--example", name, str(tmp_path), "--format", "json")
        found = json.loads(done.out.splitlines()[0])
        assert isinstance(found, dict)
        return found

    slow = first("slow-tenants")
    assert (slow["tenant"], slow["requests"], slow["p50_s"]) == ("blue", 10, 9.2)
    assert (first("slowest-pods")["pod"], first("slowest-requests")["duration_s"]) == ("pod-b", 9.4)


def test_the_questions_weigh_aborts_tokens_and_cached_prefixes(tmp_path: Path) -> None:
    usage: dict[str, Any] = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 10}
    cached: dict[str, Any] = {"gen_ai.usage.cache_read.input_tokens": 50}
    records = [
        request(1, adjusted_count=3.0, **usage, **cached),
        request(2, "client_disconnect", duration_s=2.0, adjusted_count=1.0, **usage),
        request(3, "process_died", http__route="/b", chunks=4, error__type="process_died"),
    ]
    write_segment(tmp_path, records)

    def answer(name: str) -> list[dict[str, Any]]:
        done = run("query", "--example", name, str(tmp_path), "--format", "json")
        return [json.loads(line) for line in done.out.splitlines()]

    assert (answer("abort-rate-by-route")[0]["abort_rate"], answer("abort-rate-by-route")[0]["requests"]) == (0.25, 4)
    assert answer("tokens-by-tenant")[0]["input_tokens"] == 400
    prefix = answer("cache-hit-by-prefix")[0]
    assert (prefix["requests"], prefix["input_tokens"], prefix["hit_rate"]) == (4, 400, 0.375)
    assert {row["outcome"] for row in answer("errors-by-model")} == {"client_disconnect", "process_died"}
    assert [row["chunks"] for row in answer("killed-in-flight")] == [4]
    # A client that left is no failure.
    assert answer("models-over-time")[0]["failed"] == 1


def test_requests_without_a_value_have_one_name_everywhere(tmp_path: Path) -> None:
    record = {**request(1, "error"), "url.path": "/nowhere", "http.response.status_code": None}
    write_segment(tmp_path, [{name: value for name, value in record.items() if name != "http.route"}])

    def answer(example: str) -> dict[str, Any]:
        row: dict[str, Any] = json.loads(run("query", "--example", example, str(tmp_path), "--format", "json").out)
        return row

    assert answer("abort-rate-by-route")["route"] == answer("slow-tenants")["tenant"] == NONE
    assert (answer("slowest-pods")["pod"], answer("errors-by-model")["model"]) == (NONE, NONE)
    found = json.loads(run("stats", str(tmp_path), "--json").out)
    assert [list(found[name]) for name in ("routes", "models", "status_classes")] == [[NONE], [NONE], [NONE]]
    assert f'export const NONE = "{NONE}";' in (STATIC / "text.js").read_text()


def test_a_question_is_described_shown_and_not_mixed_with_sql(directory: Path) -> None:
    listed = run("query", "--example", "list").out
    assert [line.split()[0] for line in listed.splitlines()] == list(QUESTIONS)
    shown = run("query", "--example", "slow-tenants", "--show-sql").out
    answer = run("query", "--example", "slow-tenants", str(directory), "--format", "json").out
    assert rows(shown, directory) == [json.loads(line) for line in answer.splitlines()]
    for lines in (one.splitlines() for question in QUESTIONS.values() for one in (question.sql, question.clickhouse)):
        assert all(line.lstrip().startswith("GROUP BY") for line in lines if "GROUP BY" in line), lines
        assert max(map(len, lines)) < 200
    assert run("query", "SELECT 1", str(directory), "--example", "slow-tenants").code == 2
    assert run("query").code == 2


def test_where_duckdb_is_missing_the_extra_is_named(directory: Path) -> None:
    code = "import sys; sys.modules['duckdb'] = None; from inference_logging.cli.main import main; main()"
    command = [sys.executable, "-c", code, "query", "SELECT 1", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "query needs duckdb: pip install 'inferlog[query]'" in done.stderr


def test_no_progress_stands_among_the_rows_within_a_python_without_a_file() -> None:
    opened = "from inference_logging.read.table.engine import connected; "
    shown = """print(connected().execute("SELECT current_setting('enable_progress_bar')").fetchall())"""
    done = subprocess.run([sys.executable, "-c", opened + shown], capture_output=True, text=True, check=True)
    assert done.stdout == "[(False,)]\n"
