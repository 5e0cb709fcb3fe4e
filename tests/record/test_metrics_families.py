"""Metrics of requests, their native texts as prometheus_client reads them, and the books."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Exemplar, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from inference_logging import Logger
from inference_logging.metrics import InferenceLoggingCollector, metrics_of
from inference_logging.record.metrics import as_metrics
from inference_logging.triton import usage
from tests.kit.fake_triton import ok, request
from tests.kit.signatures import Recording, Serve
from tests.kit.support import Recorded, answer, body_messages, http_scope, replying
from tests.record.test_metrics import JSON, ask, collect

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
def busy(recording: Recording) -> Recorded:
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


def test_texts_are_byte_for_byte_what_prometheus_client_writes_and_names_of_any_characters_are_read_back(
    busy: Recorded,
) -> None:
    text, openmetrics = rendered(busy), rendered(busy, OPENMETRICS)
    of_text = Collected(parse_text(text))
    of_openmetrics = with_plain_exemplars(parse_openmetrics(openmetrics))  # type: ignore[no-untyped-call]
    assert generate_latest(of_text).decode() == text
    assert generate_openmetrics(of_openmetrics).decode() == openmetrics  # type: ignore[no-untyped-call]
    assert openmetrics.count(" # {span_id=") >= 3
    for families in (of_text.collect(), of_openmetrics.collect()):
        assert MODEL in {one.labels.get("gen_ai_request_model") for family in families for one in family.samples}


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
        *("", "*/*", "text/plain", "text/plain;version=0.0.4", "text/plain; version=1.0.0; escaping=allow-utf-8"),
        *("text/plain;version=1.0.0;escaping=dots", OPENMETRICS),
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
    families = as_metrics(metrics_of(busy.logger).families())
    lines = write(Collected(families)).decode().splitlines()
    assert names == [line.split("{")[0].split()[0] for line in lines if not line.startswith("#")]
    assert native.endswith(b"# EOF\n") == kind.startswith(OPENMETRICS)


REQUESTS = "inference_logging_requests"
TOKENS = "inference_logging_tokens"
TOKEN_LABELS = ("gen_ai_token_type", "gen_ai_operation_name", "gen_ai_request_model")


def shown(recorded: Recorded, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a counter by their labels, which are these and no others."""
    samples = collect(recorded)[name].samples
    assert all(sample.name == f"{name}_total" and set(sample.labels) == set(labels) for sample in samples)
    found = {tuple(sample.labels[label] for label in labels): sample.value for sample in samples}
    assert len(found) == len(samples), "labels that stand twice"
    return found


def sums(counted: Iterable[tuple[tuple[str, ...], float]]) -> dict[tuple[str, ...], float]:
    """Add up what has the same labels."""
    by_labels: dict[tuple[str, ...], float] = defaultdict(float)
    for labels, count in counted:
        by_labels[labels] += count
    return dict(by_labels)


def asked(recorded: Recorded, path: str, content: dict[str, Any], status: int, trace: int) -> None:
    """Let the application answer with this content."""
    headers = [JSON, (b"traceparent", b"00-%032x-00f067aa0ba902b7-01" % trace)]
    recorded.serve(
        replying(*answer(json.dumps(content).encode(), status=status, content_type=b"application/json")),
        http_scope(path, "POST", headers),
        body_messages(b'{"model": "asked"}'),
    )


def test_every_outcome_is_there_from_the_start_and_nothing_else(recorded: Recorded) -> None:
    outcomes = ("ok", "error", "client_disconnect", "timeout", "server_shutdown", "process_died", "aborted")
    assert shown(recorded, REQUESTS, "outcome") == {(outcome,): 0.0 for outcome in outcomes}
    assert shown(recorded, TOKENS, *TOKEN_LABELS) == {}


def test_requests_and_tokens_are_what_the_segments_say_weighted(recording: Recording) -> None:
    recorded = recording(sample_ratio=0.4)
    for number in range(120):
        path = ("/v1/chat/completions", "/v1/embeddings", "/items")[number % 3]
        reported = {"prompt_tokens": number, "completion_tokens": 2 * number} if number % 4 else {}
        content = {"model": f"m-{number % 2}", "usage": reported}
        # A model is known by its first successful answer, so the failures come later.
        status = (200, 503, 504)[number % 7 % 3] if number > 30 else 200
        asked(recorded, path, content, status, number * 0x9E3779B97F4A7C15 % (1 << 127) + 1)
    records = recorded.records("request")
    assert 10 < len(records) < 120
    assert {record["adjusted_count"] for record in records} > {1.0}
    by_outcome = sums(((record["outcome"],), record["adjusted_count"]) for record in records)
    assert len(by_outcome) == 3
    assert {labels: count for labels, count in shown(recorded, REQUESTS, "outcome").items() if count} == pytest.approx(
        by_outcome
    )
    by_labels = sums(
        ((kind, operation, record["gen_ai.response.model"]), tokens * record["adjusted_count"])
        for record in records
        for operation in [record.get("gen_ai.operation.name", "_OTHER")]
        for kind in ("input", "output")
        if (tokens := record.get(f"gen_ai.usage.{kind}_tokens"))
    )
    assert {operation for _, operation, _ in by_labels} == {"chat", "embeddings", "_OTHER"}
    assert shown(recorded, TOKENS, *TOKEN_LABELS) == pytest.approx(by_labels)


@pytest.mark.usefixtures("fake_backend")
def test_requests_and_tokens_of_a_model_of_triton_are_counted(serve: Serve) -> None:
    def execute(self: Any, requests: list[Any]) -> Any:
        usage(requests[0], input_tokens=3, output_tokens=5)
        return [ok() for _ in requests]

    model, recorded = serve(execute)
    model.execute([request(), request()])
    model.execute([request()])
    assert shown(recorded, REQUESTS, "outcome")["ok",] == 3
    expected = {("input", "_OTHER", "m"): 6, ("output", "_OTHER", "m"): 10}
    assert shown(recorded, TOKENS, *TOKEN_LABELS) == expected


def difference(logger: Logger) -> dict[str, float]:
    """Return the difference of each lane's books."""
    families = {family.name: family for family in InferenceLoggingCollector(logger).collect()}
    samples = families["inference_logging_books_difference_records"].samples
    return {sample.labels["lane"]: sample.value for sample in samples}


def test_lines_of_the_listeners_own_are_in_no_books(recorded: Recorded) -> None:
    emit = recorded.logger.event("large", ["text"])
    assert emit("small")
    assert not emit("x" * recorded.config.max_record_bytes)
    assert len(recorded.records("log.dropped")) == 1
    stats = recorded.logger.service.listener_stats()
    assert (stats["records_written"], stats["taken_from_queues"]) == (2, 1)
    assert difference(recorded.logger) == {"fast": 0}


def test_each_lane_has_its_books(open_: Callable[..., Logger]) -> None:
    logger = open_()
    asyncio.run(logger.audit("policy.decision", user="u"))
    assert logger.flush(60)
    assert logger.audit_service is not None
    assert logger.audit_service.listener_stats()["taken_from_queues"] == 1
    assert difference(logger) == {"fast": 0, "audit": 0}
