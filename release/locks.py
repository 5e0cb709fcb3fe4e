"""Keep and install the locks of Python packages: ``python release/locks.py [--upgrade] | --install LOCK …``.

A lock is a requirement file with the exact version and the hashes of each package, for each Python from 3.10 on and
each system, so that the same commit tests the same thing tomorrow. It says nothing of where the packages come from:
that is the configuration of pip and uv. Without arguments the locks are written anew: what a lock has stays as it is
where that satisfies pyproject.toml. Only ``--upgrade`` takes newer versions.

Runs in an environment that has pip and nothing else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOCKS: Final = ROOT / "release" / "locks"
# What each lock is made from, as uv's options. A package has the version of the first lock that has it, since all of
# these can be installed into one environment.
SOURCES: Final = {
    "dev": ("pyproject.toml", "--all-extras", "--group", "dev"),
    "runtime": (
        "pyproject.toml",
        "--extra",
        "cli",
        "--extra",
        "metrics",
        "--extra",
        "query",
        "--extra",
        "s3",
        "--extra",
        "ship",
        "--extra",
        "view",
    ),
    "audit": ("--group", "audit"),
    "docs": ("--group", "docs"),
    "embedded": ("--group", "embedded"),
    "locks": ("--group", "locks"),
    "wheels": ("--group", "wheels"),
}
# Each for an environment of its own.
APART: Final = {
    "clickhouse": ("tests/integrations/clickhouse/requirements.txt",),
    "parsl": ("tests/integrations/parsl/requirements.txt",),
    "phoenix": ("tests/integrations/phoenix/requirements.txt",),
    "triton": ("tests/integrations/triton/requirements.txt", "pyproject.toml"),
}
COMPILE: Final = (
    *("--universal", "--python-version", "3.10", "--generate-hashes", "--no-emit-index-url"),
    *("--custom-compile-command", "make locks", "--quiet"),
)


def main() -> int:
    """Write the locks, or install some of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that pyproject.toml allows")
    parser.add_argument(
        "--install", nargs="+", choices={**SOURCES, **APART}, metavar="LOCK", help="write nothing, install these"
    )
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="into this one's environment")
    given = parser.parse_args()
    if given.install:
        return install(given.install, given.python)
    uv = find_uv()
    if uv is None:
        print("missing: uv, which writes the locks. Install it: pip install uv", file=sys.stderr)
        return 1
    before: list[str] = []
    for name, source in SOURCES.items():
        constraints = [option for lock in before for option in ("--constraint", relative(lock))]
        write(name, uv, *source, *constraints, upgrade=given.upgrade)
        before.append(name)
    for name, source in APART.items():
        write(name, uv, *source, upgrade=given.upgrade)
    return 0


def write(name: str, uv: Path, *source: str, upgrade: bool) -> None:
    """Write one lock."""
    out = ("--output-file", relative(name), *(("--upgrade",) if upgrade else ()))
    LOCKS.mkdir(exist_ok=True)
    subprocess.run([uv, "pip", "compile", *source, *COMPILE, *out], cwd=ROOT, env=environment(), check=True)


def install(names: list[str], python: Path) -> int:
    """Install locks into the environment of an interpreter; return the exit status.

    uv takes a fraction of pip's time. Where it cannot be had, or finds no packages, pip installs the same.
    """
    files = [option for name in names for option in ("--requirement", str(path(name)))]
    uv = find_uv()
    if uv is not None:
        # Compiled here as pip does it, so that no test compiles, and warns of, what others wrote.
        options = ["--quiet", "--compile-bytecode", "--python", str(python), "--require-hashes", *files]
        command = [str(uv), "pip", "install", *options]
        if subprocess.run(command, env=environment(), check=False).returncode == 0:
            return 0
        print("uv did not install the packages; pip does", file=sys.stderr)
    return pip(python, "--require-hashes", *files)


def find_uv() -> Path | None:
    """Return the uv of this script's environment, installed where it is missing; None if it cannot be had."""
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists() and path("locks").exists():
        pip(Path(sys.executable), "--require-hashes", "--requirement", str(path("locks")))
    return uv if uv.exists() else None


def pip(python: Path, *options: str) -> int:
    """Install into an interpreter's environment by the pip of this one; return the exit status."""
    place = [] if python == Path(sys.executable) else ["--python", str(python)]
    command = [sys.executable, "-m", "pip", *place, "install", "--quiet", "--disable-pip-version-check", *options]
    return subprocess.run(command, check=False).returncode


def environment() -> dict[str, str]:
    """Return uv's environment: the system's certificates and the index of pip's configuration, as pip has them."""
    index = os.environ.get("PIP_INDEX_URL")
    return {"UV_SYSTEM_CERTS": "1", **({"UV_DEFAULT_INDEX": index} if index else {}), **os.environ}


def path(name: str) -> Path:
    """Return where a lock lies."""
    return LOCKS / f"{name}.txt"


def relative(name: str) -> str:
    """Return where a lock lies in the checkout."""
    return path(name).relative_to(ROOT).as_posix()


if __name__ == "__main__":
    sys.exit(main())
