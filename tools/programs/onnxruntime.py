"""ONNX Runtime for programs in C and C++: the library out of its wheel, and its header, which the wheel lacks."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path

from tools.programs.workshop import SCRATCH, MissingError, Pin, go, replacing, result, run

HEADERS = ("onnxruntime_c_api.h", "onnxruntime_ep_c_api.h")


def build(name: str, pin: Pin) -> None:
    """Put the library into ``lib``, and the headers that a module of Go brings along into ``include``.

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
