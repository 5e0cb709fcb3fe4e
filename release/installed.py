"""Run the quick tests on wheels as they are installed: ``python release/installed.py DIRECTORY [--python PATH ...]``.

The wheel that pip takes for a Python is installed into a new environment of it, with what its users and the tests
need, and the tests run in a copy of the checkout without the package's sources; the program that they start is that of
the listener's wheel. The table at the end has one row for each; what pytest said is kept in the work folder. Without
``--python``: every Python from 3.10 on that is on the PATH or that pyenv has.
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
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
NAMES: Final = ("python3.10", "python3.11", "python3.12", "python3.13", "python3.14")
PYENV: Final = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
EXTRAS: Final = "bench,cli,metrics,query,s3,ship"
TESTS: Final = ("-m", "not servers and not real", "-q", "--numprocesses", "3", "--dist", "worksteal")


class Row(NamedTuple):
    """What one wheel did in one Python."""

    wheel: str
    size: int  # in bytes
    libc: str  # that of the interpreter, and its version
    python: str
    result: str
    ok: bool


def main() -> int:
    """Test each wheel in each Python."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--python", action="append", type=Path, help="an interpreter, again for another one")
    parser.add_argument("--each", action="store_true", help="each wheel that a Python accepts, not only the best one")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "installed", help="where environments are made")
    parser.add_argument(
        "--pytest",
        nargs=argparse.REMAINDER,
        default=[],
        help="all that follows is for pytest; the quick tests unless given",
    )
    given = parser.parse_args()
    wheels = sorted(given.directory.glob("inferlog-*.whl"))
    pythons = given.python or [python for name in NAMES for python in find(name)[:1]]
    if not wheels or not pythons:
        print(f"nothing to test: {len(wheels)} wheels in {given.directory}, {len(pythons)} interpreters")
        return 1
    # The tests run in another folder than this one.
    work = given.work.absolute()
    tree = copy(work / "tree")
    rows = [
        test(wheel, python, tree, work, given.pytest)
        for python in pythons
        for wheel in accepted(wheels, python)[: None if given.each else 1]
    ]
    print("wheel | bytes | libc | Python | result")
    for row in rows:
        print(f"{row.wheel} | {row.size:,} | {row.libc} | {row.python} | {row.result}")
    return 0 if rows and all(row.ok for row in rows) else 1


def copy(tree: Path) -> Path:
    """Copy what git has of the checkout, without the package."""
    shutil.rmtree(tree, ignore_errors=True)
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True)
    for name in names.stdout.rstrip("\0").split("\0"):
        if not name.startswith("inference_logging/") and (ROOT / name).is_file():
            place = tree / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place)
    return tree


def find(name: str) -> list[Path]:
    """Return the interpreters of a name that start: pyenv puts one on the PATH for each version, chosen or not."""
    found = [Path(on_path)] if (on_path := shutil.which(name)) else []
    found += PYENV.glob(f"*/bin/{name}")
    return [path for path in found if not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode]


def accepted(wheels: list[Path], python: Path) -> list[Path]:
    """Return the wheels whose tags an interpreter accepts, in the order that its pip takes them."""
    command = [str(python), "-m", "pip", "debug", "--verbose", "--quiet"]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    places = {tag: place for place, tag in reversed(list(enumerate(lines)))}
    best = {wheel: min((places[tag] for tag in tags(wheel) if tag in places), default=None) for wheel in wheels}
    return sorted((wheel for wheel in wheels if best[wheel] is not None), key=lambda wheel: best[wheel] or 0)


def tags(wheel: Path) -> list[str]:
    """Return the tags that a wheel's name stands for."""
    *_, version, abi, platforms = wheel.stem.split("-")
    return [f"{version}-{abi}-{platform}" for platform in platforms.split(".")]


def test(wheel: Path, python: Path, tree: Path, work: Path, tests: list[str]) -> Row:
    """Install a wheel into an environment of its own and run the tests there."""
    asked = [str(python), "-c", "import platform; print(platform.python_version(), *platform.libc_ver())"]
    version, libc = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip().split(maxsplit=1)
    about = (wheel.name, wheel.stat().st_size, libc, version)
    place = work / f"{wheel.stem.rsplit('-', 1)[1].rsplit('.', 1)[-1]}-{version}"
    subprocess.run([python, "-m", "venv", "--clear", place], check=True)
    own = str(place / "bin" / "python")
    locked = [sys.executable, str(tree / "release" / "locks.py"), "--install", "dev", "--python", own]
    # Whatever the wheel asks for is there with the lock, or it is an error.
    pip = [own, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index"]
    for command in (locked, [*pip, "--find-links", str(wheel.parent), f"{wheel}[{EXTRAS}]", "inferlog-listener"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return Row(*about, f"not installed: {done.stderr.strip().splitlines()[-1]}", ok=False)
    print(f"{wheel.name} with Python {version}", flush=True)
    pytest = [own, "-m", "pytest", *(tests or TESTS)]
    # So that processes that the tests start find the tests as well. There is no package in the tree.
    program = place / "bin" / "inference-logging-listener"
    environment = {**os.environ, "PYTHONPATH": str(tree), "LISTENER_PROGRAM": str(program)}
    began = time.monotonic()
    done = subprocess.run(pytest, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    (work / f"{place.name}.txt").write_text(done.stdout, encoding="utf-8")
    lines = done.stdout.strip().splitlines()
    print("\n".join(line for line in lines if line.startswith(("FAILED", "ERROR", "SKIPPED"))), flush=True)
    said = re.sub(r"^=+ | =+$", "", lines[-1]) if lines else f"ended after {time.monotonic() - began:.0f} s"
    return Row(*about, said, ok=done.returncode == 0)


if __name__ == "__main__":
    sys.exit(main())
