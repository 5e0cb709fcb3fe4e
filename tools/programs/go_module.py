"""A Go program that ``go install`` refuses, as it has replacements of its own: built from a module around it."""

from __future__ import annotations

import shutil

from tools.programs.workshop import BIN, HERE, SCRATCH, Pin, go, go_flags


def build(name: str, pin: Pin) -> None:
    """Build ``package`` in a copy of the module; programs of one module share the copy."""
    template = (HERE / pin["file"]).parent
    module = SCRATCH / template.name
    if not (module / "go.sum").exists():
        shutil.copytree(template, module, dirs_exist_ok=True)
        go("mod", "tidy", cwd=module)
    go("build", *go_flags(pin), "-o", BIN / name, pin["package"], cwd=module)
