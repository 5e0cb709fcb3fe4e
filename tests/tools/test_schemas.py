"""The schemas for kubeconform: complete without any other file, and strict about names and types."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.tools.tools import tool

pytestmark = pytest.mark.chart

VERSIONS = ("1.31.0", "1.37.0")


def kubeconform(version: str, described: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Let kubeconform judge an object, as Kubernetes of that version has it."""
    schemas, kind = tool("schemas"), "{{ .ResourceKind }}{{ .KindSuffix }}.json"
    own = f"{schemas}/{{{{ .NormalizedKubernetesVersion }}}}-standalone{{{{ .StrictSuffix }}}}/{kind}"
    return subprocess.run(
        [
            tool("kubeconform"),
            "-strict",
            "-summary",
            f"-kubernetes-version={version}",
            f"-schema-location={own}",
            f"-schema-location={schemas}/crd/{kind}",
        ],
        input=json.dumps(described),
        capture_output=True,
        check=False,
        text=True,
    )


def pod(**container: Any) -> dict[str, Any]:
    """Describe a pod with one container."""
    spec = {"containers": [{"name": "server", "image": "server:1", **container}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "server"}, "spec": spec}


def monitor(**endpoint: Any) -> dict[str, Any]:
    """Describe a ServiceMonitor with one endpoint."""
    spec = {"selector": {}, "endpoints": [{"port": "http", **endpoint}]}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {"name": "server"},
        "spec": spec,
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("described", [pod(restartPolicy="Always"), monitor(interval="5s")])
def test_what_is_right_is_valid(version: str, described: dict[str, Any]) -> None:
    judged = kubeconform(version, described)
    assert judged.returncode == 0, judged.stdout
    assert "Valid: 1, Invalid: 0, Errors: 0, Skipped: 0" in judged.stdout


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("described", "said"),
    [
        (pod(readinesProbe={}), "'readinesProbe' not allowed"),
        (pod(ports=[{"containerPort": "http"}]), "got string, want integer"),
        (monitor(intervall="5s"), "'intervall' not allowed"),
    ],
)
def test_what_is_misspelt_or_of_another_type_is_invalid(version: str, described: dict[str, Any], said: str) -> None:
    judged = kubeconform(version, described)
    assert judged.returncode == 1
    assert said in judged.stdout
