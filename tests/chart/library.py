"""A chart of somebody else that uses the library chart: its files are what the README of that says."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.chart.chart import CHART, helm

LIBRARY = CHART / "library"
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: asks
spec:
  selector: { matchLabels: { app: asks } }
  template:
    metadata: { labels: { app: asks } }
"""
SECURITY = "securityContext: { runAsUser: 1000, runAsNonRoot: true, seccompProfile: { type: RuntimeDefault } }"
OWN = "{ allowPrivilegeEscalation: false, capabilities: { drop: [ALL] } }"


def render_user(directory: Path, **values: Any) -> subprocess.CompletedProcess[str]:
    """Write that chart into ``directory`` and render it, with these values of the library over those of the README."""
    dependencies, own, template = re.findall(r"```yaml\n(.*?)```", _readme(), re.DOTALL)
    (directory / "templates").mkdir(parents=True)
    (directory / "Chart.yaml").write_text(
        "apiVersion: v2\nname: chat\nversion: 1.0.0\n" + re.sub(r"file://\S+", f"file://{LIBRARY}", dependencies),
        encoding="utf-8",
    )
    (directory / "values.yaml").write_text(own, encoding="utf-8")
    (directory / "templates" / "deployment.yaml").write_text(DEPLOYMENT + _with_own(template), encoding="utf-8")
    built = helm("dependency", "build", directory)
    assert built.returncode == 0, built.stderr
    return helm("template", "release", directory, "--values", "-", given=json.dumps({"inferenceLogging": values}))


def _with_own(template: str) -> str:
    """Return the template with what the chart's pod had before: a user, variables, volumes, and a second container."""
    own = template.replace("    spec:\n", f"    spec:\n      {SECURITY}\n", 1)
    own = own.replace(
        "- name: server\n", f"- name: server\n          image: example.com/server:1\n          securityContext: {OWN}\n"
    )
    own = own.replace("env:\n", "env:\n            - { name: MODEL, value: m }\n")
    own = own.replace("volumeMounts:\n", "volumeMounts:\n            - { name: model, mountPath: /model }\n")
    proxy = f"        - name: proxy\n          image: example.com/server:1\n          securityContext: {OWN}\n"
    proxy += "          env: []\n          volumeMounts: []\n"
    return own.replace("      volumes:\n", f"{proxy}      volumes:\n        - name: model\n          emptyDir: {{}}\n")


def _readme() -> str:
    return (LIBRARY / "README.md").read_text(encoding="utf-8")
