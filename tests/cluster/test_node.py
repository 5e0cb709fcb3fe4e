"""One listener for each node, on a real API server: 200 pods of two tenants on 25 nodes have 25 listeners.

The controllers of the recipes' kinds do not run here, so the templates are taken out of the object as the server keeps
it. The chart of the production stack is in no registry, so its Deployment is built here from our values for it.
"""

from __future__ import annotations

import json
import secrets
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.cluster.control_plane import ControlPlane, Object, node
from tests.cluster.release import CHART, WAIT, documents
from tests.kit.support import wait_until
from tests.tools.tools import tool

RECIPES: Final = CHART / "recipes"
OF_A_PREDICTOR: Final = ("annotations", "labels", "minReplicas", "maxReplicas")
"""What the recipe's predictor has beside the fields of a pod."""


def recipe(name: str) -> list[Object]:
    """Return the objects of a recipe, or what the production stack's chart makes of it."""
    text = (RECIPES / name).read_text(encoding="utf-8")
    return [production_stack(yaml.safe_load(text))] if name.endswith("-values.yaml") else documents(text)


def templates(made: Object) -> list[Object]:
    """Return the templates of the pods that the controller of an object makes."""
    spec = made["spec"]
    if made["kind"] == "InferenceService":
        predictor = spec["predictor"]
        pod = {name: value for name, value in predictor.items() if name not in OF_A_PREDICTOR}
        return [{"metadata": {"annotations": predictor["annotations"]}, "spec": pod}]
    if made["kind"] == "LeaderWorkerSet":
        return [spec["leaderWorkerTemplate"][name] for name in ("leaderTemplate", "workerTemplate")]
    if made["kind"] == "RayService":
        ray = spec["rayClusterConfig"]
        return [group["template"] for group in (ray["headGroupSpec"], *ray["workerGroupSpecs"])]
    return [spec["template"]] if made["kind"] == "Deployment" else []


def production_stack(values: dict[str, Any]) -> Object:
    """Build what chart 0.1.12 of vLLM's production stack makes of values, as far as a policy looks at it."""
    engine = values["servingEngineSpec"]
    (model,) = engine["modelSpec"]
    labels = {"model": model["name"], "app.kubernetes.io/component": "serving-engine"}
    gpus = {"nvidia.com/gpu": str(model["requestGPU"])}
    container = {
        "name": "vllm",
        "image": f"{model['repository']}:{model['tag']}",
        "command": ["vllm", "serve", model["modelURL"], "--port", "8000", *model["vllmConfig"]["extraArgs"]],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "resources": {
            "requests": {"cpu": str(model["requestCPU"]), "memory": model["requestMemory"], **gpus},
            "limits": gpus,
        },
        "securityContext": engine["containerSecurityContext"],
    }
    pod = {
        "securityContext": engine["securityContext"],
        "hostname": "release-chat-vllm-stack",
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"release-{model['name']}-deployment-vllm"},
        "spec": {
            "replicas": model["replicaCount"],
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": model["podAnnotations"]}, "spec": pod},
        },
    }


def judged(cluster: ControlPlane, namespace: str, made: Object) -> Object:
    """Return an object as the server would keep it, by its kind's own schema: a field that this lacks is refused."""
    apply = ("apply", "--server-side", "--dry-run=server", f"--namespace={namespace}", "--output=json", "--filename=-")
    wrong = {**made, "spec": {**made["spec"], "notAField": 1}}
    assert "notAField" in cluster.run("kubectl", *apply, given=json.dumps(wrong)).stderr
    kept: Object = json.loads(cluster.kubectl(*apply, given=json.dumps(made)))
    return kept


def know(cluster: ControlPlane, kinds: Path) -> None:
    """Let the server know the kinds that a folder defines. They stay: to forget them takes it seconds."""
    named = cluster.kubectl("apply", "--server-side", "--output=name", "--filename", kinds)
    for name in (line.partition("/")[2] for line in named.split()):
        wait_until(partial(_is_served, cluster, name), f"{name} to be known")


def _is_served(cluster: ControlPlane, name: str) -> bool:
    return cluster.run("kubectl", "get", name, "--all-namespaces").returncode == 0


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
        for name in (self.logging, *self.tenants):
            wait_until(partial(self.cluster.objects, "serviceaccounts", name), "the account that each namespace has")
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
        return self._create(namespace, specification, {}).stderr

    def admitted(self, namespace: str, specification: dict[str, Any], **annotations: str) -> dict[str, Any]:
        """Return what the server makes of a pod, without keeping it."""
        named = {f"inference-logging.io/{name}": value for name, value in annotations.items()}
        done = self._create(namespace, specification, named)
        assert done.returncode == 0, done.stderr
        made: dict[str, Any] = json.loads(done.stdout)["spec"]
        return made

    def made(self, template: Object) -> dict[str, Any]:
        """Return what the server makes of a pod of a template, without keeping it."""
        annotations = template.get("metadata", {}).get("annotations", {})
        chosen = {name.partition("/")[2]: value for name, value in annotations.items()}
        return self.admitted(self.tenants[0], template["spec"], **chosen)

    def _create(
        self, namespace: str, specification: dict[str, Any], annotations: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        metadata = {"name": "judged", "annotations": annotations}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": specification}
        without_keeping = ("create", "--dry-run=server", "--output=json", f"--namespace={namespace}", "--filename=-")
        return self.cluster.run("kubectl", *without_keeping, given=json.dumps(pod))

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
    names = Counter(container["name"] for pod in (*servers, *listeners) for container in _containers(pod["spec"]))
    assert names == {"server": PODS, "listener": NODES, "shipper": NODES, "install": NODES}


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
    fleet.cluster.apply(_namespace(namespace, standard))
    wait_until(partial(fleet.cluster.objects, "serviceaccounts", namespace), "the account that each namespace has")
    try:
        objection = fleet.judge(namespace, specification)
        assert f'violates PodSecurity "{standard}:latest"' in objection
        assert "hostPath" in objection
        assert fleet.judge(fleet.logging, specification) == ""
    finally:
        fleet.cluster.kubectl("delete", "namespace", namespace, "--wait=false")


RESTRICTED: Final = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
QUEUE: Final = "inference-logging-queue"
ADDED: Final = {
    "LOGGING_POD_NAME": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
    "INFERENCE_LOGGING_LISTENER": "external",
    "INFERENCE_LOGGING_OPEN_FAILURE": "serve",
    "INFERENCE_LOGGING_QUEUE_DIRECTORY": "/run/inference-logging/queues",
    "INFERENCE_LOGGING_DIRECTORY": "/var/log/inference-logging/segments",
}


@pytest.fixture(scope="module")
def injecting(fleet: Fleet) -> Fleet:
    """Wait until the server knows the policy: it reads policies in the background."""
    wait_until(lambda: _has_queue(fleet.admitted(fleet.tenants[0], _foreign(), inject="true")), "the policy to act")
    return fleet


def test_a_pod_that_asks_for_it_gets_the_queue_in_all_its_containers(injecting: Fleet) -> None:
    made = injecting.admitted(injecting.tenants[0], _foreign(), inject="true")
    claim = {"claimName": "inference-logging-queues"}
    assert {"name": QUEUE, "persistentVolumeClaim": claim} in made["volumes"]
    mount = {"name": QUEUE, "mountPath": "/run/inference-logging", "subPathExpr": "$(LOGGING_POD_NAME)"}
    for container, own in zip(made["containers"], _foreign()["containers"], strict=True):
        assert mount in container["volumeMounts"]
        assert _environment(container) == {**ADDED, **_environment(own)}
        # Nothing of its own is gone.
        assert {**container, "env": [], "volumeMounts": []}.items() >= {**own, "env": [], "volumeMounts": []}.items()
        assert all(one in container["volumeMounts"] for one in own.get("volumeMounts", []))


@pytest.mark.parametrize("annotations", [{}, {"inject": "false"}, {"inject": ""}, {"container": "engine"}])
def test_a_pod_that_does_not_ask_is_left_as_it_is(injecting: Fleet, annotations: dict[str, str]) -> None:
    assert not _has_queue(injecting.admitted(injecting.tenants[0], _foreign(), **annotations))


def test_a_pod_that_has_it_is_unchanged(injecting: Fleet) -> None:
    once = injecting.admitted(injecting.tenants[0], _foreign(), inject="true")
    assert injecting.admitted(injecting.tenants[0], once, inject="true") == once


def test_one_container_may_be_named(injecting: Fleet) -> None:
    made = injecting.admitted(injecting.tenants[0], _foreign(), inject="true", container="engine")
    changed = {one["name"] for one in made["containers"] if QUEUE in {m["name"] for m in one.get("volumeMounts", [])}}
    assert changed == {"engine"}


def test_a_pod_with_another_volume_of_this_name_is_left_as_it_is(injecting: Fleet) -> None:
    own = {"name": QUEUE, "emptyDir": {}}
    volumes = [*_foreign()["volumes"], own]
    made = injecting.admitted(injecting.tenants[0], {**_foreign(), "volumes": volumes}, inject="true")
    assert made["volumes"] == volumes
    assert "INFERENCE_LOGGING_LISTENER" not in _environment(made["containers"][0])


def test_a_namespace_that_is_not_named_is_left_as_it_is(injecting: Fleet) -> None:
    assert not _has_queue(injecting.admitted(injecting.logging, _foreign(), inject="true"))


def test_pods_that_a_controller_makes_get_it_and_run(injecting: Fleet) -> None:
    labels = {"app": "foreign"}
    annotated = {"labels": labels, "annotations": {"inference-logging.io/inject": "true"}}
    specification = {**_foreign(), "nodeSelector": POOL}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "foreign", "namespace": injecting.tenants[1]},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": annotated, "spec": specification},
        },
    }
    injecting.cluster.apply(deployment)
    namespace = f"--namespace={injecting.tenants[1]}"
    try:
        injecting.cluster.kubectl("rollout", "status", "deployment/foreign", namespace, "--timeout=60s")
        pods = [
            pod for pod in injecting.pods(injecting.tenants[1]) if pod["metadata"]["labels"].get("app") == "foreign"
        ]
        assert len(pods) == 2
        assert all(_has_queue(pod["spec"]) for pod in pods)
    finally:
        injecting.cluster.kubectl("delete", "deployment", "foreign", namespace)


@pytest.mark.parametrize(
    ("name", "kinds", "servers", "others"),
    [
        ("inferenceservice.yaml", "kserve-crds", {"kserve-container"}, set()),
        ("leaderworkerset.yaml", "lws-crds", {"leader"}, {"worker"}),
        ("llm-d.yaml", "inferencepool-crds", {"vllm"}, {"routing-proxy"}),
        ("production-stack-values.yaml", None, {"vllm"}, set()),
        ("rayservice.yaml", "ray-crds", {"ray-head", "ray-worker"}, set()),
    ],
)
def test_each_server_of_a_recipe_gets_the_queue_and_stays_restricted(
    injecting: Fleet, name: str, kinds: str | None, servers: set[str], others: set[str]
) -> None:
    """The kinds' controllers do not run here: the pods are those of the templates that the server would keep."""
    if kinds is not None:
        know(injecting.cluster, tool(kinds))
    kept = [judged(injecting.cluster, injecting.tenants[0], one) for one in recipe(name)]
    pods = [injecting.made(template) for one in kept for template in templates(one)]
    logged = {one["name"]: _is_logged(one, pod) for pod in pods for one in _containers(pod)}
    assert logged == {**dict.fromkeys(servers, True), **dict.fromkeys(others, False)}


def test_the_recipe_for_kyverno_is_what_its_kind_has(injecting: Fleet) -> None:
    know(injecting.cluster, tool("kyverno-crds"))
    (policy,) = recipe("kyverno.yaml")
    judged(injecting.cluster, injecting.tenants[0], policy)


def _foreign() -> dict[str, Any]:
    """Describe a pod that somebody else's controller makes: it knows nothing of the logging."""
    engine = {
        "name": "engine",
        "image": "example.com/engine",
        "env": [{"name": "MODEL", "value": "m"}, {"name": "NODE", "value": "n"}],
        "volumeMounts": [{"name": "model", "mountPath": "/model"}],
        "securityContext": RESTRICTED,
    }
    proxy = {"name": "proxy", "image": "example.com/proxy", "securityContext": RESTRICTED}
    volumes = [{"name": "model", "emptyDir": {}}]
    return {"automountServiceAccountToken": False, "containers": [engine, proxy], "volumes": volumes}


def _environment(container: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container.get("env", [])}


def _has_queue(specification: dict[str, Any]) -> bool:
    return QUEUE in {volume["name"] for volume in specification.get("volumes", [])}


def _is_logged(container: Object, specification: dict[str, Any]) -> bool:
    return _has_queue(specification) and _environment(container).items() >= ADDED.items()


def _containers(specification: dict[str, Any]) -> list[Object]:
    return [*specification.get("initContainers", []), *specification["containers"]]


def _namespace(name: str, standard: str) -> Object:
    labels = {"pod-security.kubernetes.io/enforce": standard}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
