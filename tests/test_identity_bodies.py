"""Members of a request's body, and whole bodies, where they are asked for."""

from __future__ import annotations

import json

import pytest

from inference_logging import Config
from inference_logging.errors import ConfigError
from tests.identity import BODY, NAMES, Configure, everything, records_of, served


def test_members_of_a_body_are_recorded_where_they_are_asked_for(keyed: Configure) -> None:
    record = served(keyed(record_body_fields=NAMES), {}, BODY)
    found = {name: record[f"openai.request.{name}"] for name in NAMES}
    assert json.loads(found.pop("metadata")) == BODY["metadata"]
    assert found == {name: BODY[name] for name in found}


def test_members_of_a_body_are_off_by_default(configure: Configure) -> None:
    assert not any(name.startswith("openai.") for name in served(configure(), {}, BODY))


def test_members_of_a_body_are_hashed_by_choice_and_never_recorded_against_the_clients_will(keyed: Configure) -> None:
    config = keyed(record_body_fields=["user:hash"])
    hashed, private = records_of(config, [{}, {"x-no-capture": "1"}], BODY)
    assert hashed["openai.request.user"].startswith("blake3-keyed:")
    assert b"user-7" not in everything(config.directory)
    assert [name for name in private if name.startswith("openai.")] == []


def test_a_member_behind_a_long_prompt_is_read_from_the_end_of_the_body(keyed: Configure) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 100_000}], "user": "user-7"}
    assert served(keyed(record_body_fields=["user"]), {}, body)["openai.request.user"] == "user-7"


@pytest.mark.parametrize("body", [b'{"user": nonsense, "x"', b'{"metadata": {"a" b}}', b"[]", b"\xff{"])
def test_a_body_that_is_no_json_leaves_a_line_that_is(keyed: Configure, body: bytes) -> None:
    assert served(keyed(record_body_fields=NAMES), {}, body)["outcome"] == "ok"


def test_a_body_is_kept_byte_for_byte_where_it_is_asked_for(configure: Configure) -> None:
    body = b'{ "model":"m",\n "messages": [{"role":"user","content":"\\u00e9 \xc3\xa9"}] }'
    record = served(configure(capture_body="raw"), {}, body)
    assert record["http.request.body"].encode() == body
    assert "http.request.body.truncated" not in record
    assert "gen_ai.input.messages" not in record, "only what is asked for"


def test_a_long_body_is_cut_and_says_so_and_a_private_one_is_not_kept(configure: Configure) -> None:
    config = configure(capture_body="raw", capture_text_bytes=8192)
    body = json.dumps({"model": "m", "prompt": "é" * 9000}, ensure_ascii=False).encode()
    long, private = records_of(config, [{}, {"x-no-capture": "yes"}], body)
    text = long["http.request.body"]
    assert body.decode().startswith(text)
    assert 8190 <= len(text.encode()) <= 8192
    assert long["http.request.body.truncated"] is True
    assert not any(name.startswith("http.request.body.t") or name == "http.request.body" for name in private)


def test_a_kept_body_is_redacted_as_all_texts_are(configure: Configure) -> None:
    config = configure(capture_body="raw", redact_patterns="email", redact_fields="password")
    body = {"model": "m", "prompt": "write to canary@example.com", "password": "hidden"}
    record = served(config, {}, body)
    assert "[redacted:email]" in record["http.request.body"]
    assert "hidden" not in json.dumps(record)


def test_a_kept_body_needs_room_in_a_record() -> None:
    with pytest.raises(ConfigError, match="max_record_bytes=65536: must be at least"):
        Config(capture_body="raw", capture_text_bytes="64KiB", max_record_bytes="64KiB")


TOOLS = [
    {
        "type": "function",
        "function": {"name": "find", "description": 'a "find" é', "parameters": {"n": [1, 2.5e3, None]}},
    },
    {"type": "function", "function": {"name": "own"}},
]
NAMED = [{"type": "function", "name": "find"}, {"type": "function", "name": "own"}]


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize(("mode", "expected"), [("full", TOOLS), ("names", NAMED)])
def test_tools_are_whole_where_that_is_asked_for_and_stand_there_once(
    configure: Configure, place: str, mode: str, expected: object
) -> None:
    long = {"messages": [{"role": "user", "content": "x" * 100_000}]}
    body = {"model": "m", "tools": TOOLS, **long} if place == "first" else {**long, "tools": TOOLS, "user": "u"}
    assert served(configure(capture_tools=mode), {}, body)["gen_ai.tool.definitions"] == expected


def test_of_tools_that_a_client_does_not_show_there_are_the_names(configure: Configure) -> None:
    record = served(configure(capture_tools="full"), {"x-no-capture": "1"}, {"tools": TOOLS})
    assert record["gen_ai.tool.definitions"] == NAMED


def test_of_tools_that_are_not_wholly_captured_there_are_the_names_that_were(configure: Configure) -> None:
    long = {"type": "function", "function": {"name": "long", "description": "x" * 100_000}}
    record = served(configure(capture_tools="full"), {}, {"tools": [*TOOLS, long]})
    assert record["gen_ai.tool.definitions"][:2] == NAMED
    assert "description" not in json.dumps(record["gen_ai.tool.definitions"])


def test_whole_tools_are_redacted_as_all_texts(configure: Configure) -> None:
    tools = [{"type": "function", "function": {"name": "mail", "description": "writes to canary@example.com"}}]
    config = configure(capture_tools="full", redact_patterns=["email"])
    (found,) = served(config, {}, {"tools": tools})["gen_ai.tool.definitions"]
    assert "canary" not in found["function"]["description"]
    assert b"canary@" not in everything(config.directory)


@pytest.mark.parametrize("levels", [27, 60])
def test_a_tool_of_a_client_is_no_deeper_than_readers_take(configure: Configure, levels: int) -> None:
    tools = b'[{"name":"a","parameters":' + b"[" * levels + b"]" * levels + b"}]"
    record = served(configure(capture_tools="full"), {}, b'{"model":"m","tools":' + tools + b"}")
    (tool,) = record["gen_ai.tool.definitions"]
    found, depth = tool["parameters"], 0
    while found and isinstance(found, list):
        (found,), depth = found, depth + 1
    assert (depth, found) == ((26, []) if levels == 27 else (27, "[" * 33 + "]" * 33))


@pytest.mark.parametrize(
    "tools", [b'[{"name":"a",}]', b'[{"name":"a" "b":1}]', b'"text"', b"[01]", b"[" * 99 + b"]" * 99, b'{"a":1}']
)
def test_tools_that_are_no_list_of_json_leave_a_line_that_is(configure: Configure, tools: bytes) -> None:
    record = served(configure(capture_tools="full"), {}, b'{"model":"m","tools":' + tools + b"}")
    assert record["gen_ai.request.model"] == "m"
    assert isinstance(record.get("gen_ai.tool.definitions", []), list)
