"""Redaction by configuration: what is refused at start, how it is written, and what an application sees of it.

What the rules find is tested beside them, in native/lines/tests/redact.rs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from inference_logging import Config, InferenceLoggingMiddleware, Logger, get_logger
from inference_logging.errors import ConfigError
from inference_logging.record.config import ENV_PREFIX
from inference_logging.testing import capture_records
from tests.support import Client, answer, body_messages, http_scope, read_records, replying, serve_one

Configure = Callable[..., Config]


def post(config: Config, body: object) -> None:
    """Send one request for chat through the middleware."""
    scope = http_scope("/v1/chat/completions", "POST", [(b"content-type", b"application/json")])
    client = Client(body_messages(json.dumps(body).encode()))
    serve_one(InferenceLoggingMiddleware(replying(*answer(b"{}")), config), scope, client)


def problem(**parameters: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        Config(**parameters)
    (found,) = caught.value.problems
    return found


@pytest.mark.parametrize(
    ("parameters", "reported"),
    [
        ({"redact_custom": {"pin": "(a"}}, 'redact_custom["pin"]="(a": is no regular expression: unclosed group'),
        ({"redact_custom": {"pin": "a*"}}, 'redact_custom["pin"]="a*": must not match an empty text'),
        (
            {"redact_custom": {"pin": r"(\w{99}){99}"}},
            r'redact_custom["pin"]="(\\w{99}){99}": must take at most 1048576',
        ),
        ({"redact_custom": {"pin": r"(?<=a)b"}}, "look-around, including look-ahead and look-behind, is not supported"),
        ({"redact_fields": ["user..email"]}, 'redact_fields="user..email": must have a name between two dots'),
        ({"redact_fields": ["a", "a"]}, "redact_fields=['a', 'a'] (keyword): must be at most 256 paths"),
        ({"redact_patterns": ["mail"]}, "redact_patterns='mail' (item 1 of keyword): must be email, phone, card, key"),
        ({"redact_replacement": "a\nb"}, r"redact_replacement='a\nb' (keyword): must be at most 200 characters"),
    ],
)
def test_a_rule_that_cannot_be_used_stops_the_start_with_its_name_and_value(
    parameters: dict[str, Any], reported: str
) -> None:
    assert reported in problem(**parameters)


def test_expressions_are_written_one_per_line_in_a_variable_and_as_a_mapping_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expressions = {"ssn": r"\b\d{3}-\d{2}-\d{4}\b", "ticket": "T=[A-Z]{2,4}"}
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "redact_custom": expressions, "redact_fields": ["a.b", "c[*]"]}))
    written = Config(config_file=file)
    assert dict(written.redact_custom) == expressions
    monkeypatch.setenv(f"{ENV_PREFIX}REDACT_CUSTOM", "".join(f"{name}={text}\n" for name, text in expressions.items()))
    monkeypatch.setenv(f"{ENV_PREFIX}REDACT_FIELDS", "a.b, c[*]")
    assert (Config().redact_custom, Config().redact_fields) == (written.redact_custom, written.redact_fields)


def test_records_are_redacted_by_field_pattern_and_expression(configure: Configure) -> None:
    config = configure(
        redact_fields=["password", "$.attributes.user.email"],
        redact_patterns=["email", "card"],
        redact_custom={"ssn": r"\b\d{3}-\d{2}-\d{4}\b"},
        redact_replacement="<{name}>",
    )
    with Logger(config):
        user = {"email": "x", "tags": ["a@example.com"]}
        assert get_logger("shop").info("for a@example.com, 123-45-6789", password=1, user=user, card=4111111111111111)
    (record,) = read_records(config.directory, "log")
    assert record["message"] == "for <email>, <ssn>"
    kept = {"password": "<field>", "user": {"email": "<field>", "tags": ["<email>"]}, "card": "<card>"}
    assert record["attributes"] == kept


def test_a_secret_that_the_cap_of_a_capture_cuts_is_found_by_what_is_left_of_it(configure: Configure) -> None:
    caps = {"capture_head_bytes": 64, "capture_tail_bytes": 64, "capture_text_bytes": 512}
    config = configure(capture_input="truncated", redact_patterns=["card", "key"], **caps)
    card, key = "4111111111111111", "sk-a1b2c3d4e5f6g7h8i9j0k1l2m3n4o5p6"
    with Logger(config):
        for padding in range(160, 300, 3):
            before, after = "x " * (padding // 2) + "." * (padding % 2), " z" * (padding // 2)
            text = f"{before}{card} {key} {'y ' * 500} {card} {key}{after}"
            post(config, {"messages": [{"role": "user", "content": text}]})
    records = read_records(config.directory, "request")
    assert len(records) > 40
    for record in records:
        assert record["input_truncated"]
        written = json.dumps(record["gen_ai.input.messages"], ensure_ascii=False)
        assert not re.search(r"\d{5}", written), written
        assert not any(key[at : at + 6] in written for at in range(len(key) - 5)), written


def test_what_an_application_tests_can_be_redacted_as_in_production() -> None:
    with capture_records(redact_patterns=["email"]) as records:
        get_logger("shop").info("for a@example.com")
    assert [record["message"] for record in records.logs] == ["for [redacted:email]"]


def test_credentials_in_headers_as_asgi_has_them_are_redacted_by_their_names() -> None:
    names = (b"cookie", b"Set-Cookie", b"x-api-key", b"authorization", b"proxy-authorization")
    headers = [(name, b"opaque-value") for name in names]
    with capture_records(redact_patterns=["email", "phone", "card", "key", "bearer"]) as records:
        log = get_logger("shop")
        log.info("pairs", headers=headers)
        log.info("mixed", headers=tuple([name.decode(), value] for name, value in headers))
        log.info("a map", headers=dict(headers))
        log.info("nested", scope={"type": "http", "headers": [*headers, (b"large", 10**40)]})
        log.info("one", pair=(b"cookie", bytearray(b"opaque-value")))
        log.info("a body", body={"raw": b'{"password": "opaque-value"}'})
    assert len(records.logs) == 6
    for record in records.logs:
        assert "opaque-value" not in json.dumps(record["attributes"]), record
