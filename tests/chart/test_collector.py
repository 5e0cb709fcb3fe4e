"""The collector's file, judged and run by a real OpenTelemetry Collector.

That of the tests has not Elasticsearch's exporter, in whose place stands the one that prints, nor the extension for a
user's password, which no situation here has.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from inference_logging import Config, Logger, get_logger
from tests.chart.chart import CI, Release, endpoint, parted, render, render_file
from tests.kit.servers import free_port
from tests.kit.support import TRACE_ID, TRACEPARENT, Recorded, answer, http_scope, read_records, wait_until
from tests.tools.tools import tool

pytestmark = pytest.mark.chart

VOLUME = "/var/log/inference-logging"
GATE = "--feature-gates=stanza.synchronousLogEmitter"
NOT_BUILT = "elasticsearch"
SITUATIONS = [file for file in CI if "otel-collector" in file.name or file.name.startswith("fastapi-everything")]


def collector(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(tool("otelcol")), *arguments]
    environment = {
        "POD_NAME": "pod",
        "DESTINATION_TOKEN": "t",
        "DESTINATION_USERNAME": "u",
        "DESTINATION_PASSWORD": "p",
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def at_home(release: Release, directory: Path) -> dict[str, Any]:
    """Return the file's content with the pod's volume at ``directory``."""
    config: dict[str, Any] = yaml.safe_load(release.file("otel-collector.yaml").replace(VOLUME, str(directory)))
    return config


def written(config: dict[str, Any], directory: Path) -> str:
    path = directory / "otel-collector.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return f"--config={path}"


@pytest.mark.parametrize("file", SITUATIONS, ids=[file.name.removesuffix("-values.yaml") for file in SITUATIONS])
def test_the_collector_accepts_the_file_of_each_situation(file: Path, tmp_path: Path) -> None:
    config = at_home(render_file(file), tmp_path)
    if NOT_BUILT in config["exporters"]:
        config["exporters"] = {"debug": {}}
        config["service"]["pipelines"]["logs"]["exporters"] = ["debug"]
    done = collector("validate", written(config, tmp_path), GATE)
    assert done.returncode == 0, done.stderr


def test_the_collector_refuses_a_field_that_it_does_not_know(tmp_path: Path) -> None:
    config = at_home(render(), tmp_path)
    config["receivers"]["file_log"]["start_from"] = "beginning"
    done = collector("validate", written(config, tmp_path), GATE)
    assert done.returncode == 1
    assert "start_from" in done.stderr


@contextmanager
def running(config: dict[str, Any], directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the collector until it is asked to end; what it says stands in ``collector.log``."""
    reader = config["service"]["telemetry"]["metrics"]["readers"][0]["pull"]["exporter"]["prometheus"]
    reader.update(host="127.0.0.1", port=free_port())
    command = [str(tool("otelcol")), written(config, directory), *parted(render().containers["shipper"])[1][2:]]
    with (directory / "collector.log").open("wb") as log:
        process = subprocess.Popen(command, env={"POD_NAME": "pod"}, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def to_a_file(release: Release, directory: Path) -> dict[str, Any]:
    """Return the file's content, but for what it delivers to: ``delivered.jsonl``."""
    config = at_home(release, directory)
    config["exporters"] = {"file": {"path": str(directory / "delivered.jsonl"), "flush_interval": "50ms"}}
    config["service"]["pipelines"]["logs"]["exporters"] = ["file"]
    return config


def logs(delivered: Path) -> list[dict[str, Any]]:
    """Return the log records of the lines that are whole, each with its resource."""
    content = delivered.read_bytes() if delivered.exists() else b""
    batches = [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]
    return [
        {**record, "resource": one["resource"]}
        for batch in batches
        for one in batch["resourceLogs"]
        for scope in one["scopeLogs"]
        for record in scope["logRecords"]
    ]


def attributes(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: next(iter(pair["value"].values())) for pair in pairs}


def two_records(directory: Path) -> dict[str, dict[str, Any]]:
    """Write a request's record and an application's within it; return them as they stand in the segment, by event."""
    log = get_logger("greeter")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        log.warning("hello", user="you")
        for message in answer(b"hi"):
            await send(message)

    recorded = Recorded(Config(directory=directory / "segments", queue_directory=directory / "queues"))
    recorded.serve(app, http_scope(headers=[(b"traceparent", TRACEPARENT)]))
    recorded.close()
    return {event: read_records(recorded.config.directory, event)[0] for event in ("request", "log")}


def delivered_by(release: Release, directory: Path) -> dict[str, dict[str, Any]]:
    """Run the collector until it has delivered both records; return them by event."""

    def both() -> dict[str, dict[str, Any]] | None:
        found = {attributes(one["attributes"])["event_name"]: one for one in logs(directory / "delivered.jsonl")}
        return found if {"request", "log"} <= set(found) else None

    with running(to_a_file(release, directory), directory):
        found: dict[str, dict[str, Any]] = wait_until(both, "both records")
    return found


def test_a_record_arrives_as_fields_with_its_time_severity_and_trace(tmp_path: Path) -> None:
    records, delivered = two_records(tmp_path), delivered_by(render(), tmp_path)
    for event, record in records.items():
        one = delivered[event]
        assert (one["traceId"], one["spanId"]) == (TRACE_ID, record["span_id"])
        seconds, _, nanoseconds = record["timestamp"].rstrip("Z").partition(".")
        assert int(one["timeUnixNano"]) % 10**9 == int(nanoseconds.ljust(9, "0"))
        assert int(one["timeUnixNano"]) // 10**9 == datetime.fromisoformat(f"{seconds}+00:00").timestamp()
        resource = attributes(one["resource"]["attributes"])
        assert resource == {"service.name": "inference", "k8s.namespace.name": "chat", "k8s.pod.name": "pod"}
    log, request = delivered["log"], delivered["request"]
    assert (log["severityNumber"], log["severityText"]) == (13, "WARN")
    assert log["body"] == {"stringValue": "hello"}
    assert (request["severityNumber"], request["body"]) == (9, {"stringValue": "request"})
    assert attributes(request["attributes"])["url.path"] == "/"


def test_to_loki_a_record_arrives_as_the_line_that_it_is(tmp_path: Path) -> None:
    records, delivered = two_records(tmp_path), delivered_by(render(destination={"type": "loki"}), tmp_path)
    for event, record in records.items():
        assert json.loads(delivered[event]["body"]["stringValue"]) == record
        assert delivered[event]["traceId"] == TRACE_ID
        assert attributes(delivered[event]["attributes"]) == {"event_name": event}


def test_a_collector_that_is_started_again_goes_on_where_it_was(tmp_path: Path) -> None:
    two_records(tmp_path)
    before = delivered_by(render(), tmp_path)
    (tmp_path / "delivered.jsonl").unlink()
    two_records(tmp_path)
    delivered_by(render(), tmp_path)
    again = {one["timeUnixNano"] for one in logs(tmp_path / "delivered.jsonl")}
    assert again.isdisjoint({one["timeUnixNano"] for one in before.values()})


def test_records_of_the_audit_lane_arrive_with_their_chain(tmp_path: Path) -> None:
    config = Config(directory=tmp_path / "segments", queue_directory=tmp_path / "queues", audit="on")
    with Logger(config) as logger:
        logger.event("policy.decision", ["allowed"], lane="audit")(True)
    (record,) = read_records(config.resolved_audit_directory, "policy.decision")

    def decisions() -> list[dict[str, Any]]:
        found = [attributes(one["attributes"]) for one in logs(tmp_path / "delivered.jsonl")]
        return [one for one in found if one["event_name"] == "policy.decision"]

    with running(to_a_file(render(config={"audit": "on"}), tmp_path), tmp_path):
        wait_until(decisions, "the record")
    assert [(one["allowed"], one["chain"]) for one in decisions()] == [(True, record["chain"])]


@pytest.mark.parametrize("destination", ["otlp", "kafka"])
def test_of_a_node_each_record_arrives_with_the_pod_and_the_service_that_its_file_names(
    tmp_path: Path, destination: str
) -> None:
    places = {("chat", "pod-1"): "a-service", ("tools", "pod-2"): "b"}
    for (namespace, pod), service in places.items():
        own = {"directory": tmp_path / "segments" / namespace / pod, "queue_directory": tmp_path / pod}
        with Logger(Config(**own, service_name=service, audit="on")) as logger:
            logger.event("policy.decision", ["allowed"], lane="audit")(True)
            get_logger("t").warning("hello", of=pod)
    release = render(
        mode="node",
        node={"namespaces": ["chat", "tools"]},
        config={"audit": "on"},
        destination={"type": destination, "endpoints": [endpoint(destination)]},
    )

    def resources() -> list[dict[str, Any]]:
        delivered = tmp_path / "delivered.jsonl"
        return [attributes(one["resource"]["attributes"]) for one in logs(delivered)]

    with running(to_a_file(release, tmp_path), tmp_path):
        # The application's record and that of the audit lane.
        wait_until(lambda: len(resources()) >= 2 * len(places), "the records of both pods")
    expected = [
        {"service.name": service, "k8s.namespace.name": namespace, "k8s.pod.name": pod}
        for (namespace, pod), service in places.items()
    ]
    assert all(one in expected for one in resources())
    assert all(one in resources() for one in expected)
    assert not any(
        "log.file.path" in attributes(one.get("attributes", [])) for one in logs(tmp_path / "delivered.jsonl")
    )
