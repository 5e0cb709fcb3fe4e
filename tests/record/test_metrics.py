"""Metrics: every family with its help, clean for promtool; the route and its formats; counts that are right."""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from inference_logging import InferenceLoggingMiddleware
from inference_logging.errors import ConfigError, MissingExtraError
from inference_logging.metrics import InferenceLoggingCollector, register_metrics
from inference_logging.record.integrations.vllm.stats import STATS_FIELDS, Interval
from tests.kit.signatures import Configure, Message, Recording
from tests.kit.support import (
    TRACE_ID,
    TRACEPARENT,
    Client,
    Recorded,
    answer,
    body_messages,
    doing,
    http_scope,
    replying,
    serve_one,
)

OF_MODELS = ("gen_ai_operation_name", "gen_ai_request_model")
COUNTERS = {
    **dict.fromkeys(("records_accepted", "hot_path_seconds", "in_flight_slots_missed", "producer_deaths"), ()),
    **dict.fromkeys(("listener_cpu_seconds", "listener_starts", "listener_restarts", "segments_compressed"), ()),
    **dict.fromkeys(("compression_read_bytes", "compression_written_bytes", "housekeeping_errors"), ()),
    **dict.fromkeys(("records_written", "sink_records_dropped", "bytes_written"), ("sink",)),
    **dict.fromkeys(("records_sampled_out", "segments_removed", "segments_removed_bytes"), ("reason",)),
    "records_dropped": ("reason", "level"),
    "requests": ("outcome",),
    "tokens": ("gen_ai_token_type", *OF_MODELS),
    "sink_errors": ("sink", "error_type"),
}
GAUGES = {
    **dict.fromkeys(("queues", "queue_records", "queue_bytes", "queue_capacity_bytes", "queue_fill_ratio"), ()),
    **dict.fromkeys(("queue_oldest_age_seconds", "fallback_active", "requests_in_flight"), ()),
    **dict.fromkeys(("writer_heartbeat_timestamp_seconds", "node_memory_bytes", "node_dirty_bytes"), ()),
    "node_writeback_bytes": (),
    "state": ("state",),
    "books_difference_records": ("lane",),
}
ROUTES = "http_server_request_duration_seconds"
HISTOGRAMS = {
    "inference_logging_write_seconds": ("sink",),
    "gen_ai_server_request_duration_seconds": (*OF_MODELS, "error_type"),
    "gen_ai_server_time_to_first_chunk_seconds": OF_MODELS,
    "gen_ai_server_time_per_chunk_seconds": OF_MODELS,
    "gen_ai_server_time_per_output_token_seconds": OF_MODELS,
    ROUTES: ("http_route", "http_request_method", "http_response_status_code"),
}
KINDS: list[tuple[str, dict[str, tuple[str, ...]]]] = [("counter", COUNTERS), ("gauge", GAUGES)]
GENAI = [name for name in HISTOGRAMS if name.startswith("gen_ai_")]
JSON = (b"content-type", b"application/json")


def collect(recorded: Recorded) -> dict[str, Metric]:
    """Return the families by name, after everything is written."""
    assert recorded.logger.flush(60)
    return {family.name: family for family in InferenceLoggingCollector(recorded.logger).collect()}


def value(families: dict[str, Metric], family: str, suffix: str = "", **labels: str) -> float:
    """Return the value of one sample."""
    found = [
        s.value for s in families[family].samples if s.name == family + suffix and labels.items() <= s.labels.items()
    ]
    assert len(found) == 1, f"{family}{suffix}{labels}: {found}"
    return float(found[0])


def ask(recorded: Recorded, model: str, chunks: int = 1, status: int = 200, **scope: Any) -> None:
    """Let the application answer one request for inference."""
    body = json.dumps({"model": model, "stream": chunks > 1}).encode()
    content = {"model": model, "usage": {"prompt_tokens": 9, "completion_tokens": 3}}
    kind, parts = b"application/json", [json.dumps(content).encode()]
    if chunks > 1:
        kind, parts = b"text/event-stream", [b'data: {"model": "%s"}\n\n' % model.encode()] * chunks
        parts.append(b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}\n\n')
    headers = [JSON, (b"traceparent", TRACEPARENT)]
    recorded.serve(
        replying(*answer(*parts, status=status, content_type=kind)),
        http_scope("/v1/chat/completions", "POST", headers) | scope,
        body_messages(body),
    )


def scrape(middleware: InferenceLoggingMiddleware, *headers: tuple[bytes, bytes], method: str = "GET") -> list[Message]:
    """Return the messages of an answer of the metrics route."""
    client = Client()
    asyncio.run(middleware(http_scope("/metrics", method, headers), client.receive, client.send))
    return client.sent


@pytest.fixture
def busy(recorded: Recorded) -> Recorded:
    """Return a logger that has something in every family."""
    ask(recorded, "m", chunks=3)
    ask(recorded, "m", status=500)
    return recorded


def test_every_family_is_there_with_its_kind_its_labels_and_a_help_text(busy: Recorded) -> None:
    families = collect(busy)
    own = {kind: {f"inference_logging_{name}": labels for name, labels in expected.items()} for kind, expected in KINDS}
    for kind, expected in {**own, "histogram": HISTOGRAMS}.items():
        for name, labels in expected.items():
            family = families.pop(name)
            assert (family.type, bool(family.documentation)) == (kind, True), name
            assert all(set(sample.labels) - {"le"} == set(labels) for sample in family.samples), name
            assert family.samples, name
    assert families.pop("inference_logging_build").samples[0].labels["version"]
    assert not families


def test_promtool_finds_nothing_to_complain_about(busy: Recorded) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (on Debian: apt-get install prometheus)")
    assert busy.logger.flush(60)
    middleware = InferenceLoggingMiddleware(replying(), busy.config.model_copy(update={"metrics_path": "/metrics"}))
    body = scrape(middleware)[1]["body"]
    middleware._close()
    checked = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True, check=False, timeout=180)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_the_route_answers_in_text_or_in_openmetrics_with_exemplars(recording: Recording) -> None:
    recorded = recording(metrics_path="/metrics")
    ask(recorded, "m", chunks=3)
    assert recorded.logger.flush(60)
    middleware = recorded.wrap(replying())
    start, body = scrape(middleware)
    assert dict(start["headers"])[b"content-type"].startswith(b"text/plain; version=0.0.4")
    assert {family.name for family in parse_text(body["body"].decode())} > set(HISTOGRAMS)
    start, body = scrape(middleware, (b"accept", b"application/openmetrics-text;version=1.0.0,text/plain;q=0.5"))
    assert dict(start["headers"])[b"content-type"].startswith(b"application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in parse_openmetrics(body["body"].decode())}  # type: ignore[no-untyped-call]
    span_id = recorded.records("request")[0]["span_id"]
    for name in GENAI:
        (exemplar,) = [sample.exemplar for sample in families[name].samples if sample.exemplar is not None]
        assert exemplar.labels == {"trace_id": TRACE_ID, "span_id": span_id}
        assert abs(float(exemplar.timestamp) - time.time()) < 3600


def test_the_route_knows_its_methods_and_is_not_recorded(recording: Recording) -> None:
    recorded = recording(metrics_path="/metrics")
    middleware = recorded.wrap(replying(*answer(b"the application")))
    start, body = scrape(middleware, method="HEAD")
    assert (start["status"], body["body"]) == (200, b"")
    assert int(dict(start["headers"])[b"content-length"]) > 1000
    start, body = scrape(middleware, method="POST")
    assert (start["status"], dict(start["headers"])[b"allow"]) == (405, b"GET, HEAD")
    assert recorded.records("request") == []


def test_without_metrics_path_the_application_answers(recorded: Recorded) -> None:
    assert scrape(recorded.wrap(replying(*answer(b"the application"))))[1]["body"] == b"the application"


def test_the_route_is_another_one_than_that_of_health(configure: Configure) -> None:
    with pytest.raises(ConfigError, match="metrics_path"):
        configure(metrics_path="/health/logging")


def test_without_prometheus_client_the_extra_is_named(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    missing = r"pip install 'inferlog\[metrics\]'"
    for attempt in (InferenceLoggingCollector, register_metrics):
        with pytest.raises(MissingExtraError, match=missing):
            attempt()
    middleware = InferenceLoggingMiddleware(replying(), configure(metrics_registry="default"))
    server = Client([{"type": "lifespan.startup"}])
    with pytest.raises(MissingExtraError, match=missing):
        serve_one(middleware, {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, server)
    assert server.sent[0]["type"] == "lifespan.startup.failed"


def printed(script: str, directory: Path, **environment: str) -> str:
    """Run a script about a logger in a directory in a process of its own, and return what it prints."""
    begin = "import sys\nfrom pathlib import Path\nown = Path(sys.argv[1])\n"
    begin += "parameters = {'directory': own / 'segments', 'queue_directory': own / 'queues'}\n"
    command = [sys.executable, "-W", "error", "-c", begin + script, str(directory)]
    environ = {**os.environ, **environment}
    return subprocess.run(command, env=environ, capture_output=True, check=True, timeout=180, text=True).stdout


def test_the_route_needs_no_prometheus_client(tmp_path: Path) -> None:
    script = """
import asyncio
sys.modules["prometheus_client"] = None
from inference_logging import Config, InferenceLoggingMiddleware
middleware = InferenceLoggingMiddleware(None, Config(metrics_path="/metrics", **parameters))
sent = []

async def send(message):
    sent.append(message)

for accept in (b"", b"application/openmetrics-text"):
    scope = {"type": "http", "method": "GET", "path": "/metrics", "headers": [(b"accept", accept)]}
    asyncio.run(middleware(scope, None, send))
    sys.stdout.buffer.write(sent[-1]["body"])
"""
    shown = printed(script, tmp_path).removesuffix("# EOF\n")
    text, openmetrics = shown.split("# HELP inference_logging_records_accepted ")
    assert {f"inference_logging_{name}" for name in GAUGES} < {family.name for family in parse_text(text)}
    assert "inference_logging_records_accepted_total 0.0" in openmetrics


def test_the_only_collector_of_an_existing_registry_shows_the_logger_that_is_open(recording: Recording) -> None:
    registry = CollectorRegistry()
    register_metrics(registry)
    assert registry.get_sample_value("inference_logging_records_accepted_total") is None
    recorded = recording()
    recorded.serve(replying(*answer(b"hello")))
    assert registry.get_sample_value("inference_logging_records_accepted_total") == 1
    with pytest.raises(ValueError, match="inference_logging_build"):
        register_metrics(registry)


def test_the_default_registry_shows_them_while_the_middleware_is_open_if_so_configured(recording: Recording) -> None:
    def accepted() -> float | None:
        return REGISTRY.get_sample_value("inference_logging_records_accepted_total")

    assert accepted() is None
    recorded = recording(metrics_registry="default")
    first, second = (recorded.wrap(replying(*answer(b"hello"))) for _ in range(2))
    for middleware in (first, second):
        serve_one(middleware, http_scope(), Client())
    assert accepted() == 2
    second._close()
    assert accepted() == 2
    first._close()
    assert accepted() is None


def test_a_collector_works_beside_the_applications_multiprocess_mode(tmp_path: Path) -> None:
    script = """
from prometheus_client import CollectorRegistry, Counter, generate_latest, multiprocess
from inference_logging import Config, Logger
from inference_logging.metrics import register_metrics
Counter("own", "The application's own").inc()
registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
with Logger(Config(**parameters)) as logger:
    register_metrics(registry, logger)
    logger.event("seen", ["n"])(1)
    print(generate_latest(registry).decode())
"""
    (tmp_path / "multiprocess").mkdir()
    shown = printed(script, tmp_path, PROMETHEUS_MULTIPROC_DIR=str(tmp_path / "multiprocess")).splitlines()
    assert {"own_total 1.0", "inference_logging_records_accepted_total 1.0"} <= set(shown)


def test_what_is_refused_counts_by_reason_and_level(recorded: Recorded) -> None:
    emit = recorded.logger.event("large", ["text"], severity="WARN")
    assert emit("small")
    assert not emit("x" * recorded.config.max_record_bytes)
    families = collect(recorded)
    assert value(families, "inference_logging_records_dropped", "_total", reason="oversize", level="WARN") == 1
    dropped = families["inference_logging_records_dropped"].samples
    assert sum(sample.value for sample in dropped) == 1
    assert value(families, "inference_logging_records_accepted", "_total") == 1
    states = {sample.labels["state"]: sample.value for sample in families["inference_logging_state"].samples}
    assert (sum(states.values()), set(states)) == (1, {"ok", "pressured", "producer_died", "degraded", "stuck"})


def test_hot_path_seconds_are_measured_on_every_64th_request_and_leave_the_application_out(recorded: Recorded) -> None:
    application_s, is_slow = 0.25, False

    def work() -> None:
        if is_slow:
            time.sleep(application_s)

    middleware = recorded.wrap(doing(work))

    def hot_path_s_after(requests: int) -> float:
        for _ in range(requests):
            serve_one(middleware, http_scope(), Client())
        return value(collect(recorded), "inference_logging_hot_path_seconds", "_total")

    assert hot_path_s_after(63) == 0, "the first requests of a process are slow"
    is_slow = True
    timed = hot_path_s_after(1)
    is_slow = False
    assert 0 < timed < 64 * application_s
    assert hot_path_s_after(63) == timed < hot_path_s_after(1)


def expected_histograms(records: Iterable[dict[str, Any]]) -> dict[tuple[str, ...], list[tuple[float, float]]]:
    """Compute from the records of segments what each series has to hold: (value, weight) of each observation."""
    observed: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for record in records:
        model = record.get("gen_ai.response.model", record.get("gen_ai.request.model", ""))
        labels = (record["gen_ai.operation.name"], model)
        status = record["http.response.status_code"]
        error = record.get("error.type", "" if status < 400 else str(status))
        served = (record.get("http.route", ""), record["http.request.method"], str(status))
        observed.setdefault((ROUTES, *served), []).append((record["duration_s"], record["adjusted_count"]))
        for name, found, more in [
            ("gen_ai_server_request_duration_seconds", record["duration_s"], (error,)),
            ("gen_ai_server_time_to_first_chunk_seconds", record.get("gen_ai.response.time_to_first_chunk"), ()),
            ("gen_ai_server_time_per_chunk_seconds", record.get("chunk_gap_mean_us"), ()),
            ("gen_ai_server_time_per_output_token_seconds", record.get("gen_ai.response.time_per_output_token"), ()),
        ]:
            if found is not None and (more or not error):
                seconds = found / 1e6 if name.endswith("per_chunk_seconds") else found
                observed.setdefault((name, *labels, *more), []).append((seconds, record["adjusted_count"]))
    return observed


def shown_series(families: dict[str, Metric]) -> Iterator[tuple[tuple[str, ...], dict[str, float], float]]:
    """Yield labels, buckets and sum of each series of the histograms of requests."""
    for name in (*GENAI, ROUTES):
        series: dict[tuple[str, ...], dict[str, float]] = {}
        for sample in families[name].samples:
            key = (name, *(sample.labels[label] for label in HISTOGRAMS[name]))
            series.setdefault(key, {})[sample.labels.get("le", sample.name.removeprefix(name))] = sample.value
        for key, values in series.items():
            total, count = values.pop("_sum"), values.pop("_count")
            assert count == values["+Inf"]
            yield key, values, total


def test_an_engine_s_last_statistics_are_gauges(recorded: Recorded) -> None:
    emit = recorded.logger.event("engine.stats", STATS_FIELDS)
    for index, running in ((0, 3), (1, 5), (0, 4)):
        interval = Interval(0.0)
        interval.running, interval.waiting, interval.kv_cache_usage = running, index, 0.25
        assert emit(*interval.values(index, 10.0))
    families, names = collect(recorded), ("requests_running", "requests_waiting", "kv_cache_usage_ratio")
    found = {at: [value(families, f"inference_logging_engine_{name}", engine=at) for name in names] for at in "01"}
    assert found == {"0": [4, 0, 0.25], "1": [5, 1, 0.25]}


def test_the_histograms_are_what_the_segments_say(recording: Recording) -> None:
    recorded = recording(sample_ratio=0.4)
    for number in range(120):
        trace = (b"traceparent", b"00-%032x-00f067aa0ba902b7-01" % (number * 0x9E3779B97F4A7C15 % (1 << 127) + 1))
        model, chunks = f"model-{number % 3}", 1 + number % 4
        # A model is known by its first successful answer, so the failures come later.
        status = 503 if number > 30 and number % 7 == 0 else 200
        route = {"route": SimpleNamespace(path="/v1/chat/{kind}")} if number % 5 else {}
        ask(recorded, model, chunks, status, headers=[JSON, trace], **route)
    families = collect(recorded)
    records = recorded.records("request")
    assert 10 < len(records) < 120
    assert {record["adjusted_count"] for record in records} > {1.0}
    expected = expected_histograms(records)
    shown = list(shown_series(families))
    assert {key for key, _, _ in shown} == set(expected)
    assert {key[1] for key in expected if key[0] == ROUTES} == {"", "/v1/chat/{kind}"}
    for key, buckets, total in shown:
        for le, count in buckets.items():
            weights = [weight for seconds, weight in expected[key] if seconds <= float(le.replace("+Inf", "inf"))]
            assert math.isclose(count, sum(weights), rel_tol=1e-9), (key, le)
        assert math.isclose(total, sum(seconds * weight for seconds, weight in expected[key]), rel_tol=1e-9), key
