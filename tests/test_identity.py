"""Whose request it was: recorded headers, metrics by tenant, and the names that are used."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inference_logging import Config, InferenceLoggingMiddleware, Logger
from inference_logging.errors import ConfigError
from tests.identity import BODY, HEADERS, SECRET, Configure, answer, keyed_hash, records_of, served
from tests.support import Client, http_scope, read_lines, serve_one


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

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        usage = {"id": "1", "model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": 5}}
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(usage).encode()})

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

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(usage).encode()})

    record = served(config, {}, BODY, app)
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
