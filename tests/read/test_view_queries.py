"""Questions of pages: choices, times, groups, and what they export, as a table, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_logging.read.table.table import Table
from inference_logging.read.view import export
from inference_logging.read.view.export import FORMATS, Exports
from inference_logging.read.view.fields import described, fields_with_meaning
from inference_logging.read.view.queries import (
    AGGREGATE,
    LONGEST_QUERY_BYTES,
    MOST_BYTES,
    ROWS,
    VALUES,
    QueryError,
    bounded,
    read,
)
from inference_logging.read.view.record import Records
from inference_logging.read.view.workers import GoneError
from inference_logging.read.where import Condition, written
from tests.kit.segment_files import log, request, stamp, write_segment
from tests.kit.view_server import Answer, Client, serving


def refused(query: object, checks: Any = ROWS, **more: Any) -> str:
    text = query if isinstance(query, str) else json.dumps(query)
    with pytest.raises(QueryError) as error:
        read(text, checks, **more)
    return str(error.value)


def test_every_parameter_of_rows_is_taken_as_it_is() -> None:
    query = {
        "where": ["outcome=error", "duration_s>1", "url.path~/v1/"],
        "events": ["request"],
        "from_ns": 1_700_000_000_000_000_000,
        "to_ns": 1_800_000_000_000_000_000,
        "trace": "4bf92f",
        "text": "hello",
        "order": "-duration_s",
        "limit": 10,
        "after": "cursor",
        "fields": ["duration_s"],
        "directories": ["/logs"],
        "budget_s": 0.5,
    }
    assert read(json.dumps(query), ROWS) == query


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("status>=500", "http.response.status_code>=500"),
        ("route~/chat/", "http.route~/chat/"),
        ("method!=GET", "http.request.method!=GET"),
        ("model=llama", "model=llama"),
    ],
)
def test_short_names_of_fields_are_those_of_the_command_line(short: str, full: str) -> None:
    assert read(json.dumps({"where": [short]}), ROWS)["where"] == [full]


def test_a_short_name_of_several_fields_stays_since_each_record_decides() -> None:
    assert Condition.parse("model=llama").in_full() == "model=llama"


def test_times_may_be_texts_since_a_browser_has_no_64_bits() -> None:
    assert read('{"from_ns": "1732432000123456789"}', ROWS)["from_ns"] == 1732432000123456789


def test_nothing_and_null_are_the_defaults() -> None:
    assert read(None, ROWS) == read("", ROWS) == read('{"where": null}', ROWS) == {"budget_s": 2.0}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("{", "q='{': must be JSON"),
        ("[1]", "q='[1]': must be a JSON object"),
        ("NaN", "must be JSON"),
        ({"limit": 0}, "q.limit=0: must be a whole number from 1 to 1000"),
        ({"limit": 1001}, "q.limit=1001: must be"),
        ({"limit": 1.5}, "q.limit=1.5: must be"),
        ({"limit": True}, "q.limit=true: must be"),
        ({"limit": "ten"}, "q.limit='ten': must be"),
        ({"limit": "١"}, "q.limit='١': must be"),
        ({"from_ns": -1}, "q.from_ns=-1: must be a whole number from 0"),
        ({"to_ns": 1 << 63}, f"q.to_ns={1 << 63}: must be"),
        ({"from_ns": 2, "to_ns": 1}, "q.from_ns=2: must not be after to_ns=1"),
        ({"where": "outcome=ok"}, "q.where='outcome=ok': must be a list"),
        ({"where": ["outcome"]}, "q.where[0]='outcome': must be FIELD, one of"),
        ({"where": [1]}, "q.where[0]=1: must be a text"),
        ({"where": ["outcome==ok"]}, "q.where[0]='outcome==ok': == is no operator: write outcome=ok"),
        ({"where": ["seq=1", "status=>5"]}, "q.where[1]='status=>5': => is no operator: write status>=5"),
        ({"where": ["outcome<>ok"]}, "q.where[0]='outcome<>ok': <> is no operator: write outcome!=ok"),
        ({"where": ["status=5xx"]}, "q.where[0]='status=5xx': status is a number, but '5xx' is not"),
        ({"where": ["duration_s>100ms"]}, "'100ms' is not; in seconds, duration_s>0.1"),
        ({"where": ["a=b"] * 101}, "q.where="),
        ({"events": {"a": 1}}, 'q.events={"a":1}: must be a list'),
        ({"trace": "xyz"}, "q.trace='xyz': must be the first of a trace id's 32"),
        ({"trace": ""}, "q.trace='': must be"),
        ({"text": 5}, "q.text=5: must be a text"),
        ({"text": "x" * 5000}, "q.text='xxx"),
        ({"budget_s": 0}, "q.budget_s=0: must be a number of seconds above 0"),
        ({"budget_s": 3600}, "q.budget_s=3600: must be"),
        ({"budget_s": True}, "q.budget_s=true: must be"),
        ({"wher": []}, "q.wher=[]: unknown, the nearest is 'where'"),
        ({"since": "now"}, "q.since='now': unknown"),
    ],
)
def test_a_wrong_question_names_parameter_and_value(query: object, said: str) -> None:
    assert said in refused(query)


@pytest.mark.parametrize("value", ["=a", ">a", "~a", "<a>", "== a", "a==b"])
def test_a_value_that_looks_like_an_operator_can_be_asked_for(value: str) -> None:
    asked = written("tenant.id", "=", value)
    assert read(json.dumps({"where": [asked]}), ROWS)["where"] == [asked]
    assert Condition.parse(asked).holds({"tenant.id": value})


def test_other_questions_have_parameters_of_their_own() -> None:
    assert read('{"buckets": 60, "group_by": "tenant.id", "heatmap": "duration_s"}', AGGREGATE)["buckets"] == 60
    assert "q.buckets=0" in refused({"buckets": 0}, AGGREGATE)
    assert "a.heatmap_rows=1000" in refused({"heatmap_rows": 1000}, AGGREGATE, name="a")
    assert refused({}, VALUES, required=("field",)) == "q.field: is required"


def test_a_long_question_is_refused_before_it_is_read() -> None:
    said = refused(json.dumps({"text": "x" * LONGEST_QUERY_BYTES}))
    assert f"at most {LONGEST_QUERY_BYTES:,} bytes" in said
    assert len(said) < 200


def _read(text: str) -> tuple[set[str], str | None]:
    try:
        return set(read(text, ROWS)), None
    except QueryError as error:
        return set(), str(error)


@settings(max_examples=30)
@given(st.recursive(st.none() | st.booleans() | st.floats(allow_nan=False) | st.text() | st.integers(), st.lists))
def test_no_value_of_any_parameter_raises_anything_else(value: Any) -> None:
    for name in ROWS:
        text = json.dumps({name: value})
        found, said = _read(text)
        assert found <= {name, "budget_s"}
        assert said is None or name in said or "must be JSON" in said
        assert said is None or len(said) < 400


@given(st.text())
def test_no_text_raises_anything_else(text: str) -> None:
    _, said = _read(text)
    assert said is None or said.startswith("q")


def test_every_known_field_has_a_meaning() -> None:
    found = {one["name"]: one for one in fields_with_meaning([])}
    assert [name for name, one in found.items() if not one["meaning"] and name != "attributes"] == []
    assert found["duration_s"]["unit"] == "s"
    assert found["duration_s"]["meaning"] == "Seconds until the last part of the answer."


def test_fields_of_the_index_come_first_and_an_unknown_one_has_no_meaning() -> None:
    found = fields_with_meaning([{"name": "app.own", "type": "text"}, {"name": "duration_s", "type": "number"}])
    assert [one["name"] for one in found[:2]] == ["app.own", "duration_s"]
    assert found[0] == {"name": "app.own", "type": "text", "unit": "", "meaning": "", "indexed": True}
    assert found[1]["indexed"]
    assert not found[2]["indexed"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("duration_s", "s"), ("chunk_gap_max_us", "us"), ("gen_ai.usage.output_tokens", "{token}"),
        ("gen_ai.response.output_tokens_per_second", "{token}/s"), ("engine.prompt_tokens_per_s", "{token}/s"),
        ("http.request.body.size", "By"), ("gen_ai.response.time_to_first_chunk", "s"), ("outcome", ""),
        ("gen_ai.response.time_per_output_token", "s"), ("chunks", "{chunk}"),
    ],
)  # fmt: skip
def test_each_unit_is_that_of_its_field(name: str, expected: str) -> None:
    assert described(name)["unit"] == expected


def test_an_answer_is_small_whatever_its_records_hold() -> None:
    rows = [{"key": f"{number}:0", "message": "x" * 1_000_000, "other": ["y" * 1000] * 500} for number in range(60)]
    answer = json.loads(content := bounded({"rows": rows, "matched": 60}))
    assert len(content) <= MOST_BYTES
    assert (answer["matched"], [row["key"] for row in answer["rows"]]) == (60, [row["key"] for row in rows])
    assert {row["message"].partition(" … ")[2] for row in answer["rows"]} == {"(1,000,000 characters)"}
    small = {"rows": [{"key": "1:0", "message": "x"}]}
    assert json.loads(bounded(small)) == small


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("http://example.com")']
FORMULAS += ["\n=1", " \r\n =1", "\u3000=1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff20SUM(A1)"]
BODY = json.dumps({"model": "llama", "messages": [{"role": "user", "content": "hello"}]})
OUTPUT = [{"role": "assistant", "parts": [{"type": "text", "content": "hi"}], "finish_reason": "stop"}]
INPUT = [{"role": "user", "parts": [{"type": "text", "content": "hello"}]}]
TOKENS: dict[str, Any] = {
    "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 3, "http.request.body": BODY,
    "gen_ai.input.messages": INPUT, "gen_ai.output.messages": OUTPUT,
}  # fmt: skip


def chunk(second: float, request_id: str, number: int, since_s: float) -> dict[str, Any]:
    record = log(second, request_id=request_id)
    return {**record, "event_name": "request.chunk", "chunk": number, "since_start_s": since_s}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory = tmp_path_factory.mktemp("logs")
    records = [
        *(request(10 + at, **{"tenant.id": text, "url.path": "/hostile"}) for at, text in enumerate(FORMULAS)),
        chunk(100.2, "a", 1, 0.2), chunk(100.6, "a", 2, 0.6), chunk(100.7, "b", 1, 0.1),
        request(101, request_id="a", duration_s=1.0, chunks=2, **TOKENS),
        request(102, request_id="b", duration_s=1.0, chunks=1, **TOKENS),
        request(103, "error", request_id="c", **TOKENS),
        log(104, "no request"),
    ]  # fmt: skip
    write_segment(directory, records, resource={"k8s.pod.name": "chat-0"})
    with serving([directory]) as made:
        yield made


def seq_of(at: int) -> int:
    sequence: int = request(at / 100)["seq"]
    return sequence


def download(client: Client, form: str, **query: Any) -> Answer:
    answer = client.get("api/export", format=form, q=query)
    assert answer.status == 200, answer
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert answer.headers["content-disposition"].startswith('attachment; filename="inference-logging-')
    return answer


def statement(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.headers["inference-logging-statement"])
    return found


def test_the_table_has_the_rows_as_seen_and_the_columns_as_chosen(client: Client) -> None:
    query = {"where": ["url.path!=/hostile"], "events": ["request"], "order": "newest"}
    columns = ["timestamp", "request_id", "outcome", "duration_s", "k8s.pod.name"]
    answer = download(client, "csv", **query, fields=columns)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    heads, *rows = csv.reader(io.StringIO(answer.body.decode(), newline=""))
    assert heads == columns
    assert rows == [
        [stamp(103), "c", "error", "0.5", "chat-0"],
        [stamp(102), "b", "ok", "1.0", "chat-0"],
        [stamp(101), "a", "ok", "1.0", "chat-0"],
    ]
    assert statement(answer) == {
        "format": "csv", "rows": 3, "complete": True, "faults": [],
        "conditions": {"where": ["url.path!=/hostile"], "events": ["request"], "order": "newest"},
    }  # fmt: skip


def test_no_cell_of_a_table_is_computed(client: Client) -> None:
    answer = download(client, "csv", where=["url.path=/hostile"], order="oldest", fields=["tenant.id", "=cmd()"])
    rows = list(csv.reader(io.StringIO(answer.body.decode(), newline="")))
    assert rows[0] == ["tenant.id", "'=cmd()"]
    assert [row[0] for row in rows[1:]] == [f"'{text}" for text in FORMULAS]


def test_a_negative_number_stays_a_number_and_lists_are_json(tmp_path: Path) -> None:
    write_segment(tmp_path, [log(1, n=-5, names=["=a", "b"], flag=True, none=None)])
    with serving([tmp_path]) as client:
        answer = download(client, "csv", fields=["n", "names", "flag", "none", "missing"])
        assert answer.body.decode().splitlines()[1] == '-5,"[""=a"",""b""]",true,,'


def test_a_table_of_many_pages_is_whole_and_one_above_the_bound_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segment(tmp_path, [request(at / 100) for at in range(2500)])
    with serving([tmp_path]) as client:
        answer = download(client, "csv", fields=["seq"], order="oldest")
        assert [int(line) for line in answer.body.decode().splitlines()[1:]] == [seq_of(at) for at in range(2500)]
        monkeypatch.setattr(export, "MOST_ROWS", 1500)
        answer = download(client, "csv", fields=["seq"])
        assert len(answer.body.splitlines()) == 1501
        assert statement(answer)["complete"] is False
        assert "at most 1,500 rows" in statement(answer)["faults"][0]


def test_the_replay_file_has_the_requests_of_the_filter_with_their_bodies(client: Client) -> None:
    answer = download(client, "openai-jsonl", where=["outcome=ok", "url.path!=/hostile"])
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert [line["custom_id"] for line in lines] == ["a", "b"]
    assert lines[0]["body"] == json.loads(BODY)
    assert lines[0]["recorded"]["k8s.pod.name"] == "chat-0"
    said = statement(answer)
    assert said["requests"]["exported"] == said["requests"]["read"] == 2
    assert said["complete"] is False  # these segments were not written by a listener
    assert said["conditions"]["where"] == ["outcome=ok", "url.path!=/hostile"]


def test_the_time_line_has_chunks_from_their_own_records(client: Client) -> None:
    answer = download(client, "perfetto", where=["url.path!=/hostile"])
    events = json.loads(answer.body)["traceEvents"]
    begun = {event["args"]["request_id"]: event["ts"] for event in events if event.get("cat") == "request"}
    chunks = sorted(event["ts"] for event in events if event.get("name") == "chunk")
    assert chunks == pytest.approx([begun["a"] + 200_000, begun["a"] + 600_000])


@pytest.mark.parametrize("form", [form for form in FORMATS if form not in ("csv", "parquet")])
def test_every_format_of_export_is_there(client: Client, form: str) -> None:
    answer = download(client, form, where=["outcome=ok", "url.path!=/hostile"])
    assert len(answer.body) > 10
    assert statement(answer)["format"] == form


def test_a_wrong_format_is_named_with_the_right_ones(client: Client) -> None:
    answer = client.get("api/export", format="excel")
    assert answer.status == 400
    assert answer.json()["error"].startswith("format='excel': must be one of csv, mooncake,")


def test_the_archive_has_the_file_and_its_statement(client: Client) -> None:
    answer = client.get("api/export", format="mooncake", q={}, statement="1")
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
        assert archive.namelist() == ["inference-logging-mooncake.jsonl", "statement.json"]
        assert json.loads(archive.read("statement.json"))["requests"]["exported"] == 3
        assert len(archive.read("inference-logging-mooncake.jsonl").splitlines()) == 3


def test_what_is_left_out_is_counted_and_nothing_above_the_bound_is_written(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "MOST_REQUESTS", 5)
    said = statement(download(client, "mooncake"))
    assert said["requests"]["read"] == 5
    assert sum(said["requests"]["left_out"].values()) == 5
    assert "a file has at most 5 requests" in said["faults"]


def test_an_export_of_a_client_that_has_left_is_given_up(tmp_path: Path) -> None:
    write_segment(tmp_path, [request(at / 100) for at in range(2500)])
    gone = threading.Event()

    class Leaving(Table):
        pages = 0

        def rows(self, query: Any) -> Any:
            self.pages += 1
            gone.set()
            return super().rows(query)

    index = Leaving([tmp_path], None, tmp_path / "cache")
    index.refresh(1.0)
    made: Table = index
    exports = Exports(made, Records(made, [tmp_path]), [tmp_path])
    for form in ("csv", "mooncake"):
        gone.clear()
        index.pages = 0
        with pytest.raises(GoneError):
            exports.make(form, {}, {"books": {}, "books_error": None}, gone)
        assert index.pages == 1
