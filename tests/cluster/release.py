"""A release of the chart in a namespace of its own, which admits only pods of the restricted security standard."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.control_plane import HELM_TIMEOUT, ControlPlane, Object
from tests.kit.support import wait_until

CHART: Final = Path(__file__).parents[2] / "helm"
NAME: Final = "serving"
WAIT: Final = ("--wait", f"--timeout={HELM_TIMEOUT}")
NO_CLOUD: Final = ("--set=service.type=ClusterIP",)
"""Nobody here gives addresses to load balancers, and helm would wait for one."""


def situations() -> list[str]:
    """Name the situations that the chart has values for."""
    return sorted(path.name.removesuffix("-values.yaml") for path in CHART.glob("ci/*-values.yaml"))


def values_of(situation: str) -> Path:
    """Return the file with the values of a situation."""
    return CHART / "ci" / f"{situation}-values.yaml"


class Release:
    """One release of the chart, with the values of a situation, and what these ask of a cluster."""

    def __init__(self, cluster: ControlPlane, situation: str, values: Path | None = None) -> None:
        """Take the file of the situation, or ``values``."""
        self.cluster, self.values = cluster, values or values_of(situation)
        self.namespace = f"{situation[:40]}-{secrets.token_hex(4)}"
        given = yaml.safe_load(self.values.read_text(encoding="utf-8"))
        cluster.apply(namespace(self.namespace, given), *self.offered())
        wait_until(self._is_furnished, "the service account and the authority that each namespace has")

    def offered(self) -> list[Object]:
        """Return what the cluster is given for the release beforehand."""
        return list(offered(self.namespace, self.rendered()))

    def helm(self, command: str, *arguments: str | Path) -> str:
        """Run helm for this release, which must succeed, and return what it said."""
        done = self.try_helm(command, *arguments)
        assert done.returncode == 0, f"helm {command}: {done.stderr}\n{self.events()}"
        return done.stdout

    def try_helm(self, command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run helm for this release, whatever comes of it."""
        return self.cluster.run("helm", *command.split(), NAME, f"--namespace={self.namespace}", *arguments)

    def install(self, *arguments: str) -> None:
        """Install with the situation's values, and wait until the pods are ready."""
        self.helm("install", CHART, f"--values={self.values}", *NO_CLOUD, *WAIT, *arguments)

    def upgrade(self, *arguments: str) -> None:
        """Change values, and wait until the pods that have them are ready."""
        self.helm("upgrade", CHART, f"--values={self.values}", *NO_CLOUD, *arguments, *WAIT)

    def rollback(self) -> None:
        """Go back to the revision before, and wait until its pods are ready."""
        self.helm("rollback", *WAIT)

    def uninstall(self) -> None:
        """Uninstall, and wait until all is gone that the chart made."""
        self.helm("uninstall", *WAIT)

    def remove(self) -> None:
        """Remove the namespace with all that is in it; nobody waits for it."""
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def rendered(self, *arguments: str) -> list[Object]:
        """Return what the chart makes of the values and of these changes to them."""
        return documents(self.helm("template", CHART, f"--values={self.values}", *arguments))

    def manifest(self, *revision: str) -> list[Object]:
        """Return what helm says that it made, as the chart rendered it."""
        return documents(self.helm("get manifest", *revision))

    def judge(self, *objects: Object) -> subprocess.CompletedProcess[str]:
        """Let the server judge objects without keeping them."""
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        as_helm = ("--server-side", "--force-conflicts", "--field-manager=helm", f"--namespace={self.namespace}")
        return self.cluster.run("kubectl", "apply", "--dry-run=server", *as_helm, "--filename=-", given=listed)

    def all_values(self) -> dict[str, Any]:
        """Return the values, the chart's own included."""
        values: dict[str, Any] = json.loads(self.helm("get values", "--all", "--output=json"))
        return values

    def objects(self) -> set[str]:
        """Name what is in the namespace, and of what is in none what a release could leave there."""
        prefixes = (f"{self.namespace}/", "/ClusterRole", "/PriorityClass/", "/CustomResourceDefinition/")
        return {name for name in self.cluster.everything() if name.startswith(prefixes)}

    def pods(self) -> list[Object]:
        """Return the pods that are not about to end."""
        pods = self.cluster.objects("pods", self.namespace)
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def revisions(self) -> set[str]:
        """Name the templates that the pods were made from."""
        return {pod["metadata"]["labels"]["pod-template-hash"] for pod in self.pods()}

    def spec(self) -> Object:
        """Return what the server has as the specification of the pods, of which there is at least one."""
        spec: Object = self.pods()[0]["spec"]
        return spec

    def logging_yaml(self) -> dict[str, Any]:
        """Return the application's configuration as the server has it."""
        (found,) = (
            each["data"]["logging.yaml"]
            for each in self.cluster.objects("configmaps", self.namespace)
            if "logging.yaml" in each.get("data", {})
        )
        configuration: dict[str, Any] = yaml.safe_load(found)
        return configuration

    def _is_furnished(self) -> bool:
        return len(self.cluster.objects("serviceaccounts,configmaps", self.namespace)) == 2

    def events(self) -> str:
        """Return what the cluster has to say, for a failure's message."""
        return self.cluster.run("kubectl", "get", "events", f"--namespace={self.namespace}").stdout[-3000:]


def documents(text: str) -> list[Object]:
    """Return the objects in YAML."""
    return [each for each in yaml.safe_load_all(text) if each]


def namespace(name: str, given: dict[str, Any]) -> Object:
    """Describe a namespace that admits only what is restricted; a user's own containers may be less than that."""
    standard = "baseline" if given.get("extraInitContainers") else "restricted"
    labels = {"pod-security.kubernetes.io/enforce": standard}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def offered(name: str, rendered: list[Object]) -> Iterator[Object]:
    """Describe what a release asks of a cluster by its name: classes, claims that must be there, volumes for claims."""
    (spec,) = (each["spec"]["template"]["spec"] for each in rendered if each["kind"] == "Deployment")
    if priority := spec.get("priorityClassName"):
        meta = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": priority}}
        yield {**meta, "value": 1}
    if runtime := spec.get("runtimeClassName"):
        meta = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": runtime}}
        yield {**meta, "handler": runtime}
    claims = {each["metadata"]["name"]: each for each in rendered if each["kind"] == "PersistentVolumeClaim"}
    mounted = {
        each["persistentVolumeClaim"]["claimName"] for each in spec["volumes"] if "persistentVolumeClaim" in each
    }
    for absent in mounted - set(claims):
        claims[absent] = claim(name, absent)
        yield claims[absent]
    for each in claims.values():
        yield volume(f"{name}-{each['metadata']['name']}", each)


def claim(namespace: str, name: str) -> Object:
    """Describe a claim of a user."""
    meta = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace}}
    return {**meta, "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}}


def volume(name: str, wanted: Object) -> Object:
    """Describe a volume that suits a claim."""
    spec = {
        "capacity": {"storage": "1Ti"},
        "accessModes": wanted["spec"]["accessModes"],
        "storageClassName": wanted["spec"].get("storageClassName", ""),
        "hostPath": {"path": f"/volumes/{name}"},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
