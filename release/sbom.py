"""Write the bills of materials of a release: ``python release/sbom.py --out DIRECTORY [--wheels DIRECTORY]``.

They are CycloneDX documents. That of the Python packages names what the package and its extras need at run time, of
the versions of release/locks/runtime.txt, each with its licence. Those of the crates are in each wheel, where maturin
puts them; they are copied out of it. Each is checked against CycloneDX's schema. The same commit gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path, PurePosixPath
from typing import Final

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from locks import ROOT, install
from version import current

SUFFIX: Final = ".cdx.json"


def main() -> int:
    """Write and check; return 1 if a document is not as its schema says, or a wheel has none."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "sbom")
    parser.add_argument("--wheels", type=Path, help="where wheels are, of which the bills of crates are taken")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    documents = {f"inferlog-{current()}-python{SUFFIX}": packages()}
    wheels = sorted(given.wheels.glob("*.whl")) if given.wheels else []
    for wheel in wheels:
        found = crates(wheel)
        if not found:
            print(f"{wheel.name}: no bill of materials in it", file=sys.stderr)
            return 1
        documents.update(found)
    wrong = 0
    for name, text in documents.items():
        (given.out / name).write_text(text, encoding="utf-8")
        problem = judge(text)
        print(f"{name}: {len(json.loads(text)['components'])} components{f': {problem}' if problem else ''}")
        wrong |= problem is not None
    return wrong


def packages() -> str:
    """Return the bill of the Python packages, from an environment that has them and nothing else."""
    with tempfile.TemporaryDirectory() as place:
        # Without pip, which is none of the package's.
        venv.create(place, with_pip=False)
        python = Path(place, "bin", "python")
        if install(["runtime"], python):
            raise SystemExit("release/locks/runtime.txt: not installed")
        command: list[str | Path] = [
            Path(sys.executable).with_name("cyclonedx-py"),
            "environment",
            "--pyproject",
            ROOT / "pyproject.toml",
        ]
        options: list[str | Path] = ["--mc-type", "library", "--output-reproducible", "--output-format", "JSON", python]
        said = subprocess.run([*command, *options], capture_output=True, text=True, check=True).stdout
    document = json.loads(said)
    # pyproject.toml has the version elsewhere.
    document["metadata"]["component"].update(version=current(), purl=f"pkg:pypi/inferlog@{current()}")
    return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def crates(wheel: Path) -> dict[str, str]:
    """Return the bills of the crates that a wheel holds, by a name with the wheel's platform."""
    platform = wheel.stem.rpartition("-")[2].partition(".")[0]
    with zipfile.ZipFile(wheel) as archive:
        return {
            f"{PurePosixPath(name).name.partition('.')[0]}-{platform}{SUFFIX}": archive.read(name).decode()
            for name in archive.namelist()
            if ".dist-info/sboms/" in name and name.endswith(".json")
        }


def judge(text: str) -> str | None:
    """Return what is wrong with a document by the schema of the version that it names; None if nothing is."""
    version = json.loads(text)["specVersion"]
    problem = JsonStrictValidator(SchemaVersion.from_version(version)).validate_str(text)
    return None if problem is None else str(problem).splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
