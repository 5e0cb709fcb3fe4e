"""The recipes for what others deploy, and the pods of them.

The controllers of these kinds do not run here, so the templates are taken out of the object as the server keeps it. The
chart of the production stack is in no registry, so its Deployment is built here from our values for it.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.control_plane import ControlPlane, Object
from tests.cluster.release import CHART, documents
from tests.kit.support import wait_until

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
