"""Each values file of the chart on a real API server: what is installed, as the server has it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.cluster.control_plane import ControlPlane
from tests.cluster.release import Release, situations, values_of

pytestmark = pytest.mark.cluster

PRESETS = {"fastapi", "vllm", "triton", "custom"}


@pytest.fixture(scope="module", params=situations())
def installed(cluster: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Release]:
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


def test_all_objects_are_there(installed: Release) -> None:
    for each in installed.manifest():
        group = each["apiVersion"].rpartition("/")[0]
        kind, name = f"{each['kind']}.{group}".rstrip("."), each["metadata"]["name"]
        found = installed.cluster.kubectl("get", kind, name, f"--namespace={installed.namespace}", "--output=name")
        assert found.strip().endswith(f"/{name}")


def test_the_server_keeps_the_sidecars_as_such_in_the_order_in_which_they_start(installed: Release) -> None:
    values = installed.all_values()
    shipper = values["shipper"]["type"]
    expected = ["shipper"] if shipper != "none" else []
    expected += ["listener"] if values["listener"]["mode"] == "sidecar" else []
    started = installed.spec().get("initContainers", [])
    assert [each["name"] for each in started if each.get("restartPolicy") == "Always"] == expected


def test_the_server_would_take_it_as_it_is_with_its_kind_of_service(installed: Release) -> None:
    judged = installed.judge(*installed.rendered())
    assert (judged.returncode, judged.stderr) == (0, "")
