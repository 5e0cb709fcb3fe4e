"""One listener for each node, on a real API server: 200 pods of two tenants on 25 nodes have 25 listeners."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.control_plane import ControlPlane, Object, node
from tests.cluster.release import CHART, WAIT, documents

pytestmark = pytest.mark.cluster

NODES: Final = 25
PODS: Final = 200
POOL: Final = {"pool": "of-listeners"}
DAEMONSET, SERVER = (CHART / "ci" / "node" / f"{name}-values.yaml" for name in ("daemonset", "server"))


class Fleet:
    """The namespaces, nodes and releases of this test."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.cluster, mark = cluster, secrets.token_hex(3)
        self.logging, *self.tenants = (f"{name}-{mark}" for name in ("logging", "chat", "tools"))
        self.nodes = [f"node-{mark}-{number}" for number in range(NODES)]

    def furnish(self) -> None:
        """Make namespaces and nodes."""
        self.cluster.apply(_namespace(self.logging, "privileged"))
        self.cluster.apply(*(_namespace(name, "restricted") for name in self.tenants))
        made = [node(name) for name in self.nodes]
        for one in made:
            one["metadata"]["labels"] |= POOL
        self.cluster.apply(*made)
        self.cluster.kubectl("wait", "--for=condition=Ready", "node", "--selector=pool=of-listeners", "--timeout=60s")

    def install(self) -> None:
        """Install the listeners, and a server in each namespace."""
        self.helm("install", "node", self.logging, DAEMONSET, *self._of_node(), *WAIT)
        for name in self.tenants:
            replicas = f"--set=replicaCount={PODS // len(self.tenants)}"
            self.helm("install", "serving", name, SERVER, replicas, "--set=nodeSelector.pool=of-listeners", *WAIT)

    def rendered(self) -> list[Object]:
        """Return what the chart makes for the nodes."""
        return documents(self.helm("template", "node", self.logging, DAEMONSET, *self._of_node()))

    def helm(self, command: str, name: str, namespace: str, values: Path, *arguments: str) -> str:
        """Run helm, which must succeed, and return what it said."""
        done = self.cluster.run(
            "helm", command, name, CHART, f"--namespace={namespace}", f"--values={values}", *arguments
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def pods(self, namespace: str) -> list[Object]:
        """Return the pods of a namespace."""
        return self.cluster.objects("pods", namespace)

    def judge(self, namespace: str, specification: dict[str, Any]) -> str:
        """Let the server judge a pod without keeping it, and return what it objects to."""
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "judged"}, "spec": specification}
        done = self.cluster.run(
            "kubectl", "create", "--dry-run=server", f"--namespace={namespace}", "--filename=-", given=json.dumps(pod)
        )
        return done.stderr

    def remove(self) -> None:
        """Remove all, and wait for it: other tests count nodes."""
        volumes = [one["metadata"]["name"] for one in self.rendered() if one["kind"] == "PersistentVolume"]
        namespaces = (self.logging, *self.tenants)
        self.cluster.run("kubectl", "delete", "--ignore-not-found", "--timeout=90s", "namespace", *namespaces)
        self.cluster.run("kubectl", "delete", "--ignore-not-found", "--timeout=90s", "persistentvolume", *volumes)
        self.cluster.run("kubectl", "delete", "--ignore-not-found", "--timeout=90s", "node", *self.nodes)

    def _of_node(self) -> tuple[str, ...]:
        return f"--set=node.namespaces={{{','.join(self.tenants)}}}", "--set=nodeSelector.pool=of-listeners"


@pytest.fixture(scope="module")
def fleet(cluster: ControlPlane) -> Iterator[Fleet]:
    """Install listeners and servers."""
    made = Fleet(cluster)
    try:
        made.furnish()
        made.install()
        yield made
    finally:
        made.remove()


def test_200_pods_on_25_nodes_have_25_listeners(fleet: Fleet) -> None:
    servers = [pod for name in fleet.tenants for pod in fleet.pods(name)]
    listeners = fleet.pods(fleet.logging)
    assert (len(servers), len(listeners)) == (PODS, NODES)
    assert all(pod["status"]["phase"] == "Running" for pod in (*servers, *listeners))
    assert Counter(pod["spec"]["nodeName"] for pod in listeners) == dict.fromkeys(fleet.nodes, 1)
    assert {pod["spec"]["nodeName"] for pod in servers} == set(fleet.nodes)
    names = Counter(container["name"] for pod in (*servers, *listeners) for container in _containers(pod))
    assert names == {"server": PODS, "listener": NODES, "shipper": NODES, "handover": NODES}


def test_each_namespace_has_a_claim_that_is_bound_to_its_own_directory_of_every_node(fleet: Fleet) -> None:
    for name in fleet.tenants:
        (claim,) = fleet.cluster.objects("persistentvolumeclaims", name)
        assert claim["status"]["phase"] == "Bound"
        found = fleet.cluster.kubectl("get", "persistentvolume", claim["spec"]["volumeName"], "--output=json")
        volume = json.loads(found)
        assert volume["spec"]["hostPath"]["path"] == f"/dev/shm/inference-logging/{name}"
        assert volume["spec"]["claimRef"]["namespace"] == name
        assert "nodeAffinity" not in volume["spec"]


def test_pods_of_servers_stay_restricted_and_could_not_mount_the_host_themselves(fleet: Fleet) -> None:
    specification = fleet.pods(fleet.tenants[0])[0]["spec"]
    kept = {name: specification[name] for name in ("containers", "volumes", "securityContext")}
    own = [one for one in kept["volumes"] if not one["name"].startswith("kube-api-access")]
    assert fleet.judge(fleet.tenants[0], {**kept, "volumes": own}) == ""
    (queue,) = (one for one in own if one["name"] == "queue")
    mounted = {"name": "queue", "hostPath": {"path": f"/dev/shm/inference-logging/{fleet.tenants[0]}"}}
    others = [one for one in own if one is not queue]
    assert "hostPath" in fleet.judge(fleet.tenants[0], {**kept, "volumes": [*others, mounted]})


@pytest.mark.parametrize("standard", ["restricted", "baseline"])
def test_the_pod_of_a_node_needs_a_namespace_of_its_own_that_is_privileged(fleet: Fleet, standard: str) -> None:
    (daemonset,) = (one for one in fleet.rendered() if one["kind"] == "DaemonSet")
    specification = {**daemonset["spec"]["template"]["spec"], "serviceAccountName": "default"}
    namespace = f"{standard}-{secrets.token_hex(3)}"
    fleet.cluster.apply(_namespace(namespace, standard), _account(namespace))
    try:
        objection = fleet.judge(namespace, specification)
        assert f'violates PodSecurity "{standard}:latest"' in objection
        assert "hostPath" in objection
        assert fleet.judge(fleet.logging, specification) == ""
    finally:
        fleet.cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def _containers(pod: Object) -> list[Object]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def _namespace(name: str, standard: str) -> Object:
    labels = {"pod-security.kubernetes.io/enforce": standard}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _account(namespace: str) -> Object:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}
