"""Build a wheel from the sdist with the network closed: ``python release/offline.py SDIST``.

The sdist has Cargo.lock. The crates that it names are fetched first, which is the only step with a network; then pip
builds in a network namespace in which there is nothing but a loopback that is down, and what came out is imported. The
build is one for development: what is fetched and what is compiled does not depend on the profile.

maturin leaves out the crates of the workspace that the module does not need. cargo drops them from the lock at its
first command, so ``--locked`` cannot be given; that nothing else in the lock changes is checked here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Final

from wheels import ROOT

CLOSED: Final = ("unshare", "--net", *(() if os.geteuid() == 0 else ("--map-root-user",)))
INTERFACES: Final = "import socket; print(*(name for _, name in socket.if_nameindex()))"
IMPORTED: Final = "import inference_logging; print(inference_logging.__version__, inference_logging._native.__file__)"


def main() -> int:
    """Fetch, close the network, build, import."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sdist", type=Path, metavar="SDIST")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "offline")
    given = parser.parse_args()
    work = given.work.absolute()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    sdist = given.sdist.absolute()
    with tarfile.open(sdist) as archive:
        archive.extractall(work, filter="data")
    source = work / sdist.name.removesuffix(".tar.gz")
    lock = source / "native" / "Cargo.lock"
    shipped = crates(lock)
    subprocess.run(["cargo", "fetch", "--quiet"], cwd=lock.parent, check=True)
    if added := crates(lock) - shipped:
        print(f"not as Cargo.lock of the sdist has it: {', '.join(sorted(added))}", file=sys.stderr)
        return 1
    seen = subprocess.run(
        [*CLOSED, sys.executable, "-c", INTERFACES], capture_output=True, text=True, check=True
    ).stdout
    if seen.split() != ["lo"]:
        print(f"the network is not closed: {seen}", file=sys.stderr)
        return 1
    begun = time.monotonic()
    options = ["--no-build-isolation", "--no-index", "--no-deps", "--quiet", "--wheel-dir", str(work)]
    subprocess.run(
        [*CLOSED, sys.executable, "-m", "pip", "wheel", *options, sdist], env=environment(work), check=True, cwd=work
    )
    (wheel,) = work.glob("*.whl")
    shutil.unpack_archive(wheel, work / "installed", "zip")
    python = {**os.environ, "PYTHONPATH": str(work / "installed")}
    said = subprocess.run(
        [sys.executable, "-c", IMPORTED], cwd=work, env=python, capture_output=True, text=True, check=True
    )
    version, _, place = said.stdout.strip().partition(" ")
    if not Path(place).is_relative_to(work):
        print(f"imported was not what was built, but {place}", file=sys.stderr)
        return 1
    print(f"{sdist.name}: {wheel.name} in {time.monotonic() - begun:.0f} s without a network; imported as {version}")
    return 0


def crates(lock: Path) -> set[str]:
    """Return the crates of a lock with version, source and checksum, each as its lines."""
    return {entry.partition("dependencies = ")[0].strip() for entry in lock.read_text("utf-8").split("[[package]]")[1:]}


def environment(work: Path) -> dict[str, str]:
    """Return the environment of the build."""
    kept = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "PIP_FIND_LINKS")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    arguments = {"MATURIN_PEP517_ARGS": "--profile dev --offline", "CARGO_TARGET_DIR": str(work / "target")}
    return {**kept, **arguments, "PATH": path, "CARGO_NET_OFFLINE": "true"}


if __name__ == "__main__":
    sys.exit(main())
