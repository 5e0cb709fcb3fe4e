"""A release of the chart on the node, requests to it under load, and the records of them that arrive."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import httpx
import yaml
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from tests.cluster.control_plane import Object
from tests.cluster.release import CHART, Release
from tests.kit.servers import Clients
from tests.kit.support import read_records, wait_until
from tests.node.images import REGISTRY
from tests.node.node import NAME, Node
from tests.ship.endpoint import Collector

PAUSE_S: Final = 0.01
PATIENCE_S: Final = 30.0


def chat(_name: str) -> tuple[str, Object]:
    """Return path and body of a request to the application of the quick start."""
    return "/v1/chat/completions", {}


class Requests(Clients):
    """Clients that send one request after the other, each on a connection of its own and with an id of its own."""

    def __init__(
        self,
        url: str,
        clients: int = 4,
        headers: Mapping[str, str] = MappingProxyType({}),
        asking: Callable[[str], tuple[str, Object]] = chat,
    ) -> None:
        """``asking`` returns path and body of the request with an id."""
        self.url, self.asking = url, asking
        self.headers = {"connection": "close", **headers}
        self.heard: set[str] = set()
        """Those that got a status, whatever became of what should come after it."""
        self.answered: set[str] = set()
        self.failed: dict[str, str] = {}
        """What became of each other request."""
        self._mark = secrets.token_hex(4)
        super().__init__(self._send, clients)

    def wait_for(self, answers: int) -> None:
        """Wait until at least this many more requests are answered."""
        wanted = len(self.answered) + answers
        wait_until(lambda: len(self.answered) >= wanted, f"{wanted} answers; failed: {Counter(self.failed.values())}")

    def _send(self, client: int) -> None:
        number = 0
        with httpx.Client(timeout=PATIENCE_S, headers=self.headers) as connection:
            while not self._ending.wait(PAUSE_S):
                number += 1
                name = f"{self._mark}-{client}-{number}"
                named = {"x-request-id": name}
                path, body = self.asking(name)
                try:
                    with connection.stream("POST", f"{self.url}{path}", headers=named, json=body) as response:
                        self.heard.add(name)
                        response.read()
                except httpx.TransportError as error:
                    self.failed[name] = type(error).__name__
                else:
                    if response.status_code == 200:
                        self.answered.add(name)
                    else:
                        self.failed[name] = str(response.status_code)


class Destination(Collector):
    """Where records arrive: how often each came that has a client's id."""

    def __init__(self, address: str) -> None:
        self._read = 0
        self.arrived: Counter[str] = Counter()
        """By the client's id."""
        self.outcomes: dict[str, str] = {}
        """By the same."""
        super().__init__(address)

    def look(self) -> set[str]:
        """Return the ids of all requests whose records were accepted."""
        for content in self.accepted[self._read :]:
            self._read += 1
            for request in _requests(ExportLogsServiceRequest.FromString(content)):
                if "client_request_id" in request:
                    self.arrived[request["client_request_id"]] += 1
                    self.outcomes[request["client_request_id"]] = request["outcome"]
        return set(self.arrived)


def _requests(export: ExportLogsServiceRequest) -> Iterator[dict[str, str]]:
    """Yield the texts of each record of a request."""
    scopes = (scope for of_resource in export.resource_logs for scope in of_resource.scope_logs)
    # The event's name is the body of a record without a message.
    for record in (record for scope in scopes for record in scope.log_records if record.body.string_value == "request"):
        yield {one.key: one.value.string_value for one in record.attributes}


class Chat(Release):
    """The quick start for a preset, as its file has it but for ``changes``, and a destination of its own."""

    cluster: Node

    def __init__(self, node: Node, name: str, directory: Path, destination: Destination, changes: Object) -> None:
        self.destination = destination
        quick_start = CHART / f"values-{changes.get('preset', 'fastapi')}.yaml"
        self.given = yaml.safe_load(quick_start.read_text(encoding="utf-8"))
        _change(self.given, _here(destination))
        _change(self.given, changes)
        values = directory / f"{name}.yaml"
        values.write_text(yaml.safe_dump(self.given), encoding="utf-8")
        super().__init__(node, name, values)

    def offered(self) -> list[Object]:
        """Return nothing: what the release asks for, its test makes."""
        return []

    @property
    def url(self) -> str:
        """The address of the Service."""
        (service,) = self.cluster.objects("services", self.namespace)
        return f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"

    def is_on_record(self, *sent: Requests) -> set[str]:
        """Wait until the record of every answered request has arrived, and return their ids."""
        answered = set().union(*(one.answered for one in sent))
        begun = time.monotonic()
        wait_until(lambda: answered <= self.destination.look(), "the records of all answered requests")
        failed = sum((Counter(one.failed.values()) for one in sent), Counter())
        print(  # noqa: T201 - `make test-node` shows it
            f"{self.namespace}: {len(answered)} answered, all on record {time.monotonic() - begun:.1f} s later;"
            f" not answered: {dict(failed)}"
        )
        return answered

    def pod(self) -> Object:
        """Return the only pod that is not about to end."""
        (pod,) = self.pods()
        return pod

    def ready_since(self) -> str | None:
        """Return since when the only pod is ready."""
        (ready,) = (one for one in self.pod()["status"]["conditions"] if one["type"] == "Ready")
        return ready["lastTransitionTime"] if ready["status"] == "True" else None

    def restarts(self) -> dict[str, int]:
        """Return how often each container of the only pod was started again."""
        return {one["name"]: one["restartCount"] for one in _statuses(self.pod())}

    def has_restarted(self, times: int) -> bool:
        """Whether the server was started again so often, and is ready."""
        return self.restarts()["server"] == times and bool(self.ready_since())

    def wait_for_pods(self) -> None:
        """Wait until all pods are ready."""
        (deployment,) = self.cluster.objects("deployments", self.namespace)
        what = f"deployment/{deployment['metadata']['name']}"
        self.cluster.kubectl("rollout", "status", what, f"--namespace={self.namespace}", "--timeout=90s")

    def processes(self, container: str, program: str = "") -> list[int]:
        """Return the processes of a container of the only pod whose command lines begin with ``program``."""
        (status,) = (one for one in _statuses(self.pod()) if one["name"] == container)
        found = self.cluster.processes_in(status["containerID"])
        return [number for number, line in found.items() if line.startswith(program)]

    def kill_server(self) -> None:
        """Kill all processes of the server; with their parent the others end by themselves."""
        for number in self.processes("server"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def child(self) -> int | None:
        """Return the process of the listener, whose parent is the container's first one."""
        return next(iter(self.processes("listener", "/inference-logging-listener listen")), None)

    def health(self) -> int:
        """Return the status of the logging's health, as the only pod's server answers it."""
        return httpx.get(f"http://{self.pod()['status']['podIP']}:8000/health/logging").status_code

    def counted(self, port: int, name: str) -> int:
        """Return a counter that is served on that port of the only pod, with all its labels together."""
        text = httpx.get(f"http://{self.pod()['status']['podIP']}:{port}/metrics").text
        lines = [line for line in text.splitlines() if re.match(f"inference_logging_{name}[ {{]", line)]
        assert lines, f"no {name} in {text}"
        return int(sum(float(line.rpartition(" ")[2]) for line in lines))

    def starts_again(self, port: int) -> int:
        """Return how often the parent that serves its metrics there has started its child again."""
        return self.counted(port, "restarts_total")

    def has_started_again(self, port: int, times: int) -> bool:
        """Whether it has done so at least so often."""
        return self.starts_again(port) >= times

    def written(self) -> set[str]:
        """Return the ids of the requests whose records are in the segments of the only pod."""
        return written(self.cluster, self.pod(), "segments")

    def verified(self) -> str:
        """Return what the books of the only pod say, which must balance."""
        name = f"pod/{self.pod()['metadata']['name']}"
        inside = (f"--namespace={self.namespace}", "--container=server", "--", "inference-logging", "verify")
        return self.cluster.kubectl("exec", name, *inside)

    def admit(self, standard: str) -> None:
        """Let the namespace have pods of another security standard."""
        label = f"pod-security.kubernetes.io/enforce={standard}"
        self.cluster.kubectl("label", "--overwrite", "namespace", self.namespace, label)

    def delete_pod(self, *, wait: bool = True) -> None:
        """Delete a pod, and wait until it is gone."""
        name = self.pods()[0]["metadata"]["name"]
        self.cluster.kubectl("delete", "pod", name, f"--namespace={self.namespace}", f"--wait={str(wait).lower()}")

    def remove(self) -> None:
        """Remove the namespace with all that is in it; the pods get no time to end."""
        self.cluster.run("kubectl", "delete", "pods", "--all", f"--namespace={self.namespace}", "--grace-period=1")
        super().remove()

    def said(self) -> str:
        """Return what the cluster, and each container, has to say."""
        selected = ("--selector=app.kubernetes.io/name", "--all-containers", "--prefix", "--tail=20")
        logs = self.cluster.run("kubectl", "logs", f"--namespace={self.namespace}", *selected)
        return f"{self.events()}\n{logs.stdout}{logs.stderr}"


def written(node: Node, pod: Object, volume: str) -> set[str]:
    """Return the ids of the requests whose records are in the segments of a pod, which this volume has."""
    volumes = node.directory / "kubelet" / "pods" / pod["metadata"]["uid"] / "volumes" / "kubernetes.io~empty-dir"
    records = read_records(volumes / volume / "segments", "request")
    return {record["client_request_id"] for record in records if "client_request_id" in record}


def volume(node: Node, name: str) -> Path:
    """Offer a folder of the node, which is returned, as a volume for the first claim that comes."""
    folder = node.directory / "volumes" / name
    folder.mkdir(parents=True)
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NAME]}
    spec = {
        "capacity": {"storage": "4Gi"},
        "accessModes": ["ReadWriteOnce"],
        "local": {"path": str(folder)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }
    node.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
    return folder


def watch(look: Callable[[], Any], what: str) -> Any:
    """Wait as ``wait_until`` does, with two looks a second: one costs a run of kubectl."""

    def looked() -> Any:
        if not (found := look()):
            time.sleep(0.5)
        return found

    return wait_until(looked, what)


def _statuses(pod: Object) -> list[Object]:
    return [*pod["status"].get("initContainerStatuses", []), *pod["status"]["containerStatuses"]]


def _here(destination: Destination) -> Object:
    """Return what a machine of two cores without name resolution has to change."""
    return {
        "image": {"repository": f"{REGISTRY}inferlog"},
        "server": {"resources": {"requests": {"cpu": "100m"}}},
        "shipper": {"type": "inference-logging"},
        "destination": {"endpoints": [destination.url.removeprefix("otlp+")]},
    }


def _change(given: Object, changes: Object) -> None:
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(given.get(name), dict):
            _change(given[name], value)
        else:
            given[name] = value
