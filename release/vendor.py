"""Keep the front-end libraries in the package: ``python release/vendor.py [--check]``.

``vendor.json`` names each library with its version, licence and the digest of every file that is taken from it. Without
an option the files are fetched anew by npm and compared with those digests; a new version needs new digests, which
``--accept`` writes. ``--check`` only compares the files that are here, and needs no network.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
VENDOR: Final = ROOT / "inference_logging" / "read" / "pages" / "static" / "vendor"
MANIFEST: Final = VENDOR / "vendor.json"


def main() -> int:
    """Fetch or compare the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fetch nothing, compare the files that are here")
    parser.add_argument("--accept", action="store_true", help="take what is fetched, and write its digests")
    given = parser.parse_args()
    libraries = json.loads(MANIFEST.read_text())["libraries"]
    if not given.check:
        for library in libraries:
            fetch(library)
    if given.accept:
        for file in (file for library in libraries for file in library["files"]):
            file["sha256"] = digest(file["name"])
        MANIFEST.write_text(json.dumps({"libraries": libraries}, indent=2) + "\n")
    wrong = differing(libraries)
    for name in wrong:
        print(f"{VENDOR.relative_to(ROOT) / name}: not the file that vendor.json names", file=sys.stderr)
    return 1 if wrong else 0


def fetch(library: dict[str, Any]) -> None:
    """Get the package of one library and take its files."""
    package = f"{library['name']}@{library['version']}"
    with tempfile.TemporaryDirectory() as folder:
        command = ("npm", "pack", "--silent", "--pack-destination", folder, package)
        archive = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        with tarfile.open(Path(folder) / archive) as content:
            for file in library["files"]:
                member = content.extractfile(f"package/{file['path']}")
                assert member is not None, file
                place = VENDOR / file["name"]
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(member.read())


def differing(libraries: list[dict[str, Any]]) -> list[str]:
    """Return the files that are missing, are others than named, or are named nowhere."""
    named = {file["name"]: file.get("sha256") for library in libraries for file in library["files"]}
    found = {str(path.relative_to(VENDOR)) for path in VENDOR.rglob("*") if path.is_file() and path != MANIFEST}
    return sorted({name for name in named if name not in found or digest(name) != named[name]} | (found - {*named}))


def digest(name: str) -> str:
    """Return the SHA-256 of a file, in hex."""
    return hashlib.sha256((VENDOR / name).read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
