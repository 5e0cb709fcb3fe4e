"""A destination that is wrong, or that its shipper cannot deliver to: it is refused, and named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.chart import render

pytestmark = pytest.mark.chart

SECRET = {"existingSecret": "secret"}


@pytest.mark.parametrize(
    ("shipper", "destination", "message"),
    [
        ("otel-collector", {"endpoints": []}, "destination.endpoints: must be given, or shipper.type=none"),
        ("otel-collector", {"endpoints": ["http://a", "http://b"]}, "destination.endpoints: must be one for otlp"),
        (
            "otel-collector",
            {"endpoints": ["gateway:4318"]},
            "gateway:4318: must be a URL, http:// or https:// for otlp",
        ),
        (
            "otel-collector",
            {"endpoints": ["http://gateway:4318/v1/logs"]},
            "gateway:4318/v1/logs: must be without /v1/logs and /v1/traces, which the shipper adds",
        ),
        ("otel-collector", {"endpoints": ["https://user:pass@host"]}, "endpoints: must hold no user and no password"),
        ("otel-collector", {"type": "kafka", "endpoints": ["kafka"]}, "=kafka: must be host:port for kafka"),
        (
            "otel-collector",
            {"type": "kafka", "endpoints": ["http://kafka:9092"]},
            "destination.endpoints=http://kafka:9092: must be host:port for kafka",
        ),
        ("otel-collector", {"tls": {"enabled": True}}, "destination.tls.enabled: is for kafka, forward and syslog"),
        ("otel-collector", {"keys": {"token": "t"}}, "keys.token=t: needs destination.existingSecret"),
        ("otel-collector", SECRET | {"keys": {"username": "u"}}, "username and password belong together"),
        (
            "otel-collector",
            SECRET | {"type": "kafka", "endpoints": ["k:9092"], "keys": {"username": "u", "password": "p"}},
            "destination.mechanism: must be given where kafka has a username",
        ),
        (
            "otel-collector",
            SECRET | {"type": "kafka", "endpoints": ["k:9092"], "keys": {"token": "t"}},
            "destination.keys.token: is for otlp, loki and elasticsearch",
        ),
        ("otel-collector", SECRET | {"keys": {"sharedKey": "k"}}, "destination.keys.sharedKey: is for forward"),
        (
            "fluent-bit",
            SECRET | {"keys": {"headers": "h"}},
            "keys.headers: only the shipper inference-logging takes it",
        ),
        (
            "fluent-bit",
            {"type": "elasticsearch", "endpoints": ["http://a", "http://b"]},
            "destination.endpoints: must be one for elasticsearch by fluent-bit",
        ),
        (
            "inference-logging",
            {"type": "elasticsearch", "endpoints": ["http://a", "http://b"]},
            "destination.endpoints: must be one for elasticsearch by inference-logging",
        ),
        (
            "inference-logging",
            {"type": "elasticsearch", "endpoints": ["http://a"], "index": "Logs"},
            "destination.index=Logs: must be small letters, digits",
        ),
        (
            "inference-logging",
            SECRET | {"type": "elasticsearch", "keys": {"token": "t"}},
            "destination.keys.token: the shipper inference-logging takes keys.headers instead",
        ),
        (
            "inference-logging",
            SECRET | {"type": "clickhouse", "keys": {"token": "t"}},
            "destination.keys.token: the shipper inference-logging takes keys.headers instead",
        ),
        (
            "inference-logging",
            {"type": "clickhouse", "endpoints": ["http://c:8123/logs"]},
            "destination.endpoints=http://c:8123/logs: must end with host or port for clickhouse",
        ),
        ("vector", {"type": "clickhouse"}, "destination.type=clickhouse: vector can't deliver to it"),
        (
            "inference-logging",
            SECRET | {"keys": {"token": "t"}},
            "destination.keys.token: the shipper inference-logging takes keys.headers instead",
        ),
        (
            "otel-collector",
            {"signal": "both"},
            "destination.signal=both: only the shipper inference-logging makes spans, and for otlp",
        ),
        (
            "inference-logging",
            {"type": "kafka", "endpoints": ["k:9092"], "signal": "traces"},
            "destination.signal=traces: only the shipper inference-logging makes spans, and for otlp",
        ),
        (
            "inference-logging",
            {"type": "kafka", "endpoints": ["k:9092"], "tls": {"enabled": True}},
            "destination.keys.kafkaProperties: must be given for TLS",
        ),
        (
            "inference-logging",
            {"tls": {"client": {"existingSecret": "c"}}},
            "destination.tls.client: the shipper inference-logging has one for syslog, and for kafka",
        ),
    ],
)
def test_a_destination_that_a_shipper_cannot_name_is_refused(
    shipper: str, destination: dict[str, Any], message: str
) -> None:
    assert message in render(shipper={"type": shipper}, destination=destination).error


def test_without_a_shipper_nothing_is_asked_of_the_destination() -> None:
    assert render(shipper={"type": "none"}, destination={"endpoints": [], "type": "forward"}).error == ""
