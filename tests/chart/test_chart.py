"""The chart as a whole: lint, every supported situation and every installation of a page rendered and judged."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.chart import (
    CHART,
    CI,
    DELIVERIES,
    DESTINATIONS,
    MODES,
    PRESETS,
    Release,
    conform,
    endpoint,
    helm,
    notes_of,
    parted,
    render,
    render_file,
)
from tests.tools.tools import tool

pytestmark = pytest.mark.chart

ROOT = CHART.parent
FILES = pytest.mark.parametrize("file", CI, ids=[file.name.removesuffix("-values.yaml") for file in CI])


def situation(values: dict[str, Any]) -> tuple[str, str]:
    return values.get("preset", "fastapi"), values.get("listener", {}).get("mode", "sidecar")


def delivery(values: dict[str, Any]) -> tuple[str, str]:
    return values.get("shipper", {}).get("type", "otel-collector"), values.get("destination", {}).get("type", "otlp")


@FILES
def test_each_situation_is_linted_without_a_warning(file: Path) -> None:
    done = helm("lint", "--strict", CHART, "--values", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@FILES
@pytest.mark.parametrize("kubernetes", ["1.31.0", "1.37.0"])
def test_each_situation_is_what_kubernetes_and_the_operator_accept(file: Path, kubernetes: str) -> None:
    release = render_file(file)
    assert not release.error, release.error
    done = conform(release.objects, kubernetes)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_field_is_refused_by_these_schemas() -> None:
    objects = [*render(monitor={"kind": "ServiceMonitor"}).objects]
    for kind, spec in (("Deployment", {"replica": 1}), ("ServiceMonitor", {"intervall": "1s"})):
        wrong = [{**thing, "spec": {**thing["spec"], **spec}} for thing in objects if thing["kind"] == kind]
        assert conform(wrong, "1.37.0").returncode == 1


def test_the_situations_are_all_presets_modes_shippers_and_destinations() -> None:
    values = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in CI]
    assert {situation(one) for one in values} == set(itertools.product(PRESETS, MODES))
    expected = {(shipper, destination) for shipper, many in DELIVERIES.items() for destination in many}
    assert {delivery(one) for one in values} - {("none", "otlp")} == expected


def delivering(shipper: str, destination: str, **values: Any) -> Release:
    to = {"type": destination, "endpoints": [endpoint(destination)]}
    return render(shipper={"type": shipper}, destination=to, **values)


@pytest.mark.parametrize("shipper", DELIVERIES)
def test_every_preset_goes_with_every_shipper_and_what_that_can_deliver_to(shipper: str) -> None:
    objects: list[dict[str, Any]] = []
    destinations = itertools.cycle(DELIVERIES[shipper])
    for preset, mode in itertools.product(PRESETS, MODES):
        release = delivering(shipper, next(destinations), preset=preset, listener={"mode": mode})
        assert not release.error, release.error
        objects += release.objects
    done = conform(objects, "1.37.0")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("shipper", DELIVERIES)
def test_a_destination_that_a_shipper_cannot_deliver_to_is_refused(shipper: str) -> None:
    for destination in set(DESTINATIONS) - set(DELIVERIES[shipper]):
        refused = delivering(shipper, destination).error
        assert f"destination.type={destination}: {shipper} can't deliver to it" in refused


def test_what_needs_features_of_the_cluster_is_off_by_default() -> None:
    kinds = {thing["kind"] for thing in render().objects}
    assert kinds == {"ConfigMap", "Deployment", "Service", "ServiceAccount"}


def test_the_version_of_the_application_is_the_packages() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    cargo = (ROOT / "native" / "Cargo.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "([^"]+)"$', cargo, flags=re.MULTILINE)
    assert found is not None
    assert chart["appVersion"] == found[1]


def test_the_listeners_image_has_the_version_of_the_application() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    assert render().containers["listener"]["image"] == f"inferlog-listener:{version}"
    given = render(listener={"image": {"tag": "7"}}).containers["listener"]["image"]
    assert given == "inferlog-listener:7"
    # `--set` makes a number of it.
    release = render(server={"image": {"tag": 20240101}})
    assert release.containers["server"]["image"] == "example.com/server:20240101"
    assert "service.version=20240101" in release.environment("server")["OTEL_RESOURCE_ATTRIBUTES"]
    pinned = render(server={"image": {"tag": "sha256:1"}}, listener={"image": {"tag": "7@sha256:1"}})
    images = [pinned.containers[name]["image"] for name in ("server", "listener")]
    assert images == ["example.com/server@sha256:1", "inferlog-listener:7@sha256:1"]
    assert "service.version" not in pinned.environment("server")["OTEL_RESOURCE_ATTRIBUTES"]
    both = render(server={"image": {"tag": "1.4@sha256:1"}}).environment("server")["OTEL_RESOURCE_ATTRIBUTES"]
    assert both.endswith("service.version=1.4")


def test_a_shipper_of_another_image_keeps_what_is_not_said_of_it() -> None:
    moved = render(shipper={"image": {"repository": "mirror.example.com/otelcol"}}).containers["shipper"]
    assert re.fullmatch(r"mirror\.example\.com/otelcol:[0-9.]+", moved["image"])
    assert parted(moved)[1][0] == "/otelcol-contrib"
    program = render(shipper={"image": {"program": "/otelcol"}}).containers["shipper"]
    assert parted(program)[1][0] == "/otelcol"
    ours = render(shipper={"type": "inference-logging", "image": {"tag": "7"}}).containers["shipper"]
    assert ours["image"] == "inferlog:7"


def test_images_are_pulled_as_the_values_say() -> None:
    containers = render(imagePullPolicy="Always").containers
    assert {one["imagePullPolicy"] for one in containers.values()} == {"Always"}


def test_the_database_of_the_audit_lane_has_a_listener_with_python() -> None:
    config = {"audit": "on", "audit_sink": "sqlite"}
    listener = render(config=config, image={"tag": "7"}).containers["listener"]
    assert (listener["image"], listener["command"][0]) == ("inferlog:7", "inference-logging-listener")
    assert parted(listener)[1][:2] == ["inference-logging", "listen"]
    listener = render(config={"audit_sink": "sqlite"}).containers["listener"]
    assert parted(listener)[1][:2] == ["/inference-logging-listener", "listen"]


def test_no_image_is_called_latest_or_left_without_a_tag() -> None:
    shippers = yaml.safe_load((CHART / "files" / "shippers.yaml").read_text(encoding="utf-8"))
    tags = [one["tag"] for one in shippers.values() if "repository" in one]
    assert len(tags) == 3
    assert not {"", "latest"} & set(tags)


def test_every_helper_has_the_charts_prefix() -> None:
    templates = "".join(path.read_text(encoding="utf-8") for path in (CHART / "templates").iterdir())
    names = re.findall(r'define "([^"]+)"', templates)
    assert names
    assert [name for name in names if not name.startswith("inference-logging.")] == []
    assert len(names) == len(set(names))


def test_every_helper_is_used() -> None:
    templates = "".join(path.read_text(encoding="utf-8") for path in (CHART / "templates").iterdir())
    names = re.findall(r'define "([^"]+)"', templates)
    composed = re.findall(r'printf "(inference-logging\.[^"]*)%s"', templates)
    used = {*re.findall(r'include "([^"]+)"', templates)}
    assert [name for name in names if name not in used and not name.startswith(tuple(composed))] == []


def test_the_notes_name_the_next_command(tmp_path: Path) -> None:
    notes = notes_of(CI[0], tmp_path)
    assert "rollout status deployment/release-inference-logging" in notes
    assert "inference-logging verify" in notes


PAGES = ("README.md", "docs/kubernetes-node.md", "docs/kubernetes.md", "helm/README.md")


def installations() -> list[tuple[str, str]]:
    """Return each ``helm install`` of a page's blocks, without these words."""
    found = []
    for page in PAGES:
        blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        for block in blocks:
            lines = block.replace("\\\n", " ").splitlines()
            found += [(page, line.removeprefix("helm install ")) for line in lines if line.startswith("helm install ")]
    return found


@pytest.mark.parametrize(("page", "line"), installations())
def test_an_installation_of_a_page_is_rendered(page: str, line: str) -> None:
    command = [str(tool("helm")), "template", *shlex.split(line, comments=True)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{page}: {done.stderr}"
    kinds = {thing["kind"] for thing in yaml.safe_load_all(done.stdout) if thing}
    assert kinds & {"Deployment", "DaemonSet"}


def test_every_page_has_one() -> None:
    assert {page for page, _ in installations()} == set(PAGES)
