"""What a cluster may offer beside pods: service, autoscaling, budget, network policy, monitors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.chart import MODES, Release, render

pytestmark = pytest.mark.chart

KAFKA = {"type": "kafka", "endpoints": ["a:9092", "b:9093", "c:9093"]}


def ports(release: Release) -> dict[str, tuple[int, int]]:
    """Return port and target port by name."""
    return {one["name"]: (one["port"], one["targetPort"]) for one in release.one("Service")["spec"]["ports"]}


def test_the_service_leads_to_server_listener_and_shipper_by_number() -> None:
    assert ports(render()) == {
        "http": (80, 8000),
        "metrics": (9464, 9464),
        "up-metrics": (9466, 9466),
        "ship-metrics": (8888, 8888),
        "ship-up-metrics": (9467, 9467),
    }
    alone = render(listener={"mode": "inProcess"}, shipper={"type": "none"}, preset="triton")
    assert ports(alone) == {"http": (80, 8000), "grpc": (8001, 8001), "triton-metrics": (8002, 8002)}


def test_service_and_pods_go_together() -> None:
    release = render(podLabels={"team": "a"})
    deployment = release.one("Deployment")["spec"]
    selector = release.one("Service")["spec"]["selector"]
    assert deployment["selector"]["matchLabels"] == selector
    assert selector.items() <= deployment["template"]["metadata"]["labels"].items()


def test_an_autoscaled_deployment_has_no_number_of_pods_of_its_own() -> None:
    release = render(autoscaling={"enabled": True, "maxReplicas": 9})
    assert "replicas" not in release.one("Deployment")["spec"]
    scaler = release.one("HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == release.one("Deployment")["metadata"]["name"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (1, 9)
    # What the sidecars use says nothing of the server's load.
    assert [metric["containerResource"]["container"] for metric in scaler["metrics"]] == ["server"]


def test_a_budget_has_the_one_limit_that_is_given() -> None:
    for given in ({"minAvailable": 0}, {"maxUnavailable": "25%"}):
        spec = render(podDisruptionBudget={"enabled": True, **given}).one("PodDisruptionBudget")["spec"]
        assert {name: value for name, value in spec.items() if name != "selector"} == given


def test_a_network_policy_separates_the_servers_clients_from_those_of_metrics() -> None:
    gateway, monitoring = [{"podSelector": {"matchLabels": {"role": role}}} for role in ("gateway", "monitoring")]
    policy = {"enabled": True, "from": [gateway], "metricsFrom": [monitoring]}
    spec = render(networkPolicy=policy).one("NetworkPolicy")["spec"]
    allowed = {tuple(port["port"] for port in rule["ports"]): rule["from"] for rule in spec["ingress"]}
    assert allowed == {(8000,): [gateway]} | {(port,): [monitoring] for port in (9464, 9466, 8888, 9467)}
    assert spec["policyTypes"] == ["Ingress"]


def test_a_network_policy_lets_out_names_and_what_is_shipped_and_nothing_else() -> None:
    policy = {"enabled": True, "egress": {"enabled": True}}
    spec = render(networkPolicy=policy, destination=KAFKA).one("NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    allowed = [{(port["protocol"], port["port"]) for port in rule["ports"]} for rule in spec["egress"]]
    assert allowed == [{("UDP", 53), ("TCP", 53)}, {("TCP", 9092), ("TCP", 9093)}]
    for kind, endpoint, port in (
        ("syslog", "s:6514", 6514),
        ("clickhouse", "https://c", 8443),
        ("clickhouse", "http://c", 8123),
        ("clickhouse", "http://c:9123", 9123),
    ):
        to = {"type": kind, "endpoints": [endpoint]}
        made = render(networkPolicy=policy, destination=to, shipper={"type": "inference-logging"}).one("NetworkPolicy")
        assert made["spec"]["egress"][1]["ports"] == [{"protocol": "TCP", "port": port}]
    alone = render(networkPolicy=policy, shipper={"type": "none"}).one("NetworkPolicy")["spec"]
    assert len(alone["egress"]) == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["ServiceMonitor", "PodMonitor"])
def test_a_monitor_scrapes_the_listener_wherever_it_is_and_the_shipper(mode: str, kind: str) -> None:
    given: dict[str, Any] = {"monitor": {"kind": kind, "serverPath": "/metrics"}, "listener": {"mode": mode}}
    release = render(preset="vllm", **given)
    monitor = release.one(kind)["spec"]
    scraped = {(one["port"], one["path"]) for one in monitor.get("endpoints", monitor.get("podMetricsEndpoints"))}
    ours = ("metrics", "/metrics") if mode == "sidecar" else ("http", "/metrics/logging")
    parents = {("ship-up-metrics", "/metrics")} | ({("up-metrics", "/metrics")} if mode == "sidecar" else set())
    assert scraped == {ours, ("ship-metrics", "/metrics"), ("http", "/metrics"), *parents}
    # The operator gives the label `service` to what a ServiceMonitor scrapes.
    service = [{"targetLabel": "service", "replacement": release.one("Service")["metadata"]["name"]}]
    relabelled = [one.get("relabelings") for one in monitor.get("endpoints", monitor.get("podMetricsEndpoints"))]
    assert relabelled == [service if kind == "PodMonitor" else None] * len(scraped)
    # Each is a port that there is.
    named = {port["name"] for container in release.containers.values() for port in container.get("ports", [])}
    assert {port for port, _ in scraped} <= (named if kind == "PodMonitor" else set(ports(release)))


def test_names_fit_what_kubernetes_allows() -> None:
    release = render(fullnameOverride="x" * 70, dashboard={"enabled": True})
    assert all(len(thing["metadata"]["name"]) <= 63 for thing in release.objects)
