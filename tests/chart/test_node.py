"""One listener and one shipper for each node: the DaemonSet, and servers that write to it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from inference_logging import Logger, get_logger
from inference_logging.record.config import FileConfig
from tests.chart.chart import CHART, Release, conform, helm, notes_of, parted, render, render_file
from tests.kit.command_line import run
from tests.kit.sidecars import Sidecar
from tests.kit.support import read_lines, read_records, wait_until
from tests.ship.endpoint import Collector, collector

__all__ = ["collector"]  # a fixture

pytestmark = pytest.mark.chart

DAEMONSET, SHIPS, SERVER = (
    CHART / "ci" / "node" / f"{name}-values.yaml" for name in ("daemonset", "daemonset-inference-logging", "server")
)
OF_NODE: dict[str, Any] = {"mode": "node", "node": {"namespaces": ["chat"]}}


@pytest.fixture
def daemonset() -> Release:
    """Return the release with the listeners."""
    return render_file(DAEMONSET)


@pytest.fixture
def server() -> Release:
    """Return a release of a server that leaves its queues to them."""
    return render_file(SERVER)


def pod(daemonset: Release) -> dict[str, Any]:
    specification: dict[str, Any] = daemonset.one("DaemonSet")["spec"]["template"]["spec"]
    return specification


def containers(daemonset: Release) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in (*pod(daemonset).get("initContainers", []), *pod(daemonset)["containers"])}


@pytest.mark.parametrize("file", [DAEMONSET, SHIPS, SERVER], ids=["daemonset", "ships", "server"])
def test_both_are_linted_and_what_kubernetes_accepts(file: Path) -> None:
    done = helm("lint", "--strict", CHART, "--values", file)
    assert done.returncode == 0, done.stdout + done.stderr
    judged = conform(render_file(file).objects, "1.37.0")
    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_the_notes_of_both_name_the_next_command(tmp_path: Path) -> None:
    for name in ("node", "server"):
        (tmp_path / name).mkdir()
    of_node, of_server = notes_of(DAEMONSET, tmp_path / "node"), notes_of(SERVER, tmp_path / "server")
    assert "rollout status daemonset/release-inference-logging" in of_node
    assert "for the pods of chat, tools" in of_node
    assert "deployment" not in of_node
    assert "rollout status deployment/release-inference-logging" in of_server
    assert "logs --selector app.kubernetes.io/name=inference-logging" in of_server
    assert "verify" not in of_server, "the segments are not in the pod"
    assert "Nothing takes the segments" not in of_server


def test_a_node_has_a_daemonset_and_nothing_of_a_server(daemonset: Release) -> None:
    kinds = {thing["kind"] for thing in daemonset.objects}
    assert "DaemonSet" in kinds
    assert kinds.isdisjoint({"Deployment", "Service", "HorizontalPodAutoscaler", "ServiceMonitor"})
    assert list(containers(daemonset)) == ["install", "shipper", "listener"]


def test_a_server_has_neither_listener_nor_shipper_nor_segments(server: Release) -> None:
    assert list(server.containers) == ["server"]
    assert "segments" not in server.volumes
    assert server.environment("server")["INFERENCE_LOGGING_LISTENER"] == "external"


def test_a_server_mounts_a_directory_of_its_own_of_the_claim_that_its_namespace_has(
    daemonset: Release, server: Release
) -> None:
    claims = {one["metadata"]["namespace"]: one for one in daemonset.all("PersistentVolumeClaim")}
    volumes = {one["metadata"]["name"]: one["spec"] for one in daemonset.all("PersistentVolume")}
    assert set(claims) == {"chat", "tools"}
    for one in (*claims.values(), *daemonset.all("PersistentVolume")):
        # A claim that is going admits no new pod.
        assert one["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    for namespace, claim in claims.items():
        volume = volumes[claim["spec"]["volumeName"]]
        assert volume["hostPath"] == {"path": f"/dev/shm/inference-logging/{namespace}", "type": "Directory"}
        assert volume["claimRef"] == {"namespace": namespace, "name": claim["metadata"]["name"]}
    claimed = {"claimName": claims["chat"]["metadata"]["name"]}
    assert server.volumes["queue"] == {"name": "queue", "persistentVolumeClaim": claimed}
    mounts = {one["name"]: one for one in server.containers["server"]["volumeMounts"]}
    assert mounts["queue"]["subPathExpr"] == "$(POD_NAME)"
    # Kubernetes fills in what stands before it.
    assert next(iter(server.environment("server"))) == "POD_NAME"


def test_the_listener_makes_each_namespace_its_directory_below_the_one_that_it_mounts(daemonset: Release) -> None:
    made = {one.removeprefix("--make=") for one in containers(daemonset)["listener"]["args"] if "--make" in one}
    assert made == {"/run/inference-logging/chat", "/run/inference-logging/tools"}
    hosts = {one["name"]: one["hostPath"] for one in pod(daemonset)["volumes"] if "hostPath" in one}
    assert hosts["queues"] == {"path": "/dev/shm/inference-logging", "type": "DirectoryOrCreate"}
    assert {"name": "queues", "mountPath": "/run/inference-logging"} in containers(daemonset)["listener"][
        "volumeMounts"
    ]
    assert "queues" not in {one["name"] for one in containers(daemonset)["shipper"]["volumeMounts"]}


def test_both_are_root_with_no_more_capabilities_than_they_need(daemonset: Release) -> None:
    added = {name: one["securityContext"]["capabilities"].get("add") for name, one in containers(daemonset).items()}
    assert added == {"listener": ["CHOWN", "SETGID", "SETUID"], "shipper": ["DAC_READ_SEARCH"], "install": None}
    for one in containers(daemonset).values():
        assert one["securityContext"]["capabilities"]["drop"] == ["ALL"]
        assert one["securityContext"]["allowPrivilegeEscalation"] is False
        assert one["securityContext"]["readOnlyRootFilesystem"] is True


def test_what_is_scraped_of_a_pods_directory_is_that_pods(daemonset: Release) -> None:
    (listener, *_) = daemonset.one("PodMonitor")["spec"]["podMetricsEndpoints"]
    assert listener["port"] == "metrics"
    assert [(one["targetLabel"], one["replacement"]) for one in listener["metricRelabelings"]] == [
        ("namespace", "$1"),
        ("pod", "$2"),
    ]


def test_shippers_follow_the_segments_of_all_pods(daemonset: Release) -> None:
    collector = daemonset.yaml("otel-collector.yaml")
    assert collector["receivers"]["file_log"]["include"] == ["/var/log/inference-logging/segments/*/*/*.jsonl"]
    bit = render(**OF_NODE, shipper={"type": "fluent-bit"}, config={"version": 1, "audit": "on"})
    (tail,) = bit.yaml("fluent-bit.yaml")["pipeline"]["inputs"]
    below = "/var/log/inference-logging/segments/*/*"
    assert tail["path"] == f"{below}/*.jsonl,{below}/audit/*.jsonl"


def test_our_own_shipper_follows_them_and_keeps_its_progress_on_the_host() -> None:
    release = render_file(SHIPS)
    assert list(containers(release)) == ["shipper", "listener"], "it ships what is left without being waited for"
    shipper = containers(release)["shipper"]
    assert parted(shipper)[1][3:] == [
        "--each=/var/log/inference-logging/segments/{k8s.namespace.name}/{k8s.pod.name}",
        "--state=/var/log/inference-logging/inference-logging",
    ]
    assert shipper["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["DAC_READ_SEARCH"]}
    assert {one["name"] for one in shipper["volumeMounts"]} <= {one["name"] for one in pod(release)["volumes"]}
    assert "retention_waits_for" not in release.yaml("logging.yaml")


def test_a_policy_adds_the_queue_only_in_the_namespaces_that_are_named_and_only_where_it_is_asked_for() -> None:
    values = {**OF_NODE, "node": {"namespaces": ["chat", "tools"], "inject": {"enabled": True}}}
    policy = render(**values).one("MutatingAdmissionPolicy")["spec"]
    (names,) = policy["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert (names["key"], names["values"]) == ("kubernetes.io/metadata.name", ["chat", "tools"])
    assert policy["failurePolicy"] == "Ignore"
    assert render(**OF_NODE).all("MutatingAdmissionPolicy") == []


def test_kyverno_is_given_the_same_policy_without_rules_for_what_makes_pods() -> None:
    policy = render(**{**OF_NODE, "node": {"namespaces": ["chat"], "inject": {"enabled": True}}})
    recipe = yaml.safe_load((CHART / "recipes" / "kyverno.yaml").read_text(encoding="utf-8"))
    only_pods: dict[str, Any] = {"autogen": {"podControllers": {"controllers": []}}}
    assert recipe["spec"] == {**policy.one("MutatingAdmissionPolicy")["spec"], **only_pods}


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ({"mode": "node"}, "node.namespaces: must name"),
        (
            {**OF_NODE, "config": {"retention_waits_for": ["kafka"]}},
            "config.retention_waits_for: must be empty with mode=node",
        ),
        (
            {**OF_NODE, "shipper": {"type": "inference-logging"}, "config": {"audit_directory": "/audit"}},
            "config.audit_directory=/audit: must be left out",
        ),
        (
            {**OF_NODE, "shipper": {"type": "fluent-bit"}, "destination": {"type": "loki"}},
            "destination.type=loki: must be by otel-collector",
        ),
        ({**OF_NODE, "config": {"audit": "on", "audit_sink": "sqlite"}}, "config.audit_sink=sqlite: must be file"),
        ({**OF_NODE, "monitor": {"kind": "ServiceMonitor"}}, "monitor.kind=ServiceMonitor: there is no Service"),
        ({**OF_NODE, "listener": {"mode": "inProcess"}}, "listener.mode=inProcess: is for mode=server"),
        ({"listener": {"mode": "node"}}, "shipper.type=otel-collector: must be none with listener.mode=node"),
        (
            {
                "listener": {"mode": "node"},
                "shipper": {"type": "none"},
                "storage": {"segments": {"persistence": {"enabled": True}}},
            },
            "storage.segments.persistence.enabled: must be false",
        ),
        ({**OF_NODE, "node": {"namespaces": ["../etc"]}}, "namespaces"),
        ({**OF_NODE, "node": {"namespaces": ["a"], "queues": {"hostPath": "relative"}}}, "hostPath"),
    ],
)
def test_what_does_not_go_together_is_refused(values: dict[str, Any], refused: str) -> None:
    assert refused in render(**values).error


@pytest.fixture
def host() -> Iterator[Path]:
    """Return a directory that stands for the node's root."""
    root = Path(tempfile.mkdtemp(prefix="host-"))
    root.chmod(0o755)
    try:
        yield root
    finally:
        shutil.rmtree(root)


def test_the_listener_of_the_daemonset_writes_what_the_server_produces_and_its_shipper_sends_it(
    server: Release, host: Path, listener_binary: Path, collector: Collector
) -> None:
    daemonset = render_file(SHIPS)

    # As on a node: the volumes of the two pods are the same directories, and the pod's is one below the other's.
    def placed(text: str, queues: str) -> str:
        text = text.replace("/run/inference-logging", queues)
        return text.replace("/var/log/inference-logging", str(host / "log"))

    listens, serves = host / "node.yaml", host / "server.yaml"
    listens.write_text(placed(daemonset.file("logging.yaml"), str(host / "queues")))
    serves.write_text(placed(server.file("logging.yaml"), str(host / "queues" / "chat" / "pod-1")))
    arguments = [placed(one, str(host / "queues")) for one in parted(containers(daemonset)["listener"])[1][2:]]
    arguments = [one for one in arguments if not one.startswith(("--metrics-port", "--status-interval-s"))]
    with Sidecar(FileConfig(config_file=listens), *arguments, listen=(str(listener_binary), "listen")) as sidecar:
        sidecar.wait_for("directories=0")
        (host / "queues" / "chat" / "pod-1").mkdir(mode=0o777)
        with Logger(FileConfig(config_file=serves, listener="external")) as logger:
            assert get_logger("pod").warning("a record")
            assert logger.flush(60)
        segments = host / "log" / "segments" / "chat" / "pod-1"
        (record,) = wait_until(lambda: read_records(segments, "log"), "the record")
        assert sidecar.stop() == 0
    resource = read_lines(segments)[0]["resource"]
    expected = {"service.name": "chat", "k8s.namespace.name": "chat", "k8s.pod.name": "pod-1"}
    assert resource.items() >= expected.items()
    assert record["resource"] == resource, "a line says of which pod it is, whatever reads it"
    ships = [placed(one, "") for one in parted(containers(daemonset)["shipper"])[1][2:] if "metrics" not in one]
    done = run("ship", "--config", str(listens), *ships, "--to", collector.url, "--once")
    assert (done.code, "ended records=" in done.err) == (0, True), done
    shipped = {(one["boot_id"], one.get("seq")): one["resource"] for one in collector.records()}
    assert shipped[record["boot_id"], record["seq"]].items() >= expected.items()


def test_the_values_of_both_are_json_that_a_listener_without_python_reads(daemonset: Release, server: Release) -> None:
    for release in (daemonset, server):
        text = release.file("logging.yaml")
        assert json.loads(text) == yaml.safe_load(text)
