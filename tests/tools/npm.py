"""Packages for Node.js, of the versions and with the checksums of a lock file."""

from __future__ import annotations

import shutil

from tests.tools.workshop import HERE, SCRATCH, Pin, replacing, result, run


def build(name: str, pin: Pin) -> None:
    """Install into ``node_modules`` of the result; scripts of the packages are not run."""
    with replacing(result(name, pin)) as target:
        for file in ("package.json", "package-lock.json"):
            shutil.copyfile((HERE / pin["file"]).with_name(file), target / file)
        run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", f"--cache={SCRATCH / 'npm'}", cwd=target)
