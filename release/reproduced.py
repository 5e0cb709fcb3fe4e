"""Build a wheel and the sdist of the last commit twice and compare the bytes: ``python release/reproduced.py``.

The two builds share the tools and the commit. They differ in the folder, in the folder of cargo, and in what a machine
may have otherwise: umask, time zone, locale and the number of jobs. Where bytes differ, the members are named.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

from wheels import ROOT, TARGETS

# What a machine may have otherwise.
MACHINES: Final[dict[str, dict[str, str | int]]] = {
    "first": {"umask": 0o022, "TZ": "UTC", "LC_ALL": "C", "CARGO_BUILD_JOBS": "1"},
    "second/in/another/folder": {"umask": 0o077, "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "CARGO_BUILD_JOBS": "2"},
}


def main() -> int:
    """Build twice, compare, and return 1 if anything differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", choices=TARGETS, default="x86_64-unknown-linux-gnu")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "reproduced")
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    built = [build(given.work.absolute() / name, given.target, machine) for name, machine in MACHINES.items()]
    return compare(*built)


def build(place: Path, target: str, machine: dict[str, str | int]) -> Path:
    """Build in a new clone; return the folder of what was built."""
    place.mkdir(parents=True)
    clone, cargo, out = place / "checkout", place / "cargo", place / "out"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, clone], check=True)
    # The crates that are here already, so that each is loaded once.
    loaded = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "registry"
    for part in ("cache", "index"):
        if (loaded / part).is_dir():
            shutil.copytree(loaded / part, cargo / "registry" / part)
    configured = loaded.with_name("config.toml")
    if configured.is_file():
        shutil.copy(configured, cargo)
    variables = {key: str(value) for key, value in machine.items() if key != "umask"}
    environment = {**os.environ, **variables, "CARGO_HOME": str(cargo)}
    environment.pop("CARGO_TARGET_DIR", None)
    command: list[str | Path] = [sys.executable, clone / "release" / "wheels.py", "--target", target, "--out", out]
    subprocess.run(command, env=environment, umask=int(machine["umask"]), check=True)
    return out


def compare(first: Path, second: Path) -> int:
    """Print the sum of each file, and what differs; return 1 if anything does."""
    names = sorted({path.name for folder in (first, second) for path in folder.iterdir()})
    wrong = not names
    for name in names:
        one, other = first / name, second / name
        if not (one.is_file() and other.is_file()):
            print(f"{name}: built once only")
            wrong = True
        elif one.read_bytes() == other.read_bytes():
            print(
                f"{name}: the same {one.stat().st_size:,} bytes, sha256 {hashlib.sha256(one.read_bytes()).hexdigest()}"
            )
        else:
            wrong = True
            print(f"{name}: differs in {', '.join(differences(one, other)) or 'the archive itself'}")
    return int(wrong)


def differences(one: Path, other: Path) -> list[str]:
    """Return the names of an archive's members that differ in content, time, mode or place."""
    mine, others = members(one), members(other)
    order = [] if list(mine) == list(others) else ["the order of the members"]
    return [name for name in sorted({*mine, *others}) if mine.get(name) != others.get(name)] + order


def members(path: Path) -> dict[str, tuple[object, ...]]:
    """Return what an archive holds of each member, in its order."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return {
                info.filename: (archive.read(info), info.date_time, info.external_attr, info.compress_size)
                for info in archive.infolist()
            }
    with tarfile.open(path) as archive:
        return {
            info.name: (
                content.read() if (content := archive.extractfile(info)) else b"",
                info.mtime,
                info.mode,
                info.uid,
            )
            for info in archive.getmembers()
        }


if __name__ == "__main__":
    sys.exit(main())
