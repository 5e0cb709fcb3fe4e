"""The recipe for Kyverno, applied by Kyverno's own program, which `make test-kyverno` builds.

That it is the policy of the chart, tests/chart/test_node.py says; what that does, tests/cluster/test_node.py.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.chart import CHART
from tests.cluster.test_node import ADDED, QUEUE
from tests.tools.tools import tool

pytestmark = pytest.mark.chart

VOLUME = {"name": QUEUE, "persistentVolumeClaim": {"claimName": "inference-logging-queues"}}
MOUNT = {"name": QUEUE, "mountPath": "/run/inference-logging", "subPathExpr": "$(LOGGING_POD_NAME)"}


def pod(**annotations: str) -> dict[str, Any]:
    """Describe a pod of others in the namespace that the recipe names."""
    named = {f"inference-logging.io/{name}": value for name, value in annotations.items()}
    own = [{"name": "MODEL", "value": "m"}, {"name": "INFERENCE_LOGGING_LISTENER", "value": "thread"}]
    engine = {
        "name": "engine",
        "image": "example.com/engine",
        "env": own,
        "volumeMounts": [{"name": "m", "mountPath": "/m"}],
    }
    spec = {
        "containers": [engine, {"name": "proxy", "image": "example.com/proxy"}],
        "volumes": [{"name": "m", "emptyDir": {}}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "chat", "annotations": named},
        "spec": spec,
    }


def applied(place: Path, made: dict[str, Any]) -> dict[str, Any]:
    """Return what Kyverno makes of an object, which is that object where no policy is for it."""
    namespaces = [{"name": name, "labels": {"kubernetes.io/metadata.name": name}} for name in ("chat", "tools")]
    known = {"apiVersion": "cli.kyverno.io/v1alpha1", "kind": "Values", "namespaceSelector": namespaces}
    given, values, changed = (place / name for name in ("given.yaml", "values.yaml", "changed.yaml"))
    given.write_text(json.dumps(made), encoding="utf-8")
    values.write_text(json.dumps(known), encoding="utf-8")
    changed.unlink(missing_ok=True)
    files = ("--resource", given, "--values-file", values, "--output", changed)
    command: list[str | Path] = [tool("kyverno"), "apply", CHART / "recipes" / "kyverno.yaml", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = [one for one in yaml.safe_load_all(changed.read_text("utf-8")) if one] if changed.exists() else [made]
    result: dict[str, Any] = found
    return result


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


def test_a_pod_that_asks_for_it_gets_what_the_policy_of_the_chart_adds(tmp_path: Path) -> None:
    made = applied(tmp_path, pod(inject="true"))["spec"]
    engine, proxy = made["containers"]
    added = {**ADDED, "LOGGING_POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}}}
    assert (variables(engine), variables(proxy)) == ({**added, "MODEL": "m"}, added)
    assert (engine["volumeMounts"], proxy["volumeMounts"]) == ([{"name": "m", "mountPath": "/m"}, MOUNT], [MOUNT])
    assert made["volumes"] == [{"name": "m", "emptyDir": {}}, VOLUME]


def test_a_pod_that_has_it_is_unchanged(tmp_path: Path) -> None:
    once = applied(tmp_path, pod(inject="true"))
    assert applied(tmp_path, once) == once


def test_one_container_may_be_named(tmp_path: Path) -> None:
    engine, proxy = applied(tmp_path, pod(inject="true", container="engine"))["spec"]["containers"]
    assert MOUNT in engine["volumeMounts"]
    assert proxy == pod()["spec"]["containers"][1]


def not_asking() -> dict[str, Any]:
    return pod(inject="false", container="engine")


def with_a_volume_of_this_name() -> dict[str, Any]:
    made = pod(inject="true")
    made["spec"]["volumes"].append({"name": QUEUE, "emptyDir": {}})
    return made


def elsewhere() -> dict[str, Any]:
    made = pod(inject="true")
    made["metadata"]["namespace"] = "tools"
    return made


def deployment() -> dict[str, Any]:
    """Describe what makes pods: these are changed, not the object."""
    asking = pod(inject="true")
    template = {
        "metadata": {"labels": {"app": "p"}, "annotations": asking["metadata"]["annotations"]},
        "spec": asking["spec"],
    }
    spec = {"selector": {"matchLabels": {"app": "p"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": asking["metadata"], "spec": spec}


@pytest.mark.parametrize("made", [not_asking, with_a_volume_of_this_name, elsewhere, deployment])
def test_all_else_is_left_as_it_is(tmp_path: Path, made: Callable[[], dict[str, Any]]) -> None:
    assert applied(tmp_path, made()) == made()
