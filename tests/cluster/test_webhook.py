"""The webhook on a real API server: its program changes pods that ask for it, and nothing else notices it.

No node runs containers here, so the program is this machine's, with the certificate and the file that the chart made;
the Service is a name for this machine.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import secrets
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.chart.webhook import CHART, program
from tests.cluster import recipes
from tests.cluster.control_plane import ControlPlane, Object
from tests.cluster.release import WAIT
from tests.cluster.test_node import RESTRICTED
from tests.servers import free_port
from tests.support import wait_until
from tests.tools.tools import tool

pytestmark = pytest.mark.cluster

USER: Final = {"runAsUser": 1000}


class Webhook:
    """A release of the chart, a namespace whose pods may ask, and the program while it runs."""

    def __init__(self, cluster: ControlPlane, directory: Path) -> None:
        self.cluster, self.directory, mark = cluster, directory, secrets.token_hex(3)
        self.own, self.tenant, self.other = (f"{name}-{mark}" for name in ("webhook", "chat", "tools"))
        self.program, self.port = program(), free_port()

    def furnish(self) -> None:
        """Make the namespaces, which admit only what is restricted."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        for name in (self.own, self.tenant, self.other):
            self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
            wait_until(partial(self.cluster.objects, "serviceaccounts", name), "the account that each namespace has")

    def helm(self, command: str, *arguments: str) -> None:
        """Install or upgrade, and wait for the pods."""
        values = ("--set=fullnameOverride=webhook", f"--set=namespaces={{{self.tenant}}}", *arguments)
        done = self.cluster.run("helm", command, "webhook", CHART, f"--namespace={self.own}", *values, *WAIT)
        assert done.returncode == 0, done.stderr

    def data(self, kind: str, name: str) -> dict[str, str]:
        """Return what is in a Secret or a ConfigMap of the release."""
        found = self.cluster.kubectl("get", kind, name, f"--namespace={self.own}", "--output=json")
        data: dict[str, str] = json.loads(found)["data"]
        return data

    def redirect(self) -> None:
        """Let the Service be this machine."""
        self.cluster.kubectl("delete", "service", "webhook", f"--namespace={self.own}")
        spec = {"type": "ExternalName", "externalName": "localhost"}
        metadata = {"name": "webhook", "namespace": self.own}
        self.cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
        self.direct(self.port)

    def direct(self, port: int) -> None:
        """Let the server ask at another port."""
        patch = [{"op": "replace", "path": "/webhooks/0/clientConfig/service/port", "value": port}]
        self.cluster.kubectl("patch", "mutatingwebhookconfiguration", self.name, "--type=json", "-p", json.dumps(patch))

    @property
    def name(self) -> str:
        """The name of what has no namespace."""
        return f"webhook-{self.own}"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the program with what the chart made, until it has ended in order."""
        for name, text in self.data("secret", "webhook-tls").items():
            (self.directory / name).write_bytes(base64.b64decode(text))
        (self.directory / "add.json").write_text(self.data("configmap", "webhook")["add.json"], encoding="utf-8")
        files = {"add": "add.json", "certificate": "tls.crt", "key": "tls.key"}
        options = [f"--{option}={self.directory / file}" for option, file in files.items()]
        command: list[str | Path] = [self.program, *options, f"--port={self.port}"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert "listens on" in process.stderr.readline()
            try:
                yield
            finally:
                process.terminate()
                assert process.wait(30) == 0

    def create(self, pod: dict[str, Any], namespace: str = "", **annotations: str) -> subprocess.CompletedProcess[str]:
        """Let the server make a pod without keeping it."""
        named = {f"inference-logging.io/{name}": value for name, value in annotations.items()}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asked", "annotations": named}, "spec": pod}
        place = f"--namespace={namespace or self.tenant}"
        without_keeping = ("create", "--dry-run=server", "--output=json", place, "--filename=-")
        return self.cluster.run("kubectl", *without_keeping, given=json.dumps(made))

    def admitted(self, pod: dict[str, Any], namespace: str = "", **annotations: str) -> dict[str, Any]:
        """Return what the server makes of a pod, without keeping it."""
        done = self.create(pod, namespace, **annotations)
        assert done.returncode == 0, done.stderr
        spec: dict[str, Any] = json.loads(done.stdout)["spec"]
        return spec

    def made(self, template: Object) -> dict[str, Any]:
        """Return what the server makes of a pod of a template, without keeping it."""
        annotations = template.get("metadata", {}).get("annotations", {})
        return self.admitted(template["spec"], **{key.partition("/")[2]: annotations[key] for key in annotations})

    @contextlib.contextmanager
    def kept(self, objects: list[Object]) -> Iterator[list[Object]]:
        """Let the server keep objects, as it then has them; none of them may have a field that its kind has not."""
        apply = ("apply", "--server-side", f"--namespace={self.tenant}", "--output=json", "--filename=-")
        kept = []
        try:
            for one in objects:
                wrong = copy.deepcopy(one)
                wrong["spec"]["notAField"] = 1
                refused = self.cluster.run("kubectl", *apply, "--dry-run=server", given=json.dumps(wrong))
                assert "notAField" in refused.stderr
                kept.append(json.loads(self.cluster.kubectl(*apply, given=json.dumps(one))))
            yield kept
        finally:
            listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
            place = f"--namespace={self.tenant}"
            self.cluster.run("kubectl", "delete", "--ignore-not-found", place, "--filename=-", given=listed)

    def remove(self) -> None:
        """Remove all, and wait for what has no namespace."""
        self.cluster.run("kubectl", "delete", "--ignore-not-found", "mutatingwebhookconfiguration", self.name)
        self.cluster.run("kubectl", "delete", "namespace", "--wait=false", self.own, self.tenant, self.other)


@pytest.fixture(scope="module")
def installed(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """Install the chart; another release of the same values keeps its certificate."""
    made = Webhook(cluster, tmp_path_factory.mktemp("webhook"))
    try:
        made.furnish()
        made.helm("install")
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def webhook(installed: Webhook) -> Iterator[Webhook]:
    """Run the program, and wait until the server asks it."""
    certificate = installed.data("secret", "webhook-tls")
    installed.helm("upgrade", "--set=replicaCount=3")
    assert installed.data("secret", "webhook-tls") == certificate
    installed.redirect()
    with installed.running():
        wait_until(lambda: is_added(installed.admitted(pod(), inject="true")), "the server to ask the webhook")
        yield installed


def pod(**security: Any) -> dict[str, Any]:
    """Describe a restricted pod that knows nothing of the logging."""
    engine = {
        "name": "engine",
        "image": "example.com/engine",
        "env": [{"name": "MODEL", "value": "m"}, {"name": "INFERENCE_LOGGING_LISTENER", "value": "inProcess"}],
        "volumeMounts": [{"name": "model", "mountPath": "/model"}],
        "securityContext": RESTRICTED,
    }
    fetch = {"name": "fetch", "image": "example.com/fetch", "securityContext": RESTRICTED}
    return {
        "automountServiceAccountToken": False,
        "securityContext": security or USER,
        "initContainers": [fetch],
        "containers": [engine, {**fetch, "name": "proxy"}],
        "volumes": [{"name": "model", "emptyDir": {}}],
    }


def is_added(spec: dict[str, Any]) -> bool:
    return "inference-logging-queue" in names(spec["volumes"])


def is_logged(container: Object) -> bool:
    variables, mounts = environment(container), container.get("volumeMounts", [])
    paths = [mount["mountPath"] for mount in mounts][-2:]
    added = ["/run/inference-logging", "/var/log/inference-logging"]
    return variables.get("INFERENCE_LOGGING_LISTENER") == "external" and paths == added


def names(things: list[Object]) -> list[str]:
    return [thing["name"] for thing in things]


def environment(container: Object) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container.get("env", [])}


def test_a_restricted_pod_gets_queue_environment_and_listener_and_stays_restricted(webhook: Webhook) -> None:
    made = webhook.admitted(pod(), inject="true")
    assert names(made["volumes"]) == ["model", "inference-logging-queue", "inference-logging-segments"]
    # After what fetches the model, before the server.
    assert names(made["initContainers"]) == ["fetch", "listener"]
    listener, (engine, proxy) = made["initContainers"][1], made["containers"]
    assert listener["restartPolicy"] == "Always"
    assert listener["securityContext"]["runAsUser"] == USER["runAsUser"]
    for container in (engine, proxy):
        assert environment(container).items() >= environment(listener).items()
        assert environment(container)["INFERENCE_LOGGING_LISTENER"] == "external"
        mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert mounted[-2:] == ["/run/inference-logging", "/var/log/inference-logging"]
    assert environment(engine)["MODEL"] == "m"
    assert engine["volumeMounts"][0]["mountPath"] == "/model"


def test_one_container_may_be_named(webhook: Webhook) -> None:
    engine, proxy = webhook.admitted(pod(), inject="true", container="engine")["containers"]
    assert ("env" in proxy, "POD_NAME" in environment(engine)) == (False, True)


def test_a_pod_that_has_it_is_unchanged(webhook: Webhook) -> None:
    once = webhook.admitted(pod(), inject="true")
    assert webhook.admitted(once, inject="true") == once


@pytest.mark.parametrize("annotations", [{}, {"inject": "false"}, {"container": "engine"}])
def test_a_pod_that_does_not_ask_is_left_as_it_is(webhook: Webhook, annotations: dict[str, str]) -> None:
    assert not is_added(webhook.admitted(pod(), **annotations))


def test_a_namespace_that_is_not_named_is_left_as_it_is(webhook: Webhook) -> None:
    assert not is_added(webhook.admitted(pod(), webhook.other, inject="true"))


def test_a_pod_whose_user_is_not_known_is_let_through_with_a_warning(webhook: Webhook) -> None:
    done = webhook.create(pod(runAsNonRoot=True), inject="true")
    assert done.returncode == 0
    assert not is_added(json.loads(done.stdout)["spec"])
    assert "container engine: its user is not known" in done.stderr
    made = webhook.admitted(pod(runAsNonRoot=True), inject="true", user="1001")
    assert made["initContainers"][1]["securityContext"]["runAsUser"] == 1001


def test_pods_that_a_controller_makes_get_it_and_run(webhook: Webhook) -> None:
    labels, annotations = {"app": "chat"}, {"inference-logging.io/inject": "true"}
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod()}
    metadata = {"name": "chat", "namespace": webhook.tenant}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    webhook.cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    place = f"--namespace={webhook.tenant}"
    try:
        webhook.cluster.kubectl("rollout", "status", "deployment/chat", place, "--timeout=60s")
        pods = webhook.cluster.objects("pods", webhook.tenant)
        assert len(pods) == 2
        assert all(is_added(one["spec"]) for one in pods)
    finally:
        webhook.cluster.kubectl("delete", "deployment", "chat", place)


def test_a_pod_that_is_not_restricted_is_refused_whatever_the_webhook_adds(webhook: Webhook) -> None:
    lax = pod()
    del lax["containers"][1]["securityContext"]
    refused = webhook.create(lax, inject="true")
    assert refused.returncode != 0
    assert 'violates PodSecurity "restricted:latest"' in refused.stderr


@pytest.mark.parametrize(
    ("name", "kinds", "servers", "others"),
    [
        ("inferenceservice.yaml", "kserve-crds", {"kserve-container"}, set()),
        ("leaderworkerset.yaml", "lws-crds", {"leader"}, {"worker"}),
        ("llm-d.yaml", "inferencepool-crds", {"vllm"}, {"routing-proxy"}),
        ("production-stack-values.yaml", None, {"vllm"}, set()),
    ],
)
def test_each_server_of_a_recipe_gets_queue_environment_and_listener_and_stays_restricted(
    webhook: Webhook, name: str, kinds: str | None, servers: set[str], others: set[str]
) -> None:
    """What the server keeps of the recipe is by its kind's own schema; the kinds' controllers do not run here."""
    if kinds is not None:
        recipes.know(webhook.cluster, tool(kinds))
    with webhook.kept(recipes.recipe(name)) as kept:
        pods = [webhook.made(template) for one in kept for template in recipes.templates(one)]
    logged = {container["name"]: spec for spec in pods for container in spec["containers"] if is_logged(container)}
    assert set(logged) == servers
    for spec in logged.values():
        assert {"inference-logging-queue", "inference-logging-segments"} <= set(names(spec["volumes"]))
        listener = spec["initContainers"][-1]
        assert (listener["name"], listener["restartPolicy"]) == ("listener", "Always")
        assert listener["securityContext"]["runAsUser"] == spec["securityContext"]["runAsUser"]
    every = [one for spec in pods for one in (*spec.get("initContainers", []), *spec["containers"])]
    left = [one for one in every if one["name"] not in {*servers, "listener"}]
    assert set(names(left)) == others
    assert not any(is_logged(container) for container in left)


def test_while_the_webhook_is_away_pods_start_without_logging(webhook: Webhook) -> None:
    assert is_added(webhook.admitted(pod(), inject="true"))
    webhook.direct(free_port())
    try:
        wait_until(lambda: not is_added(webhook.admitted(pod(), inject="true")), "the server to ask in vain")
    finally:
        webhook.direct(webhook.port)
        wait_until(lambda: is_added(webhook.admitted(pod(), inject="true")), "the server to ask the webhook")
