"""Programs in C and C++ of the tests: how they are compiled, and what they are given."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from inference_logging import Config
from inference_logging.record.settings import as_json

SOURCES: Final = Path(__file__).parents[1] / "c"
# Of the core's two halves the one that these tests are to run with, see `make test-portable`.
PLATFORM: Final = os.environ.get("CORE_PLATFORM", "linux")
LIBRARY: Final = Path(__file__).parents[2] / "native" / "c"
STRICT: Final = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1")
STRICT_C: Final = ("cc", "-std=c11", "-D_GNU_SOURCE", *STRICT)


def install(prefix: Path, *options: str) -> Path:
    """Build the C library in debug mode, with more options of cargo perhaps, and install it."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    subprocess.run([LIBRARY / "install", built(*options), prefix], check=True)
    return prefix


def built(*options: str) -> Path:
    """Build the C library and the listener's program in debug mode, and return the directory of what was built.

    Both at once, as `make test` does: one alone has other features of what they share, and compiles that anew. With
    options of cargo the library alone, in a directory of its own, so that tests that run beside this one keep theirs.
    """
    cargo = shutil.which("cargo", path=f"{os.environ['PATH']}:{Path.home() / '.cargo' / 'bin'}")
    if cargo is None:
        pytest.skip("needs cargo")
    target = LIBRARY.parent / "target" / ("options" if options else "")
    packages = ["--package", "inference_logging_c", *(() if options else ("--package", "inference_logging_program"))]
    if PLATFORM != "linux":
        packages += ["--package", "inferlog-queue", "--features", f"inferlog-queue/{PLATFORM}"]
    elif not options:
        packages = ["--lib", "--bins", "--test", "loom"]
    command = [cargo, "build", "--quiet", "--target-dir", str(target), *packages, *options]
    subprocess.run(command, cwd=LIBRARY.parent, check=True)
    # Resolved: in a copy of the checkout the core is a link.
    return (target / "debug").resolve()


def compiled(prefix: Path, source: str, *compiler: str, more: tuple[str, ...] = ()) -> Path:
    """Compile a program of these tests, or of another path, with the shared library, beside what is installed."""
    program = prefix / f"{Path(source).name}-{compiler[0]}"
    linked = (f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib", "-linferlog", "-pthread", *more)
    subprocess.run([*compiler, f"-I{prefix}/include", "-o", str(program), str(SOURCES / source), *linked], check=True)
    return program


def configuration_file(config: Config, path: Path) -> Path:
    """Write what a Python process of this configuration would open."""
    parameters = json.loads(as_json(config, queue_directory=str(config.resolved_queue_directory)))
    given = {name: value for name, value in parameters.items() if value is not None}
    path.write_text(json.dumps({"version": 1, **given}))
    return path


def run(program: Path, command: str, config: Config) -> list[str]:
    """Run one command to its end; return its lines."""
    configuration = configuration_file(config, config.directory.parent / "configuration.json")
    ended = subprocess.run([program, command, configuration], capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 0, ended
    return ended.stdout.splitlines()
