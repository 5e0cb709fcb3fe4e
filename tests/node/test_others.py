"""Pods of others on a real node: by an annotation, by kustomize, and one that missed both."""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.chart.library import render_user
from tests.cluster.control_plane import Object
from tests.cluster.release import CHART, documents, namespace
from tests.kit.support import wait_until
from tests.node.node import Node
from tests.node.serving import Chat, Requests, watch, written

pytestmark = [pytest.mark.node, pytest.mark.kills]

LISTENER = "registry.example.com/inferlog-listener"
SERVER = {
    "name": "server",
    "image": "registry.example.com/chat:1.0",
    "command": ["python", "-m", "uvicorn", "app:app", "--host=0.0.0.0"],
    "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1},
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
}
POD = {
    "automountServiceAccountToken": False,
    "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [SERVER],
}
"""A pod of an image that has the package, without anything of the chart."""


@pytest.fixture
def place(node: Node) -> Iterator[str]:
    """Make a namespace that admits only what is restricted."""
    name = f"others-{secrets.token_hex(4)}"
    node.apply(namespace(name, {}))
    wait_until(partial(node.objects, "serviceaccounts", name), "the account that each namespace has")
    yield name
    node.kubectl("delete", "namespace", name, "--wait=false")


def test_a_pod_that_missed_the_injection_serves(node: Node, place: str) -> None:
    node.apply(_pod(place))
    url = f"http://{_ready(node, place)['status']['podIP']}:8000"
    with Requests(url) as sent:
        sent.wait_for(100)
    assert not sent.failed
    health = httpx.get(f"{url}/health/logging")
    assert (health.status_code, health.json()["status"]) == (503, "degraded")


def test_a_pod_that_asks_for_it_is_served_by_the_listener_of_its_node(
    node: Node, place: str, install: Callable[..., Chat]
) -> None:
    of_node = install(
        "injecting", installed=False, mode="node", node={"namespaces": [place], "inject": {"enabled": True}}
    )
    of_node.admit("privileged")
    of_node.install()
    asks = _pod(place, **{"inference-logging.io/inject": "true"})
    # The API server reads policies in the background.
    judged = ("create", "--dry-run=server", "--output=json", "--filename=-")
    watch(lambda: "persistentVolumeClaim" in node.kubectl(*judged, given=json.dumps(asks)), "the policy to act")
    node.apply(asks)
    with Requests(f"http://{_ready(node, place)['status']['podIP']}:8000") as sent:
        sent.wait_for(500)
    of_node.is_on_record(sent)
    assert not sent.failed


def kustomized(node: Node, place: str, directory: Path) -> list[Object]:
    """Build a Deployment that asks for it with the component, as the chart's README shows."""
    labels = {"app": "others"}
    deployment: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "others", "namespace": place, "labels": {"inference-logging.io/sidecar": "true"}},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": copy.deepcopy(POD)},
        },
    }
    component = directory / "component"
    component.mkdir()
    for path in (CHART / "kustomize").iterdir():
        (component / path.name).write_bytes(path.read_bytes())
    (directory / "deployment.yaml").write_text(yaml.safe_dump(deployment), encoding="utf-8")
    named = {"name": "inferlog-listener", "newName": LISTENER}
    kustomization = {"resources": ["deployment.yaml"], "components": ["component"], "images": [named]}
    (directory / "kustomization.yaml").write_text(json.dumps(kustomization), encoding="utf-8")
    return documents(node.kubectl("kustomize", directory))


def charted(_node: Node, place: str, directory: Path) -> list[Object]:
    """Render a Deployment of a chart that uses the library chart, as that one's README shows."""
    rendered = render_user(directory / "chat", image={"repository": LISTENER})
    assert rendered.returncode == 0, rendered.stderr
    (made,) = documents(rendered.stdout)
    made["metadata"] = {"name": "others", "namespace": place}
    spec = made["spec"]["template"]["spec"]
    server = next(one for one in spec["containers"] if one["name"] == "server")
    spec["containers"] = [server | SERVER]
    spec["automountServiceAccountToken"] = False
    return [made]


@pytest.mark.parametrize("added", [kustomized, charted])
def test_a_deployment_of_others_with_a_listener_is_on_record(
    node: Node, place: str, tmp_path: Path, added: Callable[[Node, str, Path], list[Object]]
) -> None:
    node.apply(*added(node, place, tmp_path))
    pod = _ready(node, place)
    with Requests(f"http://{pod['status']['podIP']}:8000") as sent:
        sent.wait_for(500)
    watch(lambda: sent.answered <= written(node, pod, "inference-logging-segments"), "the records")
    assert not sent.failed


def _pod(place: str, **annotations: str) -> Object:
    metadata = {"name": "others", "namespace": place, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": POD}


def _ready(node: Node, place: str) -> Object:
    """Wait until the only pod is ready, and return it."""
    wait_until(partial(node.objects, "pods", place), "the pod")
    node.kubectl("wait", "--for=condition=Ready", "pod", "--all", f"--namespace={place}", "--timeout=90s")
    (pod,) = node.objects("pods", place)
    return pod
