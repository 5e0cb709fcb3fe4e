"""Whose request it was: headers, members of bodies, metrics by tenant; and a raw key never leaves the queue."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, InferenceLoggingMiddleware, Logger
from inference_logging.errors import ConfigError
from inference_logging.read.segments.columns import FIELDS
from tests.kit.command_line import run
from tests.kit.identity import BODY, HEADERS, NAMES, SECRET, answer, everything, keyed_hash, records_of, saying, served
from tests.kit.signatures import Configure
from tests.kit.support import Client, http_scope, read_lines, serve_one
from tests.ship.endpoint import Collector, collector


def test_a_record_has_the_headers_that_are_asked_for_and_no_others(keyed: Configure) -> None:
    headers = {"X-Tenant": "acme", "x-team": " search ", "x-other": "no", "authorization": f"Bearer {SECRET}"}
    record = served(keyed(record_headers=HEADERS), headers)
    assert record["tenant.id"] == "acme"
    assert record["http.request.header.x-team"] == "search"
    assert record["api_key.hash"].startswith("blake3-keyed:")
    assert not any("other" in name for name in record)


def test_without_the_parameter_nothing_is_recorded(keyed: Configure) -> None:
    record = served(keyed(), {"x-tenant": "acme", "authorization": SECRET})
    assert not {"tenant.id", "api_key.hash"} & set(record)


def test_a_key_has_one_hash_in_whichever_header_it_comes_and_another_key_another(keyed: Configure) -> None:
    config = keyed(record_headers=HEADERS)
    requests = [
        {"authorization": f"Bearer {SECRET}"},
        {"authorization": f"bearer  {SECRET}"},
        {"x-api-key": SECRET},
        {"x-api-key": SECRET + "x"},
    ]
    first, second, third, other = (record["api_key.hash"] for record in records_of(config, requests))
    assert first == second == third != other
    assert first == keyed_hash(SECRET)


def test_the_first_of_two_headers_counts_and_an_absent_one_leaves_no_field(keyed: Configure) -> None:
    record = served(keyed(record_headers=["a=tenant.id", "b=tenant.id", "c"]), {"b": "second", "a": "first"})
    assert record["tenant.id"] == "second", "in the order of the request"
    assert "http.request.header.c" not in record


def test_a_long_value_is_cut_and_a_longer_one_is_not_hashed(keyed: Configure) -> None:
    config = keyed(record_headers=["x-long", "x-key:hash"])
    requests = [{"x-long": "é" * 300, "x-key": "k" * 4096}, {"x-key": "k" * 4097}]
    long, longer = records_of(config, requests)
    text = long["http.request.header.x-long"]
    assert text.endswith("…")
    assert len(text.encode()) <= 3 * 256
    assert long["http.request.header.x-key"].startswith("blake3-keyed:")
    assert "http.request.header.x-key" not in longer


def test_bytes_that_are_no_text_keep_the_line_valid(keyed: Configure) -> None:
    record = served(keyed(record_headers=["x-tenant=tenant.id"]), {"x-tenant": '\xff"\\\x07'})
    assert record["tenant.id"] == '\ufffd"\\\x07'


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("authorization", "carries credentials, so only authorization:hash"),
        ("Cookie=tenant.id", "carries credentials"),
        ("x-goog-api-key", "carries credentials"),
        ("x-auth-token", "carries credentials"),
        ("x-tenant=api_key.hash", "write x-tenant:hash=api_key.hash"),
        ("x-tenant:hash", "needs capture_hash_key_file"),
    ],
)
def test_a_header_that_must_not_be_recorded_so_is_refused_by_name(entry: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Config(record_headers=[entry])
    assert f"record_headers='{entry}'" in str(refused.value)
    assert why in str(refused.value)


@pytest.mark.parametrize("entry", ["", "a b", "x=other.field", "x:hashed", "x" * 65])
def test_an_entry_of_another_form_is_refused_by_parameter_and_value(entry: str) -> None:
    with pytest.raises(ConfigError, match="record_headers="):
        Config(record_headers=[entry])


def test_more_headers_than_there_may_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="record_headers="):
        Config(record_headers=[f"x-{number}" for number in range(17)])


def test_requests_and_tokens_are_counted_by_listed_tenant_and_the_rest_as_other(configure: Configure) -> None:
    config = configure(record_headers=["x-tenant=tenant.id"], metrics_tenants=["acme", "b"], metrics_path="/metrics")
    app = saying({"id": "1", "model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": 5}})
    tenants = ["acme", "acme", "x", "y", "b", None]
    with Logger(config) as logger:
        records_of(config, [{"x-tenant": tenant} if tenant else {} for tenant in tenants], BODY, app)
        logger.flush()
        page = served_metrics(config)
    counts = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in page.splitlines() if "tenant" in line}
    requests = "inference_logging_tenant_requests_total"
    assert counts[f'{requests}{{outcome="ok",tenant="acme"}}'] == "2.0"
    assert counts[f'{requests}{{outcome="ok",tenant="b"}}'] == "1.0"
    assert counts[f'{requests}{{outcome="ok",tenant="other"}}'] == "2.0"
    tokens = "inference_logging_tenant_tokens_total"
    assert counts[f'{tokens}{{gen_ai_token_type="input",tenant="acme"}}'] == "6.0"
    assert counts[f'{tokens}{{gen_ai_token_type="output",tenant="other"}}'] == "10.0"
    assert not any(tenant in page for tenant in ('"x"', '"y"'))


def served_metrics(config: Config) -> str:
    """Return the page of the middleware's own route."""
    middleware, client = InferenceLoggingMiddleware(answer, config), Client()
    serve_one(middleware, http_scope("/metrics"), client)
    middleware._close()
    return b"".join(message.get("body", b"") for message in client.sent).decode()


def test_the_provider_stands_in_records_of_operations_only_and_the_header_says_which_names_are_used(
    configure: Configure,
) -> None:
    config = configure(provider_name="vllm", semconv="next")
    usage = {"id": "1", "usage": {"input_tokens": 9, "cache_creation_input_tokens": 4}}
    record = served(config, {}, BODY, saying(usage))
    assert record["gen_ai.provider.name"] == "vllm"
    assert record["gen_ai.usage.cache_write.input_tokens"] == 4
    header = read_lines(config.directory)[0]
    assert header["semconv"] == "next"


def test_by_default_names_are_the_published_ones_and_a_request_without_operation_has_no_provider(
    configure: Configure,
) -> None:
    config = configure(provider_name="vllm")
    record = served(config, {}, method="GET")
    assert "gen_ai.provider.name" not in record
    header = read_lines(config.directory)[0]
    assert (header["schema_url"], header.get("semconv")) == ("https://opentelemetry.io/schemas/1.41.0", None)


@pytest.mark.parametrize("value", [{"semconv": "1.40"}, {"provider_name": "A b"}, {"capture_body": "full"}])
def test_another_value_is_refused_by_parameter_and_value(value: dict[str, Any]) -> None:
    (name,) = value
    with pytest.raises(ConfigError, match=f"{name}='{value[name]}'"):
        Config(**value)


def test_members_of_a_body_are_recorded_where_they_are_asked_for(keyed: Configure) -> None:
    record = served(keyed(record_body_fields=NAMES), {}, BODY)
    found = {name: record[f"openai.request.{name}"] for name in NAMES}
    assert json.loads(found.pop("metadata")) == BODY["metadata"]
    assert found == {name: BODY[name] for name in found}
    assert {f"openai.request.{name}" for name in NAMES} <= FIELDS.keys(), "the catalogue has them"


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


__all__ = ["collector"]  # a fixture
CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from inference_logging import Config, InferenceLoggingMiddleware, Logger, current_request

async def app(scope, receive, send):
    await receive()
    current_request().set(**{"enduser.id": "u-1"})
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"part", "more_body": True})
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    headers = [(b"x-tenant", b"acme"), (b"authorization", b"Bearer " + sys.argv[1].encode())]
    scope = {"type": "http", "method": "POST", "path": "/p", "headers": headers, "client": ("192.0.2.7", 1)}
    async def receive():
        return {"type": "http.request", "body": b"{}"}
    async def send(message):
        pass
    await InferenceLoggingMiddleware(app)(scope, receive, send)

asyncio.run(main())
"""


def test_the_record_of_a_killed_process_says_whose_request_it_was_and_has_no_raw_key(
    keyed: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config = keyed(record_headers=HEADERS, listener="external")
    for name in ("directory", "queue_directory", "capture_hash_key_file", "listener"):
        monkeypatch.setenv(f"INFERENCE_LOGGING_{name.upper()}", str(getattr(config, name)))
    monkeypatch.setenv("INFERENCE_LOGGING_RECORD_HEADERS", ",".join(HEADERS))
    done = os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", CHILD, SECRET])
    assert done == -signal.SIGKILL
    run("recover", str(config.queue_directory))
    (record,) = [line for line in read_lines(config.directory) if line["event_name"] == "request"]
    assert (record["outcome"], record["tenant.id"], record["enduser.id"]) == ("process_died", "acme", "u-1")
    assert record["api_key.hash"].startswith("blake3-keyed:")
    assert SECRET.encode() not in everything(config.directory)
    assert SECRET not in "".join(capfd.readouterr())


def test_the_raw_key_is_in_no_sink_and_not_in_the_queue_behind_its_request(keyed: Configure, tmp_path: Path) -> None:
    config = keyed(record_headers=HEADERS, additional_sinks=[f"file://{tmp_path / 'second'}"], resource_on_lines="on")
    record = served(config, {"authorization": f"Bearer {SECRET}", "x-tenant": "acme"})
    assert record["tenant.id"] == "acme"
    assert b"api_key.hash" in everything(tmp_path / "second")
    assert SECRET.encode() not in everything(tmp_path)
    for command in (["tail", str(config.directory)], ["tail", str(config.directory), "--json"]):
        out = run(*command).out
        assert "acme" in out or "--json" not in command
        assert SECRET not in out


@pytest.mark.servers
def test_a_listener_without_the_key_does_not_take_the_records_and_shows_nothing_of_them(keyed: Configure) -> None:
    config = keyed(record_headers=HEADERS, listener="external")
    assert records_of(config, [{"authorization": SECRET, "x-tenant": "acme"}]) == []
    # The directory's own configuration says which key it was, not where it is.
    assert config.queue_directory is not None
    own = str(config.queue_directory / "configuration.yaml")
    done = run("recover", "--config", own, str(config.queue_directory))
    assert done.code == 2
    assert SECRET not in done.out + done.err


def test_the_raw_key_is_not_in_a_fallback_nor_in_what_is_shipped(
    keyed: Configure, collector: Collector, tmp_path: Path
) -> None:
    fallback = tmp_path / "fallback"
    config = keyed(
        record_headers=HEADERS, sink=f"unix://{tmp_path / 'nobody'}", fallback=str(fallback), fallback_delay_s=0.0
    )
    records_of(config, [{"authorization": f"Bearer {SECRET}", "x-tenant": "acme"}])
    assert b"api_key.hash" in everything(fallback)
    done = run("ship", "--directory", str(fallback), "--to", collector.url, "--once")
    assert done.code == 0, done
    shipped = b"".join(content for _, _, content in collector.requests)
    assert b"acme" in shipped
    assert SECRET.encode() not in shipped
    assert SECRET.encode() not in everything(tmp_path)
