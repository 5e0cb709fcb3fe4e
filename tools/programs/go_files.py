"""Files that a Go module brings along: downloaded as the module is, checked by Go's checksums, and copied."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tools.programs.workshop import MissingError, Pin, go, replacing, result


def build(name: str, pin: Pin) -> None:
    """Copy what the patterns of ``files`` find; names that occur twice are distinguished by their folder."""
    source = Path(json.loads(go("mod", "download", "-json", f"{pin['module']}@{pin['version']}"))["Dir"])
    with replacing(result(name, pin)) as target:
        for pattern in pin["files"]:
            found = [path for path in source.glob(pattern) if path.name != "kustomization.yaml"]
            if not found:
                raise MissingError(f"no {pattern} in {pin['module']} {pin['version']}")
            for path in found:
                shutil.copyfile(path, target / f"{path.parent.name}-{path.name}")
