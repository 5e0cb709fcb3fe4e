"""Commands and probes of each preset: which route of which port answers for what."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.chart import Release, render

pytestmark = pytest.mark.chart


def asked(release: Release, container: str) -> dict[str, tuple[str, Any]]:
    """Return path and port by the kind of probe."""
    kinds = ("startup", "readiness", "liveness")
    probes = {kind: release.containers[container].get(f"{kind}Probe", {}).get("httpGet") for kind in kinds}
    return {kind: (probe["path"], probe["port"]) for kind, probe in probes.items() if probe}


def test_fastapi_is_ready_while_records_do_not_back_up_and_restarted_only_if_the_listener_is_stuck() -> None:
    assert asked(render(), "server") == {
        "startup": ("/health/logging/live", "http"),
        "readiness": ("/health/logging", "http"),
        "liveness": ("/health/logging/live", "http"),
    }


def test_probes_follow_the_routes_of_the_configuration() -> None:
    release = render(config={"health_path": "/ready", "liveness_path": "/alive"})
    assert asked(release, "server") == {
        "startup": ("/alive", "http"),
        "readiness": ("/ready", "http"),
        "liveness": ("/alive", "http"),
    }


def test_vllm_is_ready_by_its_own_health_route_which_has_ours_in_its_status() -> None:
    release = render(preset="vllm")
    assert asked(release, "server") == {
        "startup": ("/health/logging/live", "http"),
        "readiness": ("/health", "http"),
        "liveness": ("/health/logging/live", "http"),
    }
    config = release.yaml("logging.yaml")
    assert (config["wrap_health_path"], config["wrap_health"]) == ("/health", "status")


def test_vllm_whose_health_route_keeps_its_status_is_ready_by_ours() -> None:
    assert asked(render(preset="vllm", config={"wrap_health": "header"}), "server")["readiness"][0] == "/health/logging"


def test_triton_is_ready_with_its_listener_and_restarted_when_a_stub_is_dead() -> None:
    release = render(preset="triton")
    assert asked(release, "server") == {
        "startup": ("/v2/health/ready", "http"),
        "readiness": ("/v2/health/ready", "http"),
        "liveness": ("/producers", 9464),
    }
    assert asked(release, "listener") == {
        "startup": ("/live", "metrics"),
        "readiness": ("/health", "metrics"),
        "liveness": ("/live", "metrics"),
    }


def test_triton_without_a_listener_beside_it_is_restarted_by_its_own_route() -> None:
    release = render(preset="triton", listener={"mode": "inProcess"})
    assert asked(release, "server")["liveness"] == ("/v2/health/live", "http")


def test_a_container_of_ones_own_is_asked_nothing_and_its_listener_answers_for_the_logging() -> None:
    release = render(preset="custom")
    assert asked(release, "server") == {}
    assert asked(release, "listener")["readiness"] == ("/health", "metrics")


def test_a_listener_beside_a_middleware_leaves_readiness_to_that() -> None:
    assert set(asked(render(), "listener")) == {"startup", "liveness"}


def test_a_handler_of_ones_own_takes_the_place_of_the_presets_and_its_times_stay() -> None:
    probe = render(server={"probes": {"readiness": {"tcpSocket": {"port": 8000}}}}).containers["server"][
        "readinessProbe"
    ]
    assert probe == {"tcpSocket": {"port": 8000}, "periodSeconds": 5, "timeoutSeconds": 3, "failureThreshold": 2}


def test_times_of_ones_own_leave_the_presets_handler() -> None:
    probe = render(server={"probes": {"startup": {"failureThreshold": 9}}}).containers["server"]["startupProbe"]
    assert probe["failureThreshold"] == 9
    assert probe["httpGet"]["path"] == "/health/logging/live"


@pytest.mark.parametrize("container", ["server", "listener"])
def test_each_probe_can_be_off(container: str) -> None:
    off = {kind: {"enabled": False} for kind in ("startup", "readiness", "liveness")}
    assert asked(render(**{container: {"probes": off}}), container) == {}


def test_fastapi_is_served_by_uvicorn_with_its_processes() -> None:
    server = render(server={"application": "chat:app", "processes": 4, "port": 9000}).containers["server"]
    assert server["command"] == ["python", "-m", "uvicorn"]
    assert server["args"][0] == "chat:app"
    assert {"--port=9000", "--workers=4", "--host=0.0.0.0"} <= {*server["args"]}
    assert server["ports"] == [{"name": "http", "containerPort": 9000}]


def test_vllm_serves_the_model_with_the_middleware() -> None:
    one = render(preset="vllm", server={"model": "a/b", "extraArgs": ["--max-model-len=8"]}).containers["server"]
    assert one["command"] == ["vllm", "serve"]
    assert one["args"][0] == "a/b"
    assert "--middleware=inference_logging.InferenceLoggingMiddleware" in one["args"]
    assert one["args"][-1] == "--max-model-len=8"
    several = render(preset="vllm", server={"processes": 3}).containers["server"]
    assert "--api-server-count=3" in several["args"]


def test_triton_serves_the_repository_on_its_three_ports() -> None:
    server = render(preset="triton", server={"model": "/models"}).containers["server"]
    assert server["command"] == ["tritonserver"]
    assert "--model-repository=/models" in server["args"]
    assert {port["name"]: port["containerPort"] for port in server["ports"]} == {
        "http": 8000,
        "grpc": 8001,
        "triton-metrics": 8002,
    }


def test_a_container_of_ones_own_runs_as_its_image_says() -> None:
    server = render(preset="custom").containers["server"]
    assert {"command", "args"} & {*server} == set()
    given = render(preset="custom", server={"command": ["run"], "args": ["-v"]}).containers["server"]
    assert (given["command"], given["args"]) == (["run"], ["-v"])


def test_a_command_of_ones_own_takes_the_place_of_the_presets_arguments_too() -> None:
    server = render(server={"command": ["gunicorn", "app:app"]}).containers["server"]
    assert server["command"] == ["gunicorn", "app:app"]
    assert "args" not in server


def test_arguments_of_ones_own_leave_the_presets_command() -> None:
    server = render(server={"args": ["other:app"]}).containers["server"]
    assert (server["command"], server["args"]) == (["python", "-m", "uvicorn"], ["other:app"])


def test_the_listener_serves_health_and_metrics_on_its_port() -> None:
    listener = render(listener={"port": 9999}).containers["listener"]
    assert listener["command"] == ["/inference-logging-listener", "listen"]
    assert "--metrics-port=9999" in listener["args"]
    assert listener["ports"] == [{"name": "metrics", "containerPort": 9999}]
