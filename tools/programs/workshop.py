"""Where foreign tools are built and where they then lie: everything below ``.tools``, which git ignores.

TOOLS_DIRECTORY is another folder for it, which outlives the checkout; it may be empty.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

HERE: Final = Path(__file__).parent
TOOLS: Final = Path(os.environ.get("TOOLS_DIRECTORY") or HERE.parents[1] / ".tools")
BIN: Final = TOOLS / "bin"
SCRATCH: Final = TOOLS / "build"
"""Removed at the end of an installation, as is everything in it."""

GO: Final = {
    "CGO_ENABLED": "0",
    "GOCACHE": str(SCRATCH / "go-cache"),
    "GOFLAGS": "-buildvcs=false -modcacherw '-gcflags=all=-dwarf=false -l'",
    "GOGC": "400",
    "GOPATH": str(SCRATCH / "go"),
    "GOWORK": "off",
}
"""Modules and cache below ``.tools``, removable; programs that need no library of C; a compiler that collects less.

Without lines for a debugger, and without inlining, a program is compiled in a quarter less time.
"""

Pin = dict[str, Any]


class MissingError(Exception):
    """A tool cannot be had here; the message is one line that says why."""


def pins() -> dict[str, Pin]:
    """Return what is installed, and how."""
    entries: dict[str, Pin] = yaml.safe_load((HERE / "pins.yaml").read_text(encoding="utf-8"))
    return entries


def result(name: str, pin: Pin) -> Path:
    """Return where a tool lies once it is installed."""
    return TOOLS / str(pin.get("result", f"bin/{name}"))


def run(*command: str | Path, cwd: Path | None = None, environment: Mapping[str, str] = MappingProxyType({})) -> str:
    """Run a step of an installation and return what it said; raise MissingError with its last line if it fails."""
    program = str(command[0])
    if shutil.which(program) is None:
        raise MissingError(f"no command {program}")
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise MissingError(f"{Path(program).name} {command[1]}: {said[-1] if said else f'exit code {done.returncode}'}")
    return done.stdout


def go(*arguments: str | Path, cwd: Path | None = None, programs: Path = BIN) -> str:
    """Run Go and return what it said; what it installs goes to ``programs``."""
    return run("go", *arguments, cwd=cwd or SCRATCH, environment={**GO, "GOBIN": str(programs)})


def go_flags(pin: Pin) -> list[str]:
    """Return the flags of a small binary that holds no path of this machine, with the variables that ``pin`` sets."""
    variables = [f"-X {name}={value}" for name, value in pin.get("variables", {}).items()]
    return ["-trimpath", f"-ldflags={' '.join(['-s', '-w', *variables])}"]


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Give an empty directory that takes the place of ``target`` when all is in it."""
    new = target.with_name(f".{target.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    yield new
    shutil.rmtree(target, ignore_errors=True)
    new.rename(target)
