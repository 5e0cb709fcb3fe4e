"""What is wrong does not get in: a mistyped value stops at the schema, what the schema cannot know at the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.release import CHART, Release, situations

pytestmark = pytest.mark.cluster

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
