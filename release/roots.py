"""Install a wheel into a fresh Debian as docs/install.md says and log a request: ``python release/roots.py DIRECTORY``.

debootstrap makes the root, from the mirror that this machine's apt has; there is no compiler in it. The packages that
the wheel needs come from the registry that this machine's pip has. It runs as root, since it changes into the root.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = "ca-certificates,python3-venv"
# How this machine reaches its registries; what is not there is left out.
COPIED: Final = ("etc/resolv.conf", "etc/hosts", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")


def main() -> int:
    """Install and log in each suite that is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path, help="where the wheels are")
    parser.add_argument("--suite", action="append", help="of Debian, again for another one; bookworm unless given")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "roots", help="where roots are made")
    given = parser.parse_args()
    if os.geteuid():
        parser.error("only root can change into another root: run it as root")
    results = [test(suite, given.directory, given.work) for suite in given.suite or ["bookworm"]]
    return 0 if all(results) else 1


def test(suite: str, wheels: Path, work: Path) -> bool:
    """Make a root, do what the documentation says in it, and log a request."""
    root = work / suite
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    began = time.monotonic()
    debootstrap(root, suite, PACKAGES)
    for name in COPIED:
        if Path("/", name).is_file():
            shutil.copy(Path("/", name), root / name)
    shutil.copytree(wheels, root / "srv" / "dist" / "wheels")
    shutil.copy(ROOT / "release" / "first_request.py", root / "srv")
    made = time.monotonic()
    done = enter(root, ["! command -v cc gcc clang", "cd /srv", *commands()])
    said = "a request was logged" if not done else f"exit status {done}"
    print(f"{suite} | root in {made - began:.0f} s | {said} in {time.monotonic() - made:.0f} s")
    return not done


def debootstrap(root: Path, suite: str, packages: str) -> None:
    """Make a root of a suite, also of one that is newer than the program that makes it."""
    scripts = Path("/usr/share/debootstrap/scripts")
    script = [] if (scripts / suite).exists() else [scripts / "sid"]
    command: list[str | Path] = [
        "debootstrap",
        "--variant=minbase",
        f"--include={packages}",
        suite,
        root,
        mirror(),
        *script,
    ]
    subprocess.run(command, check=True)


def enter(root: Path, lines: list[str]) -> int:
    """Run lines of shell in a root, and return the exit status of the first that fails, or 0."""
    places = {"proc": "-t proc proc", "dev": "--rbind /dev", "dev/shm": "-t tmpfs shm", "tmp": "-t tmpfs tmp"}
    mounts = [f"mkdir -p {root}/{place}; mount {what} {root}/{place}" for place, what in places.items()]
    # In a mount namespace of its own: what is mounted ends with it.
    command = "; ".join([*mounts, f'exec chroot {root} sh -c "$0"'])
    return subprocess.run(
        ["unshare", "--mount", "sh", "-euc", command, "\n".join(["set -eu", *lines])], check=False
    ).returncode


def mirror() -> str:
    """Return the address that apt has Debian from. Raises ``ValueError`` if it has none."""
    for path in sorted([Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]):
        if path.is_file() and (
            found := re.search(r"^(?:URIs:|deb)\s.*?(\S+/debian)/?\s", path.read_text(), re.MULTILINE)
        ):
            return found[1]
    raise ValueError("/etc/apt: no source whose address ends in /debian")


def commands() -> list[str]:
    """Return the commands of docs/install.md, and those that log a request and prove it."""
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    block = text.partition("## Two commands")[2].partition("```console\n")[2].partition("```")[0]
    return [
        *(line.removeprefix("$ ") for line in block.splitlines()),
        "venv/bin/python first_request.py logs",
        "venv/bin/inference-logging verify logs",
        "venv/bin/inference-logging-listener verify logs",
    ]


if __name__ == "__main__":
    sys.exit(main())
