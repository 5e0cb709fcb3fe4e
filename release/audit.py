"""Judge what we build with and what the package needs: ``python release/audit.py [--complete]``.

* crates, by cargo-deny and native/deny.toml: licences, two versions of one, sources, and RustSec's advisories;
* Python packages: the licences of what the package needs at run time, and known vulnerabilities of all that a lock has.

One line says of each what came out. What could not be looked up, for want of a program or of the network, is said; that
is an error with ``--complete`` only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from packaging.requirements import Requirement

from locks import APART, ROOT, SOURCES, path

NATIVE: Final = ROOT / "native"
TOOLS: Final = ROOT / ".tools" / "bin"
# As packages name them. Each allows use in closed programs; the Mozilla licence asks for its own files only.
ALLOWED: Final = {
    *("0BSD", "3-Clause BSD License", "Apache Software License", "Apache-2.0", "BSD License", "BSD-2-Clause"),
    *("BSD-3-Clause", "CC0-1.0", "MIT", "MIT License", "MIT-CMU", "MPL-2.0", "Mozilla Public License 2.0 (MPL 2.0)"),
    *("PSF-2.0", "Python Software Foundation License", "Zlib"),
}
# Shorter than cargo's and git's own, which wait for minutes where no network is.
NETWORK: Final = {"CARGO_NET_RETRY": "1", "GIT_TERMINAL_PROMPT": "0"}


class Row(NamedTuple):
    """What came out: ``ok`` is None where it could not be looked up."""

    what: str
    ok: bool | None
    said: str


def main() -> int:
    """Print a line for each; return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--complete", action="store_true", help="what cannot be looked up is an error")
    given = parser.parse_args()
    rows = [crates(), advisories(), licences(), vulnerabilities()]
    for row in rows:
        state = {True: "ok", False: "WRONG", None: "not looked up"}[row.ok]
        print(f"{row.what}: {state}: {row.said}", flush=True)
    return int(any(row.ok is False or (row.ok is None and given.complete) for row in rows))


def crates() -> Row:
    """Judge the licences, the duplicates and the sources of the crates."""
    what = "crates, licences, duplicates and sources"
    done = deny("check", "bans", "licenses", "sources")
    return Row(what, None, _MISSING) if done is None else Row(what, done.returncode == 0, _said(done))


def advisories() -> Row:
    """Look for the crates in RustSec's database: today's, or the last one that was fetched here."""
    what = "crates, advisories"
    if deny("fetch", "db") is None:
        return Row(what, None, _MISSING)
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    date = ["git", "log", "-1", "--format=%cs"]
    found = [place.parent for place in cargo.glob("advisory-dbs/*/.git")]
    done = deny("--offline", "check", "advisories") if found else None
    if done is None:
        return Row(what, None, "no database of RustSec's is here, and none could be fetched")
    of = subprocess.run(date, cwd=found[0], capture_output=True, text=True, check=True).stdout.strip()
    return Row(what, done.returncode == 0, f"{_said(done)}, by the database of {of}")


def deny(*command: str) -> subprocess.CompletedProcess[str] | None:
    """Run cargo-deny, that of .tools or that of the PATH; None if there is none."""
    found = shutil.which("cargo-deny", path=f"{TOOLS}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        return None
    environment = {**NETWORK, **{key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS")}}
    return subprocess.run(
        [found, "--locked", *command], cwd=NATIVE, env=environment, capture_output=True, text=True, check=False
    )


def licences() -> Row:
    """Judge the licences of what the package needs at run time, as it is installed here."""
    what = "Python packages, licences"
    names = sorted(Requirement(line).name for line in locked(path("runtime")) if applies(line))
    command = [_program("pip-licenses"), "--from", "mixed", "--format", "json", "--packages", *names]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    if len(found) != len(names):
        return Row(what, ok=False, said=f"of {len(names)} packages only {len(found)} are installed: run make build")
    wrong = [
        f"{entry['Name']} {entry['Version']}: {entry['License']}" for entry in found if not allowed(entry["License"])
    ]
    return Row(what, not wrong, "; ".join(wrong) or f"{len(found)} packages")


def allowed(licence: str) -> bool:
    """Whether each licence of an expression is one of those that we allow."""
    return licence in ALLOWED or all(part in ALLOWED for part in re.split(r" AND | OR |; ", licence.translate(_BRACES)))


def vulnerabilities() -> Row:
    """Look up each package of the locks where the index of packages says what is known of them."""
    what = "Python packages, known vulnerabilities"
    command = [_program("pip-audit"), "--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    found: list[Any] = []
    for versions in rounds(*map(path, (*SOURCES, *APART))):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(versions))
            file.flush()
            done = subprocess.run(
                [*command, "--requirement", file.name],
                capture_output=True,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        try:
            found += json.loads(done.stdout)["dependencies"]
        except ValueError:
            return Row(what, None, f"pip-audit: {_last(done.stderr)}")
    return judged(what, found)


def rounds(*locks: Path) -> list[list[str]]:
    """Return what the locks have, in lists that have each package once: a lock can have a version for each Python."""
    versions: dict[str, set[str]] = {}
    for line in (line for lock in locks for line in locked(lock)):
        requirement = Requirement(line)
        versions.setdefault(requirement.name, set()).add(f"{requirement.name}{requirement.specifier}")
    in_order = [sorted(each) for each in versions.values()]
    return [[each[n] for each in in_order if n < len(each)] for n in range(max(map(len, in_order)))]


def judged(what: str, found: list[Any]) -> Row:
    """Return what pip-audit's report says; an index that knows nothing of vulnerabilities skips each package."""
    wrong = [
        f"{entry['name']} {entry['version']}: {', '.join(known['id'] for known in entry['vulns'])}"
        for entry in found
        if entry.get("vulns")
    ]
    skipped = [str(entry["name"]) for entry in found if "skip_reason" in entry]
    if wrong:
        return Row(what, ok=False, said="; ".join(wrong))
    if skipped:
        return Row(what, None, f"the index says nothing of {len(skipped)} of {len(found)} packages")
    return Row(what, ok=True, said=f"{len(found)} packages")


def locked(lock: Path) -> list[str]:
    """Return the requirements of a lock, without hashes."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    return [line.removesuffix("\\").strip() for line in lines if line[:1].isalnum()]


def applies(line: str) -> bool:
    """Whether a requirement is one of this interpreter's."""
    marker = Requirement(line).marker
    return marker is None or marker.evaluate()


_MISSING: Final = "missing: cargo-deny. Install it: make audit (the first time about five minutes)"
_BRACES: Final = str.maketrans("", "", "()")


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return _last(done.stdout or done.stderr) if done.returncode == 0 else f"cargo-deny says:\n{done.stderr.strip()}"


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["nothing"])[-1]


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


if __name__ == "__main__":
    sys.exit(main())
