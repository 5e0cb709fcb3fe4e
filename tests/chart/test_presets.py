"""Commands and probes of each preset: which route of which port answers for what."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.chart import CHART, Release, parted, render, render_file

pytestmark = pytest.mark.chart


def asked(release: Release, container: str) -> dict[str, tuple[str, Any]]:
    """Return path and port by the kind of probe."""
    kinds = ("startup", "readiness", "liveness")
    probes = {kind: release.containers[container].get(f"{kind}Probe", {}).get("httpGet") for kind in kinds}
    return {kind: (probe["path"], probe["port"]) for kind, probe in probes.items() if probe}


STRICT = {"readyOnBacklog": False}


def test_fastapi_is_ready_while_it_answers_and_restarted_only_if_the_listener_is_stuck() -> None:
    kinds = ("startup", "readiness", "liveness")
    assert asked(render(), "server") == dict.fromkeys(kinds, ("/health/logging/live", "http"))
    assert asked(render(server=STRICT), "server")["readiness"] == ("/health/logging", "http")


def test_probes_follow_the_routes_of_the_configuration() -> None:
    release = render(config={"health_path": "/ready", "liveness_path": "/alive"}, server=STRICT)
    assert asked(release, "server") == {
        "startup": ("/alive", "http"),
        "readiness": ("/ready", "http"),
        "liveness": ("/alive", "http"),
    }


@pytest.mark.parametrize(("server", "adds"), [({}, "header"), (STRICT, "status")])
def test_vllm_is_ready_by_its_own_health_route_which_has_ours_in_it(server: dict[str, Any], adds: str) -> None:
    release = render(preset="vllm", server=server)
    assert asked(release, "server") == {
        "startup": ("/health/logging/live", "http"),
        "readiness": ("/health", "http"),
        "liveness": ("/health/logging/live", "http"),
    }
    config = release.yaml("logging.yaml")
    assert (config["wrap_health_path"], config["wrap_health"]) == ("/health", adds)


def test_vllm_whose_health_route_keeps_its_status_is_ready_by_ours() -> None:
    release = render(preset="vllm", config={"wrap_health": "header"}, server=STRICT)
    assert asked(release, "server")["readiness"][0] == "/health/logging"


def test_triton_is_ready_with_its_listener_and_restarted_when_a_stub_is_dead() -> None:
    release = render(preset="triton")
    assert asked(release, "server") == {
        "startup": ("/v2/health/ready", "http"),
        "readiness": ("/v2/health/ready", "http"),
        # The listener's parent answers: an end of the listener is no dead model.
        "liveness": ("/producers", 9466),
    }
    assert parted(release.containers["listener"])[0]["--metrics-port"] == "9466"
    assert asked(release, "listener") == {"startup": ("/live", "metrics")}
    strict = render(preset="triton", server=STRICT)
    assert asked(strict, "listener") == {"startup": ("/live", "metrics"), "readiness": ("/health", "metrics")}


def test_triton_without_a_listener_beside_it_is_restarted_by_its_own_route() -> None:
    release = render(preset="triton", listener={"mode": "inProcess"})
    assert asked(release, "server")["liveness"] == ("/v2/health/live", "http")


def test_a_container_of_ones_own_is_asked_nothing_and_its_listener_answers_for_the_logging() -> None:
    assert asked(render(preset="custom"), "server") == {}
    assert set(asked(render(preset="custom"), "listener")) == {"startup"}
    assert asked(render(preset="custom", server=STRICT), "listener")["readiness"] == ("/health", "metrics")


def test_a_listener_beside_a_middleware_leaves_readiness_to_that() -> None:
    assert set(asked(render(server=STRICT), "listener")) == {"startup"}


def test_a_handler_of_ones_own_takes_the_place_of_the_presets_and_its_times_stay() -> None:
    probe = render(server={"probes": {"readiness": {"tcpSocket": {"port": 8000}}}}).containers["server"][
        "readinessProbe"
    ]
    assert probe == {"tcpSocket": {"port": 8000}, "periodSeconds": 5, "timeoutSeconds": 3, "failureThreshold": 2}


def test_times_of_ones_own_leave_the_presets_handler() -> None:
    probe = render(server={"probes": {"startup": {"failureThreshold": 9}}}).containers["server"]["startupProbe"]
    assert probe["failureThreshold"] == 9
    assert probe["httpGet"]["path"] == "/health/logging/live"


def test_each_probe_can_be_off() -> None:
    off = {kind: {"enabled": False} for kind in ("startup", "readiness", "liveness")}
    assert asked(render(server={"probes": off}), "server") == {}


def test_fastapi_is_served_by_uvicorn_with_its_processes() -> None:
    server = render(server={"application": "chat:app", "processes": 4, "port": 9000}).containers["server"]
    assert server["command"] == ["python", "-m", "uvicorn"]
    assert server["args"][0] == "chat:app"
    assert {"--port=9000", "--workers=4", "--host=0.0.0.0", "--no-access-log"} <= {*server["args"]}
    assert server["ports"] == [{"name": "http", "containerPort": 9000}]


def test_vllm_serves_the_model_with_the_middleware() -> None:
    one = render(preset="vllm", server={"model": "a/b", "extraArgs": ["--max-model-len=8"]}).containers["server"]
    assert one["command"] == ["vllm", "serve"]
    assert one["args"][0] == "a/b"
    assert "--middleware=inference_logging.InferenceLoggingMiddleware" in one["args"]
    assert "--disable-uvicorn-access-log" in one["args"]
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


def test_arguments_of_ones_own_may_say_what_a_preset_says() -> None:
    release = render(server={"args": ["other:app"], "extraArgs": ["--port=9000"]})
    assert release.containers["server"]["args"] == ["other:app", "--port=9000"]


@pytest.mark.parametrize("preset", ["fastapi", "vllm", "triton"])
def test_each_preset_has_a_file_of_values_that_starts_once_the_images_are_named(preset: str) -> None:
    file = CHART / f"values-{preset}.yaml"
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 20
    release = render_file(file)
    assert not release.error
    images = {name: one["image"] for name, one in release.containers.items()}
    assert images["server"].startswith("registry.example.com/")
    assert images["listener"] == images["install"] == "registry.example.com/inferlog-listener:0.1.0"
    assert ("nvidia.com/gpu" in release.containers["server"]["resources"]["limits"]) is (preset != "fastapi")
    for page in (CHART / "README.md", CHART.parent / "docs" / "kubernetes.md"):
        assert f"helm/{file.name}" in page.read_text(encoding="utf-8")


def test_the_listener_serves_health_and_metrics_on_its_port() -> None:
    listener = render(listener={"port": 9999}).containers["listener"]
    assert parted(listener)[1][:3] == ["/inference-logging-listener", "listen", "--metrics-port=9999"]
    assert {"name": "metrics", "containerPort": 9999} in listener["ports"]
