"""Install a wheel for musl into a root without glibc and run the quick tests: ``python release/musl.py DIRECTORY``.

A request is logged there first, as docs/install.md says.

The root has busybox, bash, musl, and CPython for it: that of ``--python``, a folder with bin, lib and so on, or one
that musl_python.py builds. The packages come from the registry that this machine's pip has, and are installed in the
root without it. A package that has no wheel for musl is left out; a test that fails after it has asked for one is
skipped. It runs as root, since it changes into the root.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import musl_python
from installed import TESTS, copy
from locks import environment, find_uv, path
from roots import commands, enter

ROOT: Final = Path(__file__).resolve().parent.parent
PLATFORMS: Final = tuple(f"musllinux_1_{minor}_{musl_python.MACHINE}" for minor in (2, 1))
# They have no wheel for musl: the clients of Kafka and of DuckDB, loguru's peer, a browser's driver, locust's loop.
LACKING: Final = {
    "confluent-kafka": "confluent_kafka",
    "duckdb": "duckdb",
    "picologging": "picologging",
    "playwright": "playwright",
    "axe-playwright-python": "axe_playwright_python",
    "zope-interface": "zope",
    "gevent": "gevent",
    "locust": "locust",
}
USERS: Final = {"passwd": "root:x:0:0:root:/root:/bin/sh\n", "group": "root:x:0:\n", "hosts": "127.0.0.1 localhost\n"}


def main() -> int:
    """Make the root, install, log a request and test."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path, help="where the wheels are")
    parser.add_argument("--python", type=Path, help="a CPython for musl; one is built unless given")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "musl", help="where the root is made")
    parser.add_argument("--no-tests", action="store_true", help="log a request only")
    parser.add_argument("--pytest", nargs=argparse.REMAINDER, default=[], help="all that follows is for pytest")
    given = parser.parse_args()
    if os.geteuid():
        parser.error("only root can change into another root: run it as root")
    work = given.work.absolute()
    python = given.python or work / "python"
    if given.python is None:
        musl_python.build(work, python)
    root = make(work / "root", python, musl_python.libc(work))
    version = load(root, given.directory)
    tests = [] if given.no_tests else add_tests(root, version, given.pytest)
    offline = [
        "unset SSL_CERT_FILE SSL_CERT_DIR",
        "export PIP_NO_INDEX=1 PIP_FIND_LINKS=/srv/packages PATH=/usr/local/bin:/bin HOME=/root LANG=C.UTF-8",
    ]
    return enter(root, ["! command -v cc gcc clang", *offline, "cd /srv", *commands(), *tests])


def make(root: Path, python: Path, libc: Path) -> Path:
    """Make a root of busybox, bash, musl and a CPython."""
    shutil.rmtree(root, ignore_errors=True)
    for name in ("bin", "lib", "etc", "root", "srv", "usr/bin"):
        (root / name).mkdir(parents=True)
    for name, content in USERS.items():
        (root / "etc" / name).write_text(content, encoding="utf-8")
    shutil.copy("/bin/busybox", root / "bin")
    # In which the documentation's examples are.
    shutil.copy("/bin/bash-static", root / "bin" / "bash")
    names = subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        if name not in ("bash", "busybox"):
            (root / "bin" / name).symlink_to("busybox")
    (root / "usr" / "bin" / "env").symlink_to("/bin/busybox")
    shutil.copy(libc, root / "lib" / f"ld-musl-{musl_python.MACHINE}.so.1")
    shutil.copytree(python, root / "usr" / "local", symlinks=True)
    return root


def load(root: Path, wheels: Path) -> str:
    """Bring the wheels, and what they need, into the root; return the version of its Python."""
    shutil.copytree(wheels, root / "srv" / "dist" / "wheels")
    shutil.copy(ROOT / "release" / "first_request.py", root / "srv")
    interpreter = (root / "usr" / "local" / "bin" / "python3").resolve().name
    version = interpreter.removeprefix("python")
    wheel = next(iter(sorted((root / "srv" / "dist" / "wheels").glob(f"*{PLATFORMS[0]}.whl"))), None)
    if wheel is None:
        raise FileNotFoundError(f"{wheels}: no wheel of {PLATFORMS[0]}")
    locked = root / "srv" / "versions.txt"
    locked.write_text("\n".join(re.findall(r"^[^\s#].*==\S+(?: ;[^\\\n]+)?", path("dev").read_text(), re.MULTILINE)))
    options = [f"--platform={platform}" for platform in PLATFORMS]
    options += [f"--python-version={version}", "--implementation=cp", "--only-binary=:all:", f"--constraint={locked}"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", *options]
    subprocess.run([*pip, "--dest", root / "srv" / "packages", wheel], check=True)
    return version


def add_tests(root: Path, version: str, asked: list[str]) -> list[str]:
    """Bring the tests and what they need into the root; return the commands that run them."""
    tree = copy(root / "srv" / "tree")
    install(root / "srv" / "site", version)
    for name in ("lacking.py", "lacking_tests.py"):
        shutil.copy(tree / "release" / name, root / "srv" / "site")
    print(f"without a wheel for musl: {', '.join(LACKING)}", flush=True)
    # Its pip is the one that the documentation's commands bring.
    options = [
        "--deselect=tests/project/test_release_audit.py::test_what_is_installed_here_is_what_the_lock_has",
        "-p",
        "lacking_tests",
    ]
    quoted = " ".join(f"'{word}'" for word in [*options, *(asked or TESTS)])
    variables = f"LACKING={','.join(LACKING.values())} PYTHONPATH=/srv/tree"
    variables += " LISTENER_PROGRAM=/srv/venv/bin/inference-logging-listener"
    # Also for processes that tests start with another PYTHONPATH.
    known = f"printf '/srv/site\\nimport lacking\\n' > venv/lib/python{version}/site-packages/tests.pth"
    linter = "ln -s /srv/site/bin/hadolint venv/bin"
    return [known, linter, "cd tree", f"{variables} /srv/venv/bin/python -m pytest -p no:cacheprovider {quoted}"]


def install(place: Path, version: str) -> None:
    """Install what the tests need, as far as there are wheels for musl."""
    blocks = re.split(r"\n(?=[A-Za-z0-9])", path("dev").read_text(encoding="utf-8"))
    kept = [block for block in blocks if re.split(r"[=\[ ]", block)[0].lower() not in LACKING]
    lock = place.with_name("tests.txt")
    lock.write_text("\n".join(kept), encoding="utf-8")
    target = f"{musl_python.MACHINE}-unknown-linux-musl"
    options = ["--only-binary", ":all:", "--no-deps", "--python-platform", target, "--python-version", version]
    # uv takes packages for another C library than this interpreter's.
    command: list[str | Path] = [
        find_uv() or "uv",
        "pip",
        "install",
        "--quiet",
        *options,
        "--target",
        place,
        "--requirement",
        lock,
    ]
    subprocess.run(command, env=environment(), check=True)


if __name__ == "__main__":
    sys.exit(main())
