"""A real Kubernetes node: kubelet, containerd, runc and kube-proxy beside a control plane, on this machine alone.

Its processes are in namespaces of their own. That of the network, which the tests enter too, has no way out. That of
processes ends with its first one, and this one with the tests, however they end. So does that of mounts, and with it
all that was mounted. A folder and cgroups are left then, which the next start removes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.cluster.control_plane import START_DEADLINE_S, ControlPlane
from tests.kit.support import wait_until
from tests.node.images import PAUSE
from tests.tools.tools import tool

ADDRESS: Final = "10.87.0.1"
NAME: Final = "node"
PODS: Final = "10.88.0.0/24"
SERVICES: Final = "10.96.0.0/16"
GROUP: Final = "inference-logging-node"
CGROUPS: Final = Path("/sys/fs/cgroup")
# On Debian: apt-get install containerd runc containernetworking-plugins e2fsprogs iptables iproute2 util-linux
MOUNTING: Final = ("fsfreeze", "mkfs.ext4", "nsenter", "setpriv", "unshare")
NEEDED: Final = ("containerd", "ctr", "ip", "iptables", "runc", *MOUNTING)
PLUGINS: Final = Path("/usr/lib/cni")
CLONE_NEWNET: Final = 0x40000000

# The folders in which programs write, whatever their options say, are this node's own.
FIRST: Final = """
set -e
mount --make-rshared /
for place in /run /var/lib /var/log /dev/shm; do mount -t tmpfs -o mode=1777 node $place; done
echo ready
sleep infinity & wait
"""


class Node(ControlPlane):
    """One node with these archives of images, until it is stopped."""

    def __init__(self, directory: Path, archives: Sequence[Path]) -> None:
        super().__init__(directory)
        self.programs |= {name: tool(name) for name in ("kubelet", "kube-proxy")}
        self.programs["containerd"] = Path(shutil.which("containerd") or "containerd")
        self.archives = archives
        self._undo = contextlib.ExitStack()

    def start(self) -> None:
        """Start everything, and wait until the node is ready."""
        remove(self.directory)
        self._undo.callback(remove, self.directory)
        self.directory.mkdir(parents=True)
        make_groups()
        self._undo.enter_context(own_network())
        self._start_first()
        super().start()
        self._start_containerd()
        self._start_kubelet()

    def stop(self) -> None:
        """End and remove everything."""
        self._undo.close()

    def take(self, archive: Path) -> None:
        """Import the image in an archive."""
        socket = self.directory / "containerd.sock"
        self.inside("ctr", f"--address={socket}", "--namespace=k8s.io", "images", "import", archive)

    def inside(self, *command: str | Path) -> str:
        """Run a command among the node's processes and mounts, and return what it said."""
        return subprocess.run([*self.within, *command], check=True, capture_output=True, text=True).stdout

    def mount_disk(self, folder: Path) -> None:
        """Mount a disk of its own at a folder; it goes with the node."""
        image = folder.with_suffix(".ext4")
        with image.open("wb") as file:
            file.truncate(1 << 30)
        self.inside("mkfs.ext4", "-q", image)
        self.inside("mount", "-o", "loop", image, folder)

    @contextlib.contextmanager
    def frozen(self, folder: Path) -> Iterator[None]:
        """Make all writes to the disk of a folder wait."""
        # It thaws by itself too, outside the node's processes: nothing that waits for a disk can be killed.
        _, target, mounts, *_ = self.within
        freeze, thaw = (f"fsfreeze --{what} '{folder}'" for what in ("freeze", "unfreeze"))
        freezing = subprocess.Popen(
            [
                "nsenter",
                target,
                mounts,
                "--",
                "bash",
                "-c",
                f"trap : TERM; {freeze} && echo; sleep 200 & wait; {thaw}; kill $!",
            ],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert freezing.stdout is not None
        try:
            assert freezing.stdout.readline() == "\n"
            yield
        finally:
            freezing.terminate()
            freezing.communicate()

    def processes_in(self, container: str) -> dict[int, str]:
        """Return the processes of a container by its id, each with its command line."""
        (listed,) = (CGROUPS / "memory" / GROUP).rglob(f"{container.rpartition('/')[2]}/cgroup.procs")
        found = {}
        for number in listed.read_text(encoding="ascii").split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found[int(number)] = Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def _start_first(self) -> None:
        apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        first = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *apart, "bash", "-c", FIRST],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._undo.callback(self._end, first)
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        (number,) = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text(encoding="ascii").split()
        self.within = ("nsenter", f"--target={number}", "--mount", "--pid", "--")

    def _end(self, first: subprocess.Popen[str]) -> None:
        first.kill()
        first.communicate()
        for process in self.processes.values():
            process.wait()

    def _start_containerd(self) -> None:
        socket = self.directory / "containerd.sock"
        self._write("cni/pods.conflist", json.dumps(network(self.directory)))
        self._write("containerd.toml", containerd(self.directory))
        self._spawn("containerd", f"--config={self.directory / 'containerd.toml'}")
        wait_until(socket.exists, "containerd to be ready", START_DEADLINE_S)
        for archive in self.archives:
            self.take(archive)

    def _start_kubelet(self) -> None:
        self._write("kubelet.yaml", json.dumps(kubelet(self.directory)))
        self._write("resolv.conf", "")
        shared = (f"--kubeconfig={self.kubeconfig}", f"--hostname-override={NAME}")
        self._spawn(
            "kubelet",
            *shared,
            f"--config={self.directory / 'kubelet.yaml'}",
            f"--root-dir={self.directory / 'kubelet'}",
            f"--cert-dir={self.directory / 'certificates-of-kubelet'}",
            f"--node-ip={ADDRESS}",
        )
        self._spawn(
            "kube-proxy",
            f"--kubeconfig={self.kubeconfig}",
            f"--hostname-override={NAME}",
            "--proxy-mode=iptables",
            f"--cluster-cidr={PODS}",
            "--conntrack-max-per-core=0",
        )
        wait_until(lambda: self.run("kubectl", "get", f"node/{NAME}").returncode == 0, "the node", START_DEADLINE_S)
        self.kubectl("wait", "--for=condition=Ready", f"node/{NAME}", f"--timeout={START_DEADLINE_S:.0f}s")

    def _write(self, name: str, text: str) -> None:
        file = self.directory / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """Take this thread, and what it starts from here on, to a network that has no way out."""
    libc = ctypes.CDLL(None, use_errno=True)

    def succeed(code: int) -> None:
        if code != 0:
            raise OSError(ctypes.get_errno(), "the network's namespace")

    with Path("/proc/thread-self/ns/net").open("rb") as before:
        succeed(libc.unshare(CLONE_NEWNET))
        try:
            for command in (
                "link set lo up",
                "link add node0 type bridge",
                f"address add {ADDRESS}/24 dev node0",
                "link set node0 up",
                # Their addresses are changed to those of pods, but the kernel looks for a route first.
                f"route add {SERVICES} dev node0",
            ):
                subprocess.run(["ip", *command.split()], check=True)
            yield
        finally:
            succeed(libc.setns(before.fileno(), CLONE_NEWNET))


def groups() -> list[Path]:
    """Return where the node's cgroups are, one in each hierarchy."""
    lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    names = [line.split(":")[1].removeprefix("name=") for line in lines]
    return [CGROUPS / name / GROUP for name in names if name]


def make_groups() -> None:
    """Make the cgroups below which all containers are."""
    for group in groups():
        group.mkdir()
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (group / name).exists():
                (group / name).write_bytes((group.parent / name).read_bytes())


def remove(directory: Path) -> None:
    """Remove what a node leaves whose processes have ended."""
    wait_until(_are_groups_removed, "all containers to have ended")
    shutil.rmtree(directory, ignore_errors=True)


def _are_groups_removed() -> bool:
    with contextlib.suppress(OSError):  # a process that was killed is still there for a moment
        for group in CGROUPS.glob(f"*/{GROUP}"):
            for place, _, _ in os.walk(group, topdown=False):
                Path(place).rmdir()
        return True
    return False


def network(directory: Path) -> dict[str, Any]:
    """Describe the network of pods."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": PODS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(directory / "addresses"),
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def containerd(directory: Path) -> str:
    """Return containerd's configuration. Without CAP_SYS_RESOURCE nobody may ask for a better OOM score."""
    return f"""
version = 2
root = "{directory}/containerd"
state = "{directory}/containerd-state"
oom_score = 0
[grpc]
  address = "{directory}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{directory}/cni"
"""


def kubelet(directory: Path) -> dict[str, Any]:
    """Describe the kubelet. Images cannot be pulled again, so none is removed."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{GROUP}",
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "containerRuntimeEndpoint": f"unix://{directory}/containerd.sock",
        "podLogsDir": str(directory / "logs"),
        "volumePluginDir": str(directory / "plugins"),
        "resolvConf": str(directory / "resolv.conf"),
        "makeIPTablesUtilChains": False,
        "syncFrequency": "10s",
        "evictionHard": dict.fromkeys(("nodefs.available", "imagefs.available", "nodefs.inodesFree"), "1%"),
        "imageGCHighThresholdPercent": 100,
    }
