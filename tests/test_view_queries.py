"""Questions of the page: what is taken, and the sentence for what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_logging.read.view.bounds import MOST_BYTES, bounded
from inference_logging.read.view.meanings import described, fields_with_meaning
from inference_logging.read.view.queries import AGGREGATE, LONGEST_QUERY_BYTES, ROWS, VALUES, QueryError, read
from inference_logging.read.where import Condition, written


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
        ({"where": ["outcome"]}, "q.where[0]: 'outcome': must be FIELD, one of"),
        ({"where": [1]}, "q.where[0]=1: must be a text"),
        ({"where": ["outcome==ok"]}, "q.where[0]='outcome==ok': write =, outcome=ok"),
        ({"where": ["seq=1", "status=>5"]}, "q.where[1]='status=>5': write >=, status>=5"),
        ({"where": ["outcome<>ok"]}, "q.where[0]='outcome<>ok': write !=, outcome!=ok"),
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


@pytest.mark.parametrize("value", ["=a", ">a", "<a>", "== a", "a==b"])
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
    answer = json.loads(content := bounded(json.dumps({"rows": rows, "matched": 60}).encode()))
    assert len(content) <= MOST_BYTES
    assert (answer["matched"], [row["key"] for row in answer["rows"]]) == (60, [row["key"] for row in rows])
    assert {row["message"].partition(" … ")[2] for row in answer["rows"]} == {"(1,000,000 characters)"}
    small = b'{"rows": [{"key": "1:0", "message": "x"}]}'
    assert bounded(small) is small
