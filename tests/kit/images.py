"""Images as buildah builds them from the Dockerfile, and started as an engine does it: a read-only root, and volumes.

No daemon and no registry is needed. Both parts need root: buildah to build, `chroot` to start.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tools.programs.workshop import TOOLS

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "Dockerfile"
LISTENER = "inference-logging-listener"

# Arguments: the root, directories that are mounted at the same place in it, --, the command.
READ_ONLY = """
set -e
root=$1
shift
mount --bind "$root" "$root"
while [ "$1" != -- ]; do
    mkdir -p "$root$1"
    mount --rbind "$1" "$root$1"
    shift
done
shift
mount -o remount,bind,ro "$root"
exec "$@"
"""


def wheels() -> list[Path]:
    """Return the wheels of `make wheels`, else those of `make wheel`."""
    places = (ROOT / "dist" / "wheels", ROOT / "dist")
    return next((found for place in places if (found := sorted(place.glob("*.whl")))), [])


def furnished(context: Path) -> Path:
    """Copy what the Dockerfile takes from a checkout into a folder, and return that."""
    shutil.copy(ROOT / ".dockerignore", context)
    (context / "dist" / "wheels").mkdir(parents=True)
    for wheel in wheels():
        shutil.copy(wheel, context / "dist" / "wheels")
    (context / "release").mkdir()
    shutil.copytree(ROOT / "release" / "locks", context / "release" / "locks")
    return context


class Image(NamedTuple):
    """An image's root file system, unpacked, and what its configuration says."""

    root: Path
    architecture: str
    user: str
    entrypoint: list[str]
    command: list[str]
    environment: dict[str, str]

    def files(self) -> list[Path]:
        """Return all that is in it but directories, which starting adds for volumes."""
        return [path for path in self.root.rglob("*") if path.is_symlink() or not path.is_dir()]

    def start(self, *command: str, volumes: Iterable[Path] = (), **variables: str) -> subprocess.Popen[str]:
        """Start a command, or its own, as its user; its process id is the command's.

        The root is read-only, except for ``volumes``: directories of this machine, at the same place there. The
        processes and devices are this machine's.
        """
        environment = {**self.environment, **variables}
        return subprocess.Popen(
            [
                *("unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(self.root)),
                *("/proc", "/dev", *map(str, volumes)),
                *("--", "env", "-i", *(f"{name}={value}" for name, value in environment.items())),
                *(shutil.which("chroot") or "chroot", f"--userspec={self.user}", str(self.root)),
                *(command or (*self.entrypoint, *self.command)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str, volumes: Iterable[Path] = (), **variables: str) -> str:
        """Run a command as ``start`` does; return what it writes, and fail the test where it fails."""
        process = self.start(*command, volumes=volumes, **variables)
        said, _ = process.communicate(timeout=180)
        assert process.returncode == 0, said
        return said


class Storage:
    """Where images lie: a directory of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def buildah(self, *arguments: str | Path) -> str:
        """Run buildah on this storage; return what it writes, and fail the test where it fails."""
        own = ("--root", self.place / "storage", "--runroot", self.place / "run")
        done = subprocess.run(["buildah", *own, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def close(self) -> None:
        """Remove all that is in it."""
        self.buildah("rm", "--all")
        self.buildah("rmi", "--all", "--force")
        shutil.rmtree(self.place)

    def debian(self) -> str:
        """Make a Debian with Python and no compiler, and name it as the Dockerfile's base, without the digest."""
        given_base = re.search(r"^ARG BASE=([^@]*)", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
        assert given_base is not None
        name = given_base[1]
        suite = name.rpartition("-")[2]
        tar = TOOLS / f"{suite}.tar"
        if not tar.exists():
            tar.parent.mkdir(parents=True, exist_ok=True)
            # As the registry's images have it.
            python = 'ln -s ../../bin/python3 "$1/usr/local/bin/python"'
            options = ("--variant=minbase", "--include=python3,python3-venv", f"--customize-hook={python}")
            part = tar.with_suffix(".part.tar")
            subprocess.run(["mmdebstrap", "--quiet", *options, suite, part, *mirrors()[:1]], check=True)
            part.rename(tar)
        container = self.buildah("from", "scratch")
        self.buildah("add", container, tar, "/")
        # Where packages come from, and whom to trust for it, is this machine's.
        asked = [sys.executable, "-m", "pip", "config", "list"]
        listed = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
        settings = dict(line.partition(".")[2].split("=", 1) for line in listed)
        given = {key: settings[key].strip("'") for key in ("index-url", "cert") if key in settings}
        pip = self.place / "pip.conf"
        lines = ("[global]", *(f"{key} = {value}" for key, value in given.items()), "")
        pip.write_text("\n".join(lines), encoding="utf-8")
        self.buildah("copy", container, pip, "/etc/pip.conf")
        if "cert" in given:
            self.buildah("copy", container, given["cert"], given["cert"])
        self.buildah("commit", "--rm", container, f"docker.io/library/{name}")
        return name

    def build(self, name: str, context: Path, *options: str | Path) -> Image:
        """Build an image of the Dockerfile from what is in ``context``; nothing is pulled."""
        own = ("build", "--isolation", "chroot", "--pull-never", "--file", DOCKERFILE, "--tag", name)
        self.buildah(*own, *options, context)
        return self.image(name)

    def image(self, name: str) -> Image:
        """Return an image that was built, unpacked."""
        root = Path(self.buildah("mount", self.buildah("from", "--pull-never", name)))
        described: dict[str, Any] = json.loads(self.buildah("inspect", "--type", "image", name))["OCIv1"]
        config = described["config"]
        variables = dict(variable.split("=", 1) for variable in config.get("Env", ()))
        started = (config.get("Entrypoint", []), config.get("Cmd", []))
        return Image(root, described["architecture"], config.get("User", ""), *started, variables)


def mirrors() -> list[str]:
    """Return the mirrors of Debian that this machine's packages come from."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    return [uri for uri in found if uri.rstrip("/").endswith("/debian")]
