"""A real Kubernetes control plane on loopback: etcd, API server, controllers and scheduler.

What the server accepts, rejects, defaults, schedules, rolls and removes here is what a cluster does. The node that
``Simulated`` adds, with GPUs, is kwok's, which says that pods run, and no container does; `tests/node` has a real one.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.kit.servers import free_port
from tests.kit.support import wait_until
from tests.tools.tools import tool

START_DEADLINE_S: Final = 60.0
EXIT_TIMEOUT_S: Final = 20.0
HELM_TIMEOUT: Final = "90s"
PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "helm")
NODE: Final = "node-with-gpus"

Object = dict[str, Any]


class ControlPlane:
    """The processes of one control plane, until it is stopped; all that they write lies in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.programs = {name: tool(name) for name in PROGRAMS}
        if shutil.which("openssl") is None:
            pytest.skip("missing: openssl, for the key of service accounts")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.within: tuple[str, ...] = ()
        """The command that starts a program in the namespaces of a node."""
        self.port = free_port()
        self.kubeconfig = directory / "kubeconfig"

    def start(self) -> None:
        """Start everything, and wait until the server is ready."""
        token = secrets.token_hex(16)
        (self.directory / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n', encoding="utf-8")
        key = self.directory / "service-accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        self.kubeconfig.write_text(json.dumps(self._kubeconfig(token)), encoding="utf-8")
        self._start_server(key)
        wait_until(self._is_ready, "the API server to be ready", START_DEADLINE_S)
        self._start_controllers(key)

    def stop(self) -> None:
        """End all processes, the last started first, so that each one still has what it talks to."""
        for process in reversed(self.processes.values()):
            process.terminate()
            try:
                process.wait(EXIT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def run(self, name: str, *arguments: str | Path, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl or helm against this control plane, with nothing of the user's own settings."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.directory), "KUBECONFIG": str(self.kubeconfig)}
        return subprocess.run(
            [self.programs[name], *arguments], env=environment, input=given, check=False, capture_output=True, text=True
        )

    def kubectl(self, *arguments: str | Path, given: str | None = None) -> str:
        """Run kubectl, which must succeed, and return what it said."""
        done = self.run("kubectl", *arguments, given=given)
        assert done.returncode == 0, f"kubectl {arguments}: {done.stderr}"
        return done.stdout

    def apply(self, *objects: Object) -> None:
        """Create or change objects."""
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("apply", "--filename=-", given=json.dumps(listed))

    def objects(self, kinds: str, namespace: str) -> list[Object]:
        """Return the objects of these kinds in a namespace."""
        found = json.loads(self.kubectl("get", kinds, f"--namespace={namespace}", "--output=json"))
        items: list[Object] = found["items"]
        return items

    def everything(self) -> set[str]:
        """Name all objects there are, as NAMESPACE/KIND/NAME, but for what the cluster itself writes all the time."""
        resources = self.kubectl("api-resources", "--verbs=list,delete", "--output=name").split()
        kinds = ",".join(name for name in resources if name.split(".")[0] not in {"events", "leases"})
        names = '{range .items[*]}{.metadata.namespace}/{.kind}/{.metadata.name}{"\\n"}{end}'
        return set(self.kubectl("get", kinds, "--all-namespaces", f"--output=jsonpath={names}").split("\n")) - {""}

    def _is_ready(self) -> bool:
        self._check_alive()
        return self.run("kubectl", "get", "--raw=/readyz").returncode == 0

    def _check_alive(self) -> None:
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name} ended: {self._log(name).read_text(errors='replace')[-2000:]}"

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _spawn(self, name: str, *flags: str) -> None:
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                [*self.within, self.programs[name], *flags],
                cwd=self.directory,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for pytest, which then ends them in order.
                start_new_session=True,
            )
        self.processes[name] = process

    def _start_server(self, key: Path) -> None:
        clients, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._spawn(
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
        )
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers={clients}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self.directory / 'certificates'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--endpoint-reconciler-type=none",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            # Nothing here resolves a node's name.
            "--kubelet-preferred-address-types=InternalIP",
        )

    def _start_controllers(self, key: Path) -> None:
        shared = [f"--kubeconfig={self.kubeconfig}", "--bind-address=127.0.0.1", "--leader-elect=false"]
        self._spawn(
            "kube-controller-manager",
            *shared,
            f"--secure-port={free_port()}",
            f"--cert-dir={self.directory / 'certificates-of-controllers'}",
            f"--service-account-private-key-file={key}",
            "--authentication-skip-lookup",
            "--controllers=*,-bootstrap-signer-controller,-token-cleaner-controller",
            # On a busy machine the node's signs of life come late, and a node without them gets no pods.
            "--node-monitor-grace-period=1h",
        )
        self._spawn(
            "kube-scheduler",
            *shared,
            f"--secure-port={free_port()}",
            f"--cert-dir={self.directory / 'certificates-of-scheduler'}",
            "--authentication-skip-lookup",
        )

    def _kubeconfig(self, token: str) -> Object:
        authority = str(self.directory / "certificates" / "apiserver.crt")
        server = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": authority}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
            "current-context": "tests",
        }


class Simulated(ControlPlane):
    """A control plane with custom resources and one node, which kwok plays."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.programs["kwok"] = tool("kwok")
        self.stages, self.crds = tool("kwok-stages"), tool("crds")

    def start(self) -> None:
        """Start everything, and wait until the node is ready and custom resources are known."""
        super().start()
        self._start_kwok()
        self.kubectl("apply", "--server-side", "--filename", self.crds)
        self.apply(node())
        self.kubectl("wait", "--for=condition=Ready", f"node/{NODE}", f"--timeout={START_DEADLINE_S:.0f}s")
        self.kubectl("wait", "--for=condition=Established", "crd", "--all", f"--timeout={START_DEADLINE_S:.0f}s")

    def _start_kwok(self) -> None:
        stages = self.directory / "stages.yaml"
        stages.write_text("\n---\n".join(path.read_text("utf-8") for path in sorted(self.stages.iterdir())), "utf-8")
        self._spawn(
            "kwok",
            f"--kubeconfig={self.kubeconfig}",
            f"--config={stages}",
            "--manage-all-nodes=true",
            "--node-ip=127.0.0.1",
            f"--server-address=127.0.0.1:{free_port()}",
        )


def node(name: str = NODE) -> Object:
    """Return a node that is large enough for each preset."""
    room = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "4Ti", "pods": "110", "nvidia.com/gpu": "8"}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": room, "allocatable": room},
    }
