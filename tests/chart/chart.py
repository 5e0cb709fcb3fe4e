"""The chart as Helm renders it, for tests to look at."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.tools.tools import tool

CHART = Path(__file__).parents[2] / "helm"
CI = sorted((CHART / "ci").glob("*-values.yaml"))
LEAST: dict[str, Any] = {
    "image": {"repository": "inferlog"},
    "server": {"image": {"repository": "example.com/server"}, "model": "m", "port": 8000},
    "listener": {"image": {"repository": "inferlog-listener"}},
    "destination": {"endpoints": ["http://gateway:4318"]},
}
"""What has no default."""
_TIMEOUT_S = 120

PRESETS = ("fastapi", "vllm", "triton", "custom")
MODES = ("sidecar", "inProcess")
DELIVERIES = {
    "otel-collector": ("otlp", "kafka", "loki", "elasticsearch"),
    "fluent-bit": ("otlp", "kafka", "loki", "elasticsearch", "forward"),
    "vector": ("kafka", "loki", "elasticsearch"),
    "inference-logging": ("otlp", "kafka", "elasticsearch", "clickhouse", "syslog"),
}
"""What each shipper can deliver to."""
DESTINATIONS = ("otlp", "kafka", "loki", "elasticsearch", "clickhouse", "forward", "syslog")


def endpoint(destination: str) -> str:
    """Return an address of the form that a destination has."""
    return "broker:9092" if destination in ("kafka", "forward", "syslog") else "http://gateway:4318"


def merged(base: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``given`` over it, as Helm merges values."""
    both = dict(base)
    for name, value in given.items():
        inner = both.get(name)
        both[name] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return both


@dataclass(frozen=True)
class Release:
    """What Helm made: the objects in order, or why it made none."""

    objects: list[dict[str, Any]]
    error: str

    def all(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of a kind."""
        assert not self.error, self.error
        return [thing for thing in self.objects if thing["kind"] == kind]

    def one(self, kind: str) -> dict[str, Any]:
        """Return the only object of a kind."""
        (found,) = self.all(kind)
        return found

    @property
    def pod(self) -> dict[str, Any]:
        """The pod's specification."""
        spec: dict[str, Any] = self.one("Deployment")["spec"]["template"]["spec"]
        return spec

    @property
    def containers(self) -> dict[str, dict[str, Any]]:
        """All containers by name, in the order in which they start."""
        started = [*self.pod.get("initContainers", []), *self.pod["containers"]]
        return {container["name"]: container for container in started}

    @property
    def volumes(self) -> dict[str, dict[str, Any]]:
        """The volumes by name."""
        return {volume["name"]: volume for volume in self.pod["volumes"]}

    def file(self, name: str) -> str:
        """Return the content of a file that a ConfigMap holds."""
        (found,) = [things["data"][name] for things in self.all("ConfigMap") if name in things["data"]]
        assert isinstance(found, str)
        return found

    def yaml(self, name: str) -> dict[str, Any]:
        """Return what such a file says."""
        parsed: dict[str, Any] = yaml.safe_load(self.file(name))
        return parsed

    def environment(self, container: str) -> dict[str, Any]:
        """Return the environment of a container: a text, or the source of one."""
        return {one["name"]: one.get("value", one.get("valueFrom")) for one in self.containers[container]["env"]}


def parted(container: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Return the options of the parent of a listener or shipper, and the command line of its child."""
    arguments: list[str] = container["args"]
    own = arguments.index("--")
    return dict(one.split("=") for one in arguments[:own]), arguments[own + 1 :]


def render(**values: Any) -> Release:
    """Render the chart with the least that it asks for and ``values``."""
    return _render(json.dumps(merged(LEAST, values), sort_keys=True))


def render_file(path: Path) -> Release:
    """Render the chart with a file of values alone."""
    return _render(json.dumps(yaml.safe_load(path.read_text(encoding="utf-8")), sort_keys=True))


def helm(*arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run Helm, with ``given`` as its input."""
    command = [tool("helm"), *arguments]
    # A run is short, and collecting its garbage is a quarter of it.
    environment = {**os.environ, "GOGC": "off"}
    return subprocess.run(
        command, env=environment, input=given, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
    )


@functools.cache
def _render(values: str) -> Release:
    made = helm("template", "release", CHART, "--namespace", "chat", "--values", "-", given=values)
    if made.returncode != 0:
        return Release([], made.stderr)
    return Release([thing for thing in yaml.load_all(made.stdout, yaml.CSafeLoader) if thing], "")


def conform(objects: list[dict[str, Any]], kubernetes: str) -> subprocess.CompletedProcess[str]:
    schemas = tool("schemas")
    own = schemas / "{{ .NormalizedKubernetesVersion }}-standalone{{ .StrictSuffix }}"
    kind = "{{ .ResourceKind }}{{ .KindSuffix }}.json"
    locations = [f"-schema-location={own}/{kind}", f"-schema-location={schemas}/crd/{kind}"]
    command = [str(tool("kubeconform")), "-strict", f"-kubernetes-version={kubernetes}", *locations]
    given = "\n---\n".join(map(json.dumps, objects))
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=120)


def notes_of(values: Path, directory: Path) -> str:
    """Return what Helm says after an installation."""
    # `helm template` leaves them out, and `helm install` asks for a cluster.
    chart = shutil.copytree(CHART, directory / "chart")
    (chart / "templates" / "NOTES.txt").rename(chart / "notes.txt")
    (chart / "templates" / "notes.yaml").write_text('notes: |{{ tpl (.Files.Get "notes.txt") . | nindent 2 }}')
    done = helm("template", "release", chart, "--values", values, "--show-only", "templates/notes.yaml")
    assert done.returncode == 0, done.stderr
    notes = yaml.safe_load(done.stdout)["notes"]
    assert isinstance(notes, str)
    return notes
