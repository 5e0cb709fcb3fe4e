"""Prepare a release: ``python release/version.py VERSION``; ``--check`` only says whether all is as a release needs it.

The version stands in native/Cargo.toml; from there cargo, maturin and the package have it. What cannot read it there is
rewritten with it: the lock file of cargo, the charts and the component for kustomize. The entries of the changelog
become this version's. Then the change is committed and tagged; nothing is pushed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
MANIFEST: Final = ROOT / "native" / "Cargo.toml"
CHARTS: Final = ROOT / "helm"
CHANGELOG: Final = ROOT / "CHANGELOG.md"
_VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_CHART: Final = (r"(?m)^(version: )\S+()$", r'(?m)^(appVersion: ")[^"]+(")$')
# Each with the text around the version, and how often it stands in the file at least.
_PLACES: Final = {
    MANIFEST: (r'(?m)^(version = "|.*\bpath = "\w+", version = ")[^"]+(")',),
    CHARTS / "Chart.yaml": _CHART,
    CHARTS / "library" / "Chart.yaml": _CHART,
    CHARTS / "library" / "values.yaml": (r'(?m)^(  tag: ")[^"]+(")',),
    CHARTS / "kustomize" / "sidecar.yaml": (r"(?m)^( +image: inferlog-listener:)\S+()$",),
}


def main() -> int:
    """Prepare or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version", metavar="VERSION", help="three numbers: 1.2.3")
    parser.add_argument("--check", action="store_true", help="change nothing; for a commit that has the tag already")
    parser.add_argument("--no-tag", action="store_true", help="change the files; neither commit nor tag")
    given = parser.parse_args()
    if not _VERSION.fullmatch(given.version):
        parser.error(f"VERSION={given.version}: not three numbers with points between them")
    try:
        if given.check:
            check(given.version)
        else:
            prepare(given.version, with_tag=not given.no_tag)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def check(version: str) -> None:
    """Raise ``ValueError`` if a file has another version, or the changelog none."""
    for path, patterns in _PLACES.items():
        text = path.read_text(encoding="utf-8")
        if text != _written(text, patterns, version):
            raise ValueError(f"{path.relative_to(ROOT)}: not of version {version}")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", _read(CHANGELOG), re.MULTILINE):
        raise ValueError(f"CHANGELOG.md: no entries of version {version}")


def prepare(version: str, *, with_tag: bool) -> None:
    """Write the version, commit and tag. Raises ``ValueError`` if the checkout is not ready for it."""
    if with_tag:
        if _git("status", "--porcelain", "--untracked-files=no"):
            raise ValueError("the checkout has changes that are not committed")
        if _git("tag", "--list", f"v{version}"):
            raise ValueError(f"VERSION={version}: this version has a tag already")
    if [int(number) for number in version.split(".")] < [int(number) for number in current().split(".")]:
        raise ValueError(f"VERSION={version}: the version is {current()} already")
    CHANGELOG.write_text(changelog(_read(CHANGELOG), version), encoding="utf-8")
    for path, patterns in _PLACES.items():
        path.write_text(_written(_read(path), patterns, version), encoding="utf-8")
    subprocess.run(["cargo", "update", "--quiet", "--offline", "--workspace"], cwd=MANIFEST.parent, check=True)
    if with_tag:
        _git("commit", "--quiet", "--all", "--message", f"Release {version}")
        _git("tag", "--annotate", f"v{version}", "--message", f"Release {version}")
        print(f"committed and tagged: push it with: git push --follow-tags origin HEAD v{version}")


def current() -> str:
    """Return the version that the manifest has."""
    found = re.search(r'^version = "([^"]+)"', _read(MANIFEST), re.MULTILINE)
    if not found:
        raise ValueError(f"{MANIFEST.relative_to(ROOT)}: no version")
    return found[1]


def changelog(text: str, version: str) -> str:
    """Return the changelog with the entries so far under ``version``. Raises ``ValueError`` if there are none."""
    before, heading, rest = text.partition("## [Unreleased]\n")
    entries = rest.partition("\n## [")[0]
    if not heading or not entries.strip():
        raise ValueError("CHANGELOG.md: no entries under [Unreleased]")
    today = datetime.now(timezone.utc).date().isoformat()
    return f"{before}{heading}\n## [{version}] - {today}\n{rest}"


def _written(text: str, patterns: tuple[str, ...], version: str) -> str:
    for pattern in patterns:
        text, count = re.subn(pattern, rf"\g<1>{version}\g<2>", text)
        if not count:
            raise ValueError(f"nothing found of {pattern}")
    return text


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _git(*command: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
