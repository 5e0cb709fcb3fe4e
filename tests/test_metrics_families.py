"""The native texts of the metrics, judged by prometheus_client: its parsers, its writers, its choice of a format."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Exemplar, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from inference_logging.metrics import InferenceLoggingCollector, metrics_of
from inference_logging.record import _families
from tests.support import Recorded
from tests.test_metrics import ask

OPENMETRICS = "application/openmetrics-text"
MODEL = 'a "model" \\ of\ntwo lines, …'
CHANGING = {
    "inference_logging_listener_cpu_seconds",
    "inference_logging_node_dirty_bytes",
    "inference_logging_node_writeback_bytes",
    "inference_logging_writer_heartbeat_timestamp_seconds",
}
"""Families whose values change between two looks, though nothing is logged."""


class Collected:
    """Families that were collected already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> list[Metric]:
        return self._families


@pytest.fixture
def busy(recording: Callable[..., Recorded]) -> Recorded:
    """Return a logger of two lanes that has something in every family, and a model with a name of every kind."""
    recorded = recording(audit="on")
    ask(recorded, "m", chunks=3)
    ask(recorded, "m", status=500)
    ask(recorded, MODEL)
    asyncio.run(recorded.logger.audit("policy.decision", user="u"))
    assert recorded.logger.flush(60)
    return recorded


def rendered(recorded: Recorded, accept: str = "") -> str:
    """Return the metrics as text."""
    return metrics_of(recorded.logger).render(accept)[0].decode()


def with_plain_exemplars(families: Iterable[Metric]) -> Collected:
    """Return the families with the times of exemplars as numbers, as collectors give them, not as parsers do."""
    parsed = list(families)
    for family in parsed:
        family.samples = [
            sample._replace(exemplar=Exemplar(one.labels, one.value, float(one.timestamp)))
            if (one := sample.exemplar) is not None and one.timestamp is not None
            else sample
            for sample in family.samples
        ]
    return Collected(parsed)


def test_the_text_is_byte_for_byte_what_prometheus_client_writes(busy: Recorded) -> None:
    text = rendered(busy)
    assert generate_latest(Collected(parse_text(text))).decode() == text


def test_openmetrics_is_byte_for_byte_what_prometheus_client_writes(busy: Recorded) -> None:
    text = rendered(busy, OPENMETRICS)
    parsed = with_plain_exemplars(parse_openmetrics(text))  # type: ignore[no-untyped-call]
    assert generate_openmetrics(parsed).decode() == text  # type: ignore[no-untyped-call]
    assert text.count(" # {span_id=") >= 3


def test_a_name_of_any_characters_is_read_back_as_it_is(busy: Recorded) -> None:
    for families in (parse_text(rendered(busy)), parse_openmetrics(rendered(busy, OPENMETRICS))):  # type: ignore[no-untyped-call]
        models = {sample.labels.get("gen_ai_request_model") for family in families for sample in family.samples}
        assert MODEL in models


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_texts_and_collector_show_the_same_families(busy: Recorded, accept: str) -> None:
    registry = CollectorRegistry()
    registry.register(InferenceLoggingCollector(busy.logger))
    write, kind = choose_encoder(accept)
    native, native_kind = metrics_of(busy.logger).render(accept)
    assert kind == native_kind
    shown, expected = native.decode().splitlines(), write(registry).decode().splitlines()
    names = [(line.split("{")[0].split()[0], other) for line, other in zip(shown, expected, strict=True)]
    different = {name for (name, other), line in zip(names, shown, strict=True) if line != other}
    assert {name.removesuffix("_total") for name in different} <= CHANGING


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/plain",
        "text/plain;version=0.0.4",
        "text/plain; version=1.0.0; escaping=allow-utf-8",
        "text/plain;version=1.0.0;escaping=dots",
        OPENMETRICS,
        f"{OPENMETRICS};version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        f"{OPENMETRICS};version=1.0.0;q=0.8,text/plain;q=0.5",
        f"{OPENMETRICS};version=1.0.0;escaping=allow-utf-8;q=0.6,{OPENMETRICS};version=0.0.1;q=0.5",
        f"{OPENMETRICS}; version=1.0.0; escaping=dots",
        f"text/html, {OPENMETRICS}; charset=utf-8",
    ],
)
def test_the_format_is_the_one_that_prometheus_client_chooses(busy: Recorded, accept: str) -> None:
    # One that a real scraper may ask for; what a header can hold besides is among the native tests.
    native, kind = metrics_of(busy.logger).render(accept)
    write, expected = choose_encoder(accept)
    assert kind == expected
    names = [line.split("{")[0].split()[0] for line in native.decode().splitlines() if not line.startswith("#")]
    families = _families.metrics(metrics_of(busy.logger).families())
    lines = write(Collected(families)).decode().splitlines()
    assert names == [line.split("{")[0].split()[0] for line in lines if not line.startswith("#")]
    assert native.endswith(b"# EOF\n") == kind.startswith(OPENMETRICS)
