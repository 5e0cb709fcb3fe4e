"""Ways to build a program of others, by the names that `by` has in pins.yaml."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools.programs import schemas
from tools.programs.workshop import (
    BIN,
    GO,
    HERE,
    SCRATCH,
    TOOLS,
    MissingError,
    Pin,
    go,
    go_flags,
    replacing,
    result,
    run,
)

HEADERS = ("onnxruntime_c_api.h", "onnxruntime_ep_c_api.h")


def cargo_install(name: str, pin: Pin) -> None:
    """Install a Rust program with the versions of its own lock file; it has the name of its package."""
    package = f"{pin['package']}@{pin['version']}"
    place = {"CARGO_TARGET_DIR": str(SCRATCH / "cargo"), "CARGO_INSTALL_ROOT": str(TOOLS)}
    run("cargo", "install", "--quiet", "--locked", "--force", package, environment=place)


def cmake(name: str, pin: Pin) -> None:
    """Build one target of a checkout, which no registry has; its CMakeLists.txt must have the version."""
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


def collector(name: str, pin: Pin) -> None:
    """Build an OpenTelemetry Collector of a file's components by the project's builder; the file says where it goes."""
    programs = SCRATCH / f"builder-{pin['version']}"
    go("install", "-trimpath", f"go.opentelemetry.io/collector/cmd/builder@{pin['version']}", programs=programs)
    run(programs / "builder", f"--config={HERE / pin['file']}", cwd=SCRATCH, environment=GO)
    (SCRATCH / name / name).replace(BIN / name)


def go_files(name: str, pin: Pin) -> None:
    """Copy files of a Go module, checked by its checksums; names that occur twice are distinguished by their folder."""
    source = Path(json.loads(go("mod", "download", "-json", f"{pin['module']}@{pin['version']}"))["Dir"])
    with replacing(result(name, pin)) as target:
        for pattern in pin["files"]:
            found = [path for path in source.glob(pattern) if path.name != "kustomization.yaml"]
            if not found:
                raise MissingError(f"no {pattern} in {pin['module']} {pin['version']}")
            for path in found:
                shutil.copyfile(path, target / f"{path.parent.name}-{path.name}")


def go_install(name: str, pin: Pin) -> None:
    """Install a Go program; it is named as the last part of its package."""
    go("install", *go_flags(pin), f"{pin['package']}@{pin['version']}")


def go_module(name: str, pin: Pin) -> None:
    """Build ``package`` in a copy of a module, since ``go install`` refuses what has replacements of its own."""
    template = (HERE / pin["file"]).parent
    module = SCRATCH / template.name
    if not (module / "go.sum").exists():
        shutil.copytree(template, module, dirs_exist_ok=True)
        go("mod", "tidy", cwd=module)
    go("build", *go_flags(pin), "-o", BIN / name, pin["package"], cwd=module)


def maven(name: str, pin: Pin) -> None:
    """Copy all jars that a Java program runs with."""
    with replacing(result(name, pin)) as libraries:
        run(
            "mvn",
            "-q",
            "-B",
            "-ntp",
            f"-Dmaven.repo.local={SCRATCH / 'maven'}",
            f"-f={HERE / pin['file']}",
            "dependency:copy-dependencies",
            f"-DoutputDirectory={libraries}",
            "-DincludeScope=runtime",
        )


def onnxruntime(name: str, pin: Pin) -> None:
    """Put ONNX Runtime's library out of its wheel into ``lib``, and headers of a module of Go into ``include``.

    A library serves programs of older headers, so the two need not be of one version. The library is the same in the
    wheels for each version of Python.
    """
    wheels = SCRATCH / name
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--python-version=3.12"]
    run(sys.executable, "-m", "pip", "download", *options, f"--dest={wheels}", pin["package"])
    (wheel,) = wheels.glob("*.whl")
    source = Path(json.loads(go("mod", "download", "-json", pin["headers"]))["Dir"])
    with replacing(result(name, pin)) as target, zipfile.ZipFile(wheel) as files:
        for directory in ("include", "lib"):
            (target / directory).mkdir()
        for header in HEADERS:
            if not (source / header).exists():
                raise MissingError(f"no {header} in {pin['headers']}")
            shutil.copyfile(source / header, target / "include" / header)
        found = [member for member in files.namelist() if Path(member).name.startswith("libonnxruntime.so")]
        if len(found) != 1:
            raise MissingError(f"no libonnxruntime.so in {pin['package']}")
        library = target / "lib" / "libonnxruntime.so.1"
        library.write_bytes(files.read(found[0]))
        (target / "lib" / "libonnxruntime.so").symlink_to(library.name)


WAYS: Final[dict[str, Callable[[str, Pin], None]]] = {
    "cargo_install": cargo_install,
    "cmake": cmake,
    "collector": collector,
    "go_files": go_files,
    "go_install": go_install,
    "go_module": go_module,
    "maven": maven,
    "onnxruntime": onnxruntime,
    "schemas": schemas.build,
}
