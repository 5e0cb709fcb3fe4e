"""A program from a checkout of its repository, by CMake. A variable names the checkout, since no registry has it."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from tools.programs.workshop import SCRATCH, MissingError, Pin, result, run


def build(name: str, pin: Pin) -> None:
    """Build one target and keep its program; the version is that of the checkout's CMakeLists.txt."""
    wanted = f"a checkout of {pin['repository']} {pin['version']}"
    given = os.environ.get(pin["checkout"])
    if not given:
        raise MissingError(f"{pin['checkout']} names no folder with {wanted}")
    source = Path(given).resolve()
    lists = source / "CMakeLists.txt"
    if not lists.is_file() or _version(lists.read_text(encoding="utf-8")) != pin["version"]:
        raise MissingError(f"{pin['checkout']}={given}: is not {wanted}")
    folder = SCRATCH / name
    options = [f"-D{option}={value}" for option, value in pin["options"].items()]
    run("cmake", "-S", source, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", *options)
    run("cmake", "--build", folder, "--target", pin["target"])
    program = result(name, pin)
    shutil.copy2(folder / "bin" / program.name, program)
    run("strip", program)


def _version(lists: str) -> str:
    parts = re.findall(r"^set\([A-Z]+_VERSION_(?:MAJOR|MINOR|PATCH) +(\d+)\)", lists, re.MULTILINE)
    return ".".join(parts)
