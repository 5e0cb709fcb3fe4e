"""Releases on a real API server: their life with each preset, what it rejects, and single situations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.cluster.control_plane import ControlPlane
from tests.cluster.release import CHART, Release, situations, values_of
from tests.kit.support import wait_until

pytestmark = pytest.mark.cluster


def fullest() -> list[str]:
    """Name for each preset the situation whose values say most."""
    by_size = sorted(situations(), key=lambda situation: values_of(situation).stat().st_size)
    return sorted({situation.partition("-")[0]: situation for situation in by_size}.values())


with_each_preset = pytest.mark.parametrize("situation", fullest())


@with_each_preset
def test_a_changed_configuration_rolls_the_pods_and_a_rollback_brings_back_the_old_one(
    release: Callable[[str], Release], situation: str
) -> None:
    installed = release(situation)
    installed.install()
    configured, first = installed.logging_yaml(), installed.revisions()
    assert configured["service_name"] != "renamed"
    installed.upgrade("--set=config.service_name=renamed")
    assert installed.logging_yaml() == {**configured, "service_name": "renamed"}
    wait_until(lambda: installed.revisions().isdisjoint(first), "new pods in place of the old ones")
    installed.rollback()
    assert installed.logging_yaml() == configured
    wait_until(lambda: installed.revisions() == first, "pods as there were at first")
    assert installed.manifest() == installed.manifest("--revision=1")


@with_each_preset
def test_an_upgrade_that_changes_nothing_leaves_the_pods(release: Callable[[str], Release], situation: str) -> None:
    installed = release(situation)
    installed.install()
    before = {pod["metadata"]["uid"] for pod in installed.pods()}
    installed.upgrade()
    assert {pod["metadata"]["uid"] for pod in installed.pods()} >= before
    assert len(installed.revisions()) == 1


@with_each_preset
def test_uninstalled_it_leaves_nothing_but_segments_on_a_volume(
    release: Callable[[str], Release], situation: str
) -> None:
    installed = release(situation)
    before = installed.objects()
    installed.install()
    made = installed.objects() - before
    kept = {
        f"{installed.namespace}/{each['kind']}/{each['metadata']['name']}"
        for each in installed.manifest()
        if each["kind"] == "PersistentVolumeClaim"
    }
    assert len(made) >= len(installed.manifest())
    installed.uninstall()
    with contextlib.suppress(AssertionError):
        wait_until(lambda: installed.objects() - before == kept, "all that the release was to be gone")
    assert installed.objects() - before == kept


SITUATION = next(situation for situation in situations() if situation.startswith("fastapi-sidecar"))


@pytest.fixture
def installed(release: Callable[[str], Release]) -> Release:
    """Install the chart with a PodDisruptionBudget and an autoscaler."""
    made = release(SITUATION)
    made.install("--set=podDisruptionBudget.enabled=true,podDisruptionBudget.minAvailable=1,autoscaling.enabled=true")
    return made


def changed(installed: Release, kind: str, change: Callable[[Any], object]) -> str:
    """Let the server judge the object of that kind with a change, which it must reject; return what it says."""
    (each,) = (each for each in installed.manifest() if each["kind"] == kind)
    change(each["spec"])
    judged = installed.judge(each)
    assert judged.returncode == 1
    return judged.stderr


@pytest.mark.parametrize(
    "value",
    ["replicaCount=two", "server.prot=8000", "server.port=http", "config.queue_bites=1", "shipper.type=logstash"],
)
def test_a_mistyped_value_never_reaches_the_server(release: Callable[[str], Release], value: str) -> None:
    refused = release(SITUATION)
    before = refused.objects()
    done = refused.try_helm("install", CHART, f"--values={refused.values}", f"--set={value}")
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr
    assert value.partition("=")[0].rpartition(".")[2] in done.stderr
    assert refused.objects() == before


def test_the_server_rejects_a_budget_of_both_kinds(installed: Release) -> None:
    said = changed(installed, "PodDisruptionBudget", lambda spec: spec.update(minAvailable=1, maxUnavailable=1))
    assert "minAvailable and maxUnavailable cannot be both set" in said


def test_the_server_rejects_a_port_that_is_no_number(installed: Release) -> None:
    def mistype(spec: Any) -> None:
        spec["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = "http"

    assert "containerPort" in changed(installed, "Deployment", mistype)


def test_an_autoscaler_with_more_at_least_than_at_most_is_rejected(installed: Release) -> None:
    values = "--set=autoscaling.enabled=true,autoscaling.minReplicas=5,autoscaling.maxReplicas=2"
    done = installed.try_helm("upgrade", CHART, f"--values={installed.values}", values)
    assert done.returncode != 0
    assert "maxReplicas" in done.stderr


def test_a_rejected_upgrade_leaves_the_pods_that_serve(installed: Release) -> None:
    before = {pod["metadata"]["uid"] for pod in installed.pods()}
    values = "--set=server.extraVolumeMounts[0].name=nowhere,server.extraVolumeMounts[0].mountPath=/nowhere"
    done = installed.try_helm("upgrade", CHART, f"--values={installed.values}", values)
    assert done.returncode != 0
    assert "volumeMounts" in done.stderr
    assert {pod["metadata"]["uid"] for pod in installed.pods()} == before


PRESETS = {"fastapi", "vllm", "triton", "custom"}


@pytest.fixture(scope="module", params=situations())
def situated(cluster: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Release]:
    """Install the chart for a situation."""
    release = Release(cluster, request.param)
    try:
        release.install()
        yield release
    finally:
        release.remove()


def test_each_preset_is_among_the_situations() -> None:
    chosen = (yaml.safe_load(values_of(situation).read_text(encoding="utf-8")) for situation in situations())
    assert {values.get("preset", "fastapi") for values in chosen} == PRESETS


def test_all_objects_are_there(situated: Release) -> None:
    for each in situated.manifest():
        group = each["apiVersion"].rpartition("/")[0]
        kind, name = f"{each['kind']}.{group}".rstrip("."), each["metadata"]["name"]
        found = situated.cluster.kubectl("get", kind, name, f"--namespace={situated.namespace}", "--output=name")
        assert found.strip().endswith(f"/{name}")


def test_the_server_keeps_the_sidecars_as_such_in_the_order_in_which_they_start(situated: Release) -> None:
    values = situated.all_values()
    shipper = values["shipper"]["type"]
    expected = ["shipper"] if shipper != "none" else []
    expected += ["listener"] if values["listener"]["mode"] == "sidecar" else []
    started = situated.spec().get("initContainers", [])
    assert [each["name"] for each in started if each.get("restartPolicy") == "Always"] == expected


def test_the_server_would_take_it_as_it_is_with_its_kind_of_service(situated: Release) -> None:
    judged = situated.judge(*situated.rendered())
    assert (judged.returncode, judged.stderr) == (0, "")
