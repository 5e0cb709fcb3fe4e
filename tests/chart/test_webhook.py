"""The chart of the webhook, as Helm renders it. tests/cluster/test_webhook.py runs it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import yaml

from tests.chart.chart import CHART as MAIN
from tests.chart.chart import helm
from tests.chart.test_chart import conform
from tests.chart.webhook import CHART
from tests.cluster.test_node import ADDED, QUEUE

pytestmark = pytest.mark.chart


def render(**values: Any) -> list[dict[str, Any]]:
    """Render the chart, which must succeed."""
    made = helm("template", "release", CHART, "--namespace", "hooks", "--values", "-", given=json.dumps(values))
    assert made.returncode == 0, made.stderr
    return [thing for thing in yaml.safe_load_all(made.stdout) if thing]


def refused(**values: Any) -> str:
    made = helm("template", "release", CHART, "--values", "-", given=json.dumps(values))
    assert made.returncode == 1
    return made.stderr


def one(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (thing for thing in objects if thing["kind"] == kind)
    return found


def addition(**values: Any) -> dict[str, Any]:
    added: dict[str, Any] = json.loads(one(render(**values), "ConfigMap")["data"]["add.json"])
    return added


def test_the_linter_finds_nothing() -> None:
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kubernetes", ["1.31.0", "1.37.0"])
def test_it_is_what_kubernetes_accepts(kubernetes: str) -> None:
    judged = conform(render(), kubernetes)
    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_the_versions_are_those_of_the_chart() -> None:
    heads = [yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8")) for chart in (MAIN, CHART)]
    assert heads[0]["version"] == heads[1]["version"] == heads[1]["dependencies"][0]["version"]
    (container,) = one(render(), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"inferlog-webhook:{heads[0]['appVersion']}"


def test_where_a_node_listens_it_adds_what_the_policy_of_the_chart_adds() -> None:
    added = addition(adds="node", claimName="inference-logging-queues")
    policy = {name: value if isinstance(value, str) else "metadata.name" for name, value in ADDED.items()}
    found = {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"] for each in added["env"]}
    assert found == policy
    assert added["volumes"] == [{"name": QUEUE, "persistentVolumeClaim": {"claimName": "inference-logging-queues"}}]
    mount = {"name": QUEUE, "mountPath": "/run/inference-logging", "subPathExpr": "$(LOGGING_POD_NAME)"}
    assert added["volumeMounts"] == [mount]
    assert set(added) == {"env", "volumes", "volumeMounts"}


def test_values_of_the_library_reach_the_pods() -> None:
    given = {"image": {"repository": "registry.example.com/l"}, "config": {"service_name": "chat"}}
    added = addition(added=given)
    (listener,) = added["initContainers"]
    assert listener["image"].startswith("registry.example.com/l:")
    variable = {"name": "INFERENCE_LOGGING_SERVICE_NAME", "value": "chat"}
    assert variable in added["env"]
    assert variable in listener["env"]


def test_a_changed_addition_is_another_pod() -> None:
    before, after = (one(render(adds=adds), "Deployment") for adds in ("sidecar", "node"))
    sums = [each["spec"]["template"]["metadata"]["annotations"]["checksum/config"] for each in (before, after)]
    assert sums[0] != sums[1]


def test_the_certificate_of_helm_is_for_the_name_that_the_server_asks() -> None:
    objects = render(fullnameOverride="hook")
    secret, webhook = one(objects, "Secret"), one(objects, "MutatingWebhookConfiguration")["webhooks"][0]
    assert webhook["clientConfig"]["caBundle"] == secret["data"]["ca.crt"]
    assert webhook["clientConfig"]["service"] == {"name": "hook", "namespace": "hooks", "path": "/mutate", "port": 443}
    # The name stands in the certificate as it is.
    certificate = base64.b64decode(secret["data"]["tls.crt"]).decode()
    der = base64.b64decode("".join(certificate.splitlines()[1:-1]))
    assert b"hook.hooks.svc" in der


def test_cert_manager_makes_the_certificate_where_that_is_asked_for() -> None:
    objects = render(fullnameOverride="hook", certificate={"from": "cert-manager", "issuer": {"name": "ours"}})
    certificate, webhook = one(objects, "Certificate"), one(objects, "MutatingWebhookConfiguration")
    (volume,) = (each for each in one(objects, "Deployment")["spec"]["template"]["spec"]["volumes"] if "secret" in each)
    assert certificate["spec"]["secretName"] == volume["secret"]["secretName"]
    assert certificate["spec"]["dnsNames"] == ["hook.hooks.svc"]
    assert webhook["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "hooks/hook"}
    assert [each for each in objects if each["kind"] == "Secret"] == []


def test_a_secret_of_ones_own_is_used() -> None:
    objects = render(certificate={"from": "secret", "existingSecret": "mine", "caBundle": "QQ=="})
    assert one(objects, "MutatingWebhookConfiguration")["webhooks"][0]["clientConfig"]["caBundle"] == "QQ=="
    volumes = one(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"secretName": "mine", "defaultMode": 0o440} in [each.get("secret") for each in volumes]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"certificate": {"from": "secret"}}, "certificate.from=secret: needs certificate.existingSecret and"),
        (
            {"added": {"config": {"sampel_ratio": 0.1}}},
            "'/added/config': additional properties 'sampel_ratio' not allowed",
        ),
        ({"added": {"config": {"queue_bytes": "64MiB"}}}, "queue.sizeLimit=39Mi: must be at least 135Mi"),
        ({"certificate": {"from": "cert-manager"}}, "certificate.from=cert-manager: needs certificate.issuer.name"),
        ({"certificate": {"from": "vault"}}, "certificate/from"),
        ({"added": {"image": {"repo": "x"}}}, "repo"),
        ({"added": {"config": {"queue_directory": "/q"}}}, "config.queue_directory="),
        ({"replicas": 2}, "replicas"),
    ],
)
def test_wrong_values_are_named(values: dict[str, Any], sentence: str) -> None:
    assert sentence in refused(**values)
