"""What kustomize's component and the library chart add, on a real API server: the pods are restricted, and run."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.chart.library import render_user
from tests.cluster.control_plane import ControlPlane, Object
from tests.cluster.release import CHART
from tests.support import wait_until

pytestmark = pytest.mark.cluster

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture
def namespace(cluster: ControlPlane) -> Iterator[str]:
    """Make a namespace that admits only what is restricted."""
    name = f"kustomized-{secrets.token_hex(3)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    wait_until(partial(cluster.objects, "serviceaccounts", name), "the account that each namespace has")
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def kustomized(cluster: ControlPlane, namespace: str, directory: Path) -> None:
    component = directory / "component"
    component.mkdir()
    for path in (CHART / "kustomize").iterdir():
        (component / path.name).write_bytes(path.read_bytes())
    (directory / "deployment.yaml").write_text(json.dumps(_deployment()), encoding="utf-8")
    kustomization = {"resources": ["deployment.yaml"], "components": ["component"], "namespace": namespace}
    (directory / "kustomization.yaml").write_text(json.dumps(kustomization), encoding="utf-8")
    cluster.kubectl("apply", "--kustomize", directory)


def charted(cluster: ControlPlane, namespace: str, directory: Path) -> None:
    rendered = render_user(directory / "chat")
    assert rendered.returncode == 0, rendered.stderr
    made = yaml.safe_load(rendered.stdout)
    made["metadata"] = {"name": "chat", "namespace": namespace}
    cluster.apply(made)


@pytest.mark.parametrize("add", [kustomized, charted])
def test_a_restricted_deployment_stays_so_and_runs_with_a_listener(
    cluster: ControlPlane, namespace: str, tmp_path: Path, add: Callable[[ControlPlane, str, Path], None]
) -> None:
    add(cluster, namespace, tmp_path)
    cluster.kubectl("rollout", "status", "deployment/chat", f"--namespace={namespace}", "--timeout=60s")
    (pod,) = cluster.objects("pods", namespace)
    (listener,) = pod["spec"]["initContainers"]
    assert (listener["name"], listener["restartPolicy"]) == ("listener", "Always")
    assert "server" in [container["name"] for container in pod["spec"]["containers"]]


def _deployment() -> Object:
    labels = {"app": "chat"}
    server = {"name": "server", "image": "example.com/server:1", "securityContext": RESTRICTED}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "labels": {"inference-logging.io/sidecar": "true"}},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [server]}},
        },
    }
