"""A Deployment of others gets what the chart's own pods have: by the component for kustomize, by the library chart."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from inference_logging import Config
from tests.chart.chart import CHART, conform, helm, render
from tests.chart.library import LIBRARY, render_user
from tests.tools.tools import tool

pytestmark = pytest.mark.chart

COMPONENT = CHART / "kustomize"


def deployment(name: str, **labels: str) -> dict[str, Any]:
    """Describe a Deployment that knows nothing of the logging."""
    server = {
        "name": "server",
        "image": "example.com/server:1",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "env": [{"name": "MODEL", "value": "m"}],
        "volumeMounts": [{"name": "model", "mountPath": "/model"}],
    }
    pod = {
        "containers": [server, {**server, "name": "proxy", "env": [], "volumeMounts": []}],
        "volumes": [{"name": "model", "emptyDir": {}}],
    }
    selector = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {"selector": {"matchLabels": selector}, "template": {"metadata": {"labels": selector}, "spec": pod}},
    }


ASKS = deployment("asks", **{"inference-logging.io/sidecar": "true"})
OTHER = deployment("other")


def kustomized(tmp_path: Path) -> Iterable[dict[str, Any]]:
    """Build a kustomization of two Deployments with the component."""
    done = kustomize(tmp_path, ASKS, OTHER)
    assert done.returncode == 0, done.stderr
    return yaml.safe_load_all(done.stdout)


def kustomize(tmp_path: Path, *deployments: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Build a kustomization of Deployments with the component."""
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(deployments), encoding="utf-8")
    component = tmp_path / "component"
    component.mkdir()
    for path in COMPONENT.iterdir():
        (component / path.name).write_bytes(path.read_bytes())
    kustomization = {"resources": ["objects.yaml"], "components": ["component"]}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(kustomization), encoding="utf-8")
    return subprocess.run(
        [tool("kubectl"), "kustomize", tmp_path], capture_output=True, text=True, check=False, timeout=60
    )


def charted(tmp_path: Path) -> Iterable[dict[str, Any]]:
    """Render a chart of two Deployments, of which one uses the library as that one's README says."""
    # What its README changes is the chart's again.
    config = {"service_name": None, "record_headers": None}
    rendered = render_user(tmp_path / "chat", image={"repository": "inferlog-listener"}, config=config)
    assert rendered.returncode == 0, rendered.stderr
    return [*yaml.safe_load_all(rendered.stdout), OTHER]


@pytest.fixture(params=[kustomized, charted])
def built(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Return two Deployments, of which one asks for logging, by name."""
    return {one["metadata"]["name"]: one for one in request.param(tmp_path)}


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
    parameters = {name: value for name, value in listens.items() if name.startswith("INFERENCE_LOGGING_")}
    assert {name: given[name] for name in parameters} == parameters
    assert given["INFERENCE_LOGGING_LISTENER"]["value"] == "external"
    assert all(one in server["volumeMounts"] for one in listener["volumeMounts"])
    volumes, chart = named(pod(built["asks"])["volumes"]), render(shipper={"type": "none"}).volumes
    for name in ("queue", "segments"):
        assert volumes[f"inference-logging-{name}"]["emptyDir"] == chart[name]["emptyDir"]


def with_server(**changed: Any) -> dict[str, Any]:
    """Return the Deployment that asks, with another first container."""
    changed_deployment = copy.deepcopy(ASKS)
    pod(changed_deployment)["containers"][0] |= changed
    return changed_deployment


def test_by_kustomize_variables_of_the_container_and_its_resource_stay(tmp_path: Path) -> None:
    own = [
        {"name": "OTEL_RESOURCE_ATTRIBUTES", "value": "service.name=chat,deployment.environment.name=prod"},
        {"name": "POD_NAME", "value": "mine"},
    ]
    done = kustomize(tmp_path, with_server(env=own))
    assert done.returncode == 0, done.stderr
    server = named(pod(yaml.safe_load(done.stdout))["containers"])["server"]
    assert [one for one in server["env"] if not one["name"].startswith("INFERENCE_LOGGING_")] == own


def test_by_kustomize_a_server_of_another_name_is_refused_and_gets_no_second_container(tmp_path: Path) -> None:
    done = kustomize(tmp_path, with_server(name="main"))
    said = "testing value /spec/template/spec/containers/0/name failed"
    assert done.returncode == 1
    assert said in done.stderr
    for page in (COMPONENT / "kustomization.yaml", CHART / "README.md"):
        assert said in page.read_text(encoding="utf-8")


def test_the_linter_finds_nothing_in_the_library() -> None:
    done = helm("lint", "--strict", LIBRARY)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_listeners_image_has_the_version_of_the_chart(tmp_path: Path) -> None:
    versions = [yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8")) for chart in (CHART, LIBRARY)]
    assert versions[0]["appVersion"] == versions[1]["appVersion"]
    (made,) = yaml.safe_load_all(render_user(tmp_path / "chat").stdout)
    (listener,) = pod(made)["initContainers"]
    assert listener["image"] == f"registry.example.com/inferlog-listener:{versions[0]['appVersion']}"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"directory": "/logs"}, 'config.directory="/logs": the chart sets it'),
        ({"sample_routes": {"/v1/a": 0.1}}, "'/config/sample_routes': got object"),
        ({"sampel_ratio": 0.1}, "'/config': additional properties 'sampel_ratio' not allowed"),
        ({"audit": True}, "'/config/audit': got boolean"),
        ({"quota_bytes": "3GiB"}, "config.quota_bytes=3GiB: must be above 0 and at most segments.size=2Gi"),
        ({"quota_bytes": 0}, "config.quota_bytes=0: must be above 0"),
        (
            {"rotate_bytes": "1GiB"},
            "segments.size=2Gi: leaves segments 1717986918 bytes, but two of config.rotate_bytes",
        ),
        (
            {"queue_bytes": 67108864},
            "queue.sizeLimit=39Mi: must be at least 135Mi, twice what the queue of one process",
        ),
        (
            {"audit": "on"},
            "queue.sizeLimit=39Mi: must be at least 47Mi, twice what the queue of one process takes with ",
        ),
    ],
)
def test_a_parameter_that_the_library_cannot_give_is_refused_by_name(
    wrong: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    rendered = render_user(tmp_path / "chat", config=wrong)
    assert rendered.returncode == 1
    assert sentence in rendered.stderr


@pytest.mark.parametrize("name", ["config", "image", "queue"])
def test_a_key_without_a_value_is_refused_by_name(name: str, tmp_path: Path) -> None:
    assert f"missing property '{name}'" in render_user(tmp_path / "chat", **{name: None}).stderr


@pytest.mark.parametrize("image", [{"tag": ""}, {"repository": ""}])
def test_an_image_that_no_pod_could_have_is_refused_by_name(image: dict[str, str], tmp_path: Path) -> None:
    rendered = render_user(tmp_path / "chat", image=image)
    assert rendered.returncode == 1
    assert f'image.{next(iter(image))}=""' in rendered.stderr
    by_digest = {"tag": "", "digest": f"sha256:{'0' * 64}"}
    assert render_user(tmp_path / "other", image=by_digest).returncode == 0


def test_segments_stay_below_the_size_of_their_volume_whatever_it_is(tmp_path: Path) -> None:
    """A pod that goes above it is evicted, and the server with it."""
    (made,) = yaml.safe_load_all(render_user(tmp_path / "chat", segments={"size": "1Gi"}).stdout)
    assert named(pod(made)["volumes"])["inference-logging-segments"]["emptyDir"] == {"sizeLimit": "1Gi"}
    for container in (*pod(made)["initContainers"], named(pod(made)["containers"])["server"]):
        assert named(container["env"])["INFERENCE_LOGGING_QUOTA_BYTES"]["value"] == str((1 << 30) * 8 // 10)


def test_parameters_reach_server_and_listener_as_their_variables_have_them(tmp_path: Path) -> None:
    given = {"queue_bytes": 1048576, "sample_ratio": 0.25, "record_headers": ["x-tenant"], "service_name": "chat"}
    rendered = render_user(tmp_path / "chat", config=given)
    (made,) = yaml.safe_load_all(rendered.stdout)
    for container in (*pod(made)["initContainers"], named(pod(made)["containers"])["server"]):
        variables = {one["name"]: one["value"] for one in container["env"] if "value" in one}
        config = resolved({name: value for name, value in variables.items() if name.startswith("INFERENCE_LOGGING_")})
        assert {name: getattr(config, name) for name in given} == given | {"record_headers": ("x-tenant",)}


def resolved(variables: dict[str, str]) -> Config:
    """Return what the package reads from variables."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in variables.items():
            environment.setenv(name, value)
        return Config()
