"""logging.yaml: what the values say and the chart adds, read by every container of ours, without a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config
from inference_logging.record.config import FileConfig
from tests.chart.chart import CI, Release, render, render_file
from tests.kit.command_line import run, run_program

pytestmark = pytest.mark.chart

CANARY = "canary-d41d8cd9"
FILE = "/etc/inference-logging/logging.yaml"


def written(release: Release, directory: Path) -> Path:
    path = directory / "logging.yaml"
    path.write_text(release.file("logging.yaml"), encoding="utf-8")
    return path


@pytest.mark.parametrize("file", CI, ids=[file.name.removesuffix("-values.yaml") for file in CI])
def test_the_configuration_of_each_situation_passes_its_own_check(file: Path, tmp_path: Path) -> None:
    done = run("config", "check", str(written(render_file(file), tmp_path)))
    assert done.code == 0, done.out


@pytest.mark.parametrize("file", CI, ids=[file.name.removesuffix("-values.yaml") for file in CI])
def test_the_listener_without_python_reads_the_configuration_of_each_situation(
    listener_binary: Path, file: Path, tmp_path: Path
) -> None:
    release = render_file(file)
    done = run_program(listener_binary, "ctl", "--config", str(written(release, tmp_path)), "show")
    assert f"queue_directory={release.yaml('logging.yaml')['queue_directory']}: does not exist" in done.err


def test_values_arrive_as_they_were_given(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "queue_bytes": "32MiB",
        "flush_interval_s": 0.25,
        "flush_bytes": 33_554_432,
        "chunks": False,
        "redact_patterns": ["email", "card"],
        "sample_routes": {"/v1/*": 0.1},
        "redact_custom": {"ticket": "T-[0-9]+"},
        "quota_bytes": 1_500_000_000,
        "advanced": {"flush_records": 1000, "in_flight_slots": 0},
    }
    config = FileConfig(config_file=written(render(config=given), tmp_path))
    assert (config.queue_bytes, config.flush_interval_s, config.flush_bytes) == (32 << 20, 0.25, 33_554_432)
    assert (config.chunks, config.redact_patterns) == ("off", ("email", "card"))
    assert (config.sample_routes, config.redact_custom) == ((("/v1/*", 0.1),), (("ticket", "T-[0-9]+"),))
    assert (config.quota_bytes, config.flush_records, config.in_flight_slots) == (1_500_000_000, 1000, 0)


def test_every_container_of_ours_reads_the_same_file() -> None:
    release = render(shipper={"type": "inference-logging"})
    for name, container in release.containers.items():
        assert release.environment(name)["INFERENCE_LOGGING_CONFIG_FILE"] == FILE
        assert {"name": "logging-config", "mountPath": "/etc/inference-logging", "readOnly": True} in container[
            "volumeMounts"
        ]


def test_the_variables_that_the_chart_sets_are_parameters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    release = render(shipper={"type": "inference-logging"})
    path = written(release, tmp_path)
    for name in release.containers:
        for variable, value in release.environment(name).items():
            if variable.startswith("INFERENCE_LOGGING_"):
                monkeypatch.setenv(variable, str(path) if value == FILE else value)
    config = Config()
    assert (config.listener, config.ship_to, config.ship_name) == ("external", "otlp+http://gateway:4318", "otlp")


def test_a_changed_configuration_rolls_the_pods_and_another_change_does_not() -> None:
    def checksum(**values: Any) -> str:
        annotations = render(**values).one("Deployment")["spec"]["template"]["metadata"]["annotations"]
        assert isinstance(annotations["checksum/config"], str)
        return annotations["checksum/config"]

    first = checksum()
    assert checksum(config={"level": "DEBUG"}) != first
    assert checksum(destination={"endpoints": ["http://other:4318"]}) != first
    assert checksum(replicaCount=3, service={"port": 81}) == first


def test_in_process_the_metrics_have_a_route_that_is_not_the_servers_own() -> None:
    paths = {
        preset: render(preset=preset, listener={"mode": "inProcess"}).yaml("logging.yaml").get("metrics_path")
        for preset in ("fastapi", "vllm", "triton", "custom")
    }
    assert paths == {"fastapi": "/metrics", "vllm": "/metrics/logging", "triton": None, "custom": None}
    assert "metrics_path" not in render().yaml("logging.yaml")


def test_what_the_chart_suggests_gives_way_to_the_values() -> None:
    given = {"quota_bytes": "1GiB", "health_path": "/h", "metrics_path": "/m"}
    config = render(listener={"mode": "inProcess"}, config=given).yaml("logging.yaml")
    assert {name: config[name] for name in given} == given


def test_segments_wait_for_our_shipper_and_for_no_other() -> None:
    kafka = {"type": "kafka", "endpoints": ["broker:9092"]}
    ours = render(shipper={"type": "inference-logging"}, destination=kafka)
    assert ours.yaml("logging.yaml")["retention_waits_for"] == ["kafka"]
    assert ours.environment("shipper")["INFERENCE_LOGGING_SHIP_NAME"] == "kafka"
    assert "retention_waits_for" not in render(destination=kafka).yaml("logging.yaml")
    given = {"advanced": {"retention_waits_for": ["other"]}}
    config = render(shipper={"type": "inference-logging"}, destination=kafka, config=given).yaml("logging.yaml")
    assert (config["advanced"], "retention_waits_for" in config) == (given["advanced"], False)


@pytest.mark.parametrize("shipper", ["otel-collector", "fluent-bit", "vector", "inference-logging"])
def test_secrets_are_named_where_they_are_used_and_stand_in_no_config_map(shipper: str) -> None:
    own = shipper == "inference-logging"
    keys = {"kafkaProperties": CANARY} if own else {"username": f"{CANARY}-user", "password": f"{CANARY}-password"}
    release = render(
        shipper={"type": shipper},
        server={"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": CANARY, "key": CANARY}}}]},
        destination={
            "type": "kafka",
            "endpoints": ["broker:9092"],
            "mechanism": "PLAIN",
            "existingSecret": CANARY,
            "keys": keys,
        },
    )
    assert release.all("Secret") == []
    assert CANARY not in str(release.all("ConfigMap"))
    if own:
        assert release.environment("shipper")["INFERENCE_LOGGING_SHIP_KAFKA_FILE"] == f"/etc/destination/keys/{CANARY}"
        assert release.volumes["destination-keys"]["secret"]["secretName"] == CANARY
    else:
        password = release.environment("shipper")["DESTINATION_PASSWORD"]
        assert password == {"secretKeyRef": {"name": CANARY, "key": f"{CANARY}-password"}}
    # No other container is given it.
    assert all("DESTINATION_PASSWORD" not in release.environment(name) for name in ("server", "listener"))


def test_mounted_secrets_can_be_read_by_their_group_and_nobody_else() -> None:
    release = render(
        shipper={"type": "inference-logging"},
        destination={
            "tls": {"ca": {"existingSecret": "ca"}},
            "existingSecret": "gateway",
            "keys": {"headers": "headers"},
        },
    )
    volumes = [volume["secret"] for volume in release.pod["volumes"] if "secret" in volume]
    assert {secret["secretName"] for secret in volumes} == {"ca", "gateway"}
    assert {secret["defaultMode"] for secret in volumes} == {0o440}
    environment = release.environment("shipper")
    assert environment["INFERENCE_LOGGING_SHIP_HEADERS_FILE"] == "/etc/destination/keys/headers"
    assert environment["INFERENCE_LOGGING_SHIP_CA_FILE"] == "/etc/destination/ca/ca.crt"
