"""The component for kustomize: a Deployment of others gets what the chart's own pods have."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.chart import CHART, render
from tests.chart.test_chart import conform
from tests.tools.tools import tool

pytestmark = pytest.mark.chart

COMPONENT = CHART / "kustomize"


def deployment(name: str, **labels: str) -> dict[str, Any]:
    """Describe a Deployment that knows nothing of the logging."""
    server = {
        "name": "server",
        "image": "example.com/server:1",
        "env": [{"name": "MODEL", "value": "m"}],
        "volumeMounts": [{"name": "model", "mountPath": "/model"}],
    }
    pod = {
        "containers": [server, {"name": "proxy", "image": "example.com/proxy:1"}],
        "volumes": [{"name": "model", "emptyDir": {}}],
    }
    selector = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": selector}, "spec": pod},
        },
    }


ASKS = deployment("asks", **{"inference-logging.io/sidecar": "true"})
OTHER = deployment("other")


@pytest.fixture
def built(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Build a kustomization of two Deployments with the component; return them by name."""
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all([ASKS, OTHER]), encoding="utf-8")
    component = tmp_path / "component"
    component.mkdir()
    for path in COMPONENT.iterdir():
        (component / path.name).write_bytes(path.read_bytes())
    kustomization = {"resources": ["objects.yaml"], "components": ["component"]}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(kustomization), encoding="utf-8")
    done = subprocess.run(
        [tool("kubectl"), "kustomize", tmp_path], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return {one["metadata"]["name"]: one for one in yaml.safe_load_all(done.stdout)}


def pod(one: dict[str, Any]) -> dict[str, Any]:
    specification: dict[str, Any] = one["spec"]["template"]["spec"]
    return specification


def named(things: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {thing["name"]: thing for thing in things}


def test_it_is_what_kubernetes_accepts(built: dict[str, dict[str, Any]]) -> None:
    judged = conform(list(built.values()), "1.37.0")
    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_what_has_no_label_is_unchanged(built: dict[str, dict[str, Any]]) -> None:
    assert pod(built["other"]) == pod(OTHER)


def test_nothing_that_the_deployment_had_is_gone(built: dict[str, dict[str, Any]]) -> None:
    server, proxy = (named(pod(built["asks"])["containers"])[name] for name in ("server", "proxy"))
    own = named(pod(ASKS)["containers"])
    assert proxy == own["proxy"]
    assert server["image"] == own["server"]["image"]
    for list_of in ("env", "volumeMounts"):
        assert all(one in server[list_of] for one in own["server"][list_of])
    assert named(pod(built["asks"])["volumes"])["model"] == {"name": "model", "emptyDir": {}}


def test_the_listener_is_that_of_the_chart(built: dict[str, dict[str, Any]]) -> None:
    chart = render(shipper={"type": "none"})
    ours, theirs = chart.containers["listener"], named(pod(built["asks"])["initContainers"])["listener"]
    apart = ("env", "volumeMounts", "securityContext")
    assert {name: value for name, value in theirs.items() if name not in apart} == {
        name: value for name, value in ours.items() if name not in apart
    }
    assert theirs["securityContext"].items() >= ours["securityContext"].items()
    config = chart.yaml("logging.yaml")
    environment = {one["name"]: one.get("value", one.get("valueFrom")) for one in theirs["env"]}
    # Where the chart has a file, this has variables.
    for name in ("queue_directory", "directory", "quota_bytes"):
        assert environment.pop(f"INFERENCE_LOGGING_{name.upper()}") == str(config[name])
    assert environment == {
        name: value for name, value in chart.environment("listener").items() if name != "INFERENCE_LOGGING_CONFIG_FILE"
    }
    paths = {one["mountPath"] for one in ours["volumeMounts"]} - {"/etc/inference-logging"}
    assert {one["mountPath"] for one in theirs["volumeMounts"]} == paths


def test_server_and_listener_agree_and_share_the_volumes(built: dict[str, dict[str, Any]]) -> None:
    server = named(pod(built["asks"])["containers"])["server"]
    listener = named(pod(built["asks"])["initContainers"])["listener"]
    given, listens = named(server["env"]), named(listener["env"])
    assert {name: given[name] for name in listens} == listens
    assert given["INFERENCE_LOGGING_LISTENER"]["value"] == "external"
    assert all(one in server["volumeMounts"] for one in listener["volumeMounts"])
    volumes, chart = named(pod(built["asks"])["volumes"]), render(shipper={"type": "none"}).volumes
    for name in ("queue", "segments"):
        assert volumes[f"inference-logging-{name}"]["emptyDir"] == chart[name]["emptyDir"]
