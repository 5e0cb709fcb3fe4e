"""Other projects' own tests: fetched as source distribution of the installed version, run in a process of their own.

Nothing of them is copied into the tree: the archive lies in the checkout's build folder. What does not pass with every
application behind our middleware runs without it, too, and the outcomes are compared by name.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
_CACHE = HERE.parent.parent / "build" / "foreign"
_FETCH_PATIENCE_S = 300
_RUN_PATIENCE_S = 420


@dataclass(frozen=True)
class Run:
    """What one run of a selection left: the outcome of each test, and the requests that passed the middleware."""

    outcomes: dict[str, str]
    requests_entered: int
    request_ids: list[str]
    output: str


def unpacked(project: str) -> Path:
    """Return the folder of the installed version's source distribution; skip where it cannot be had."""
    version = importlib.metadata.version(project)
    folder = _CACHE / f"{project}-{version}"
    if not folder.is_dir():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with tarfile.open(_fetch(project, version)) as archive:
            # From Python 3.11.4 on; older ones do whatever the archive says.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(_CACHE)
    if not (folder / "tests").is_dir():
        pytest.skip(f"the source distribution of {project} {version} has no tests")
    return folder


def _fetch(project: str, version: str) -> Path:
    options = ("--quiet", "--no-deps", "--no-binary", ":all:", "--disable-pip-version-check", "--dest", str(_CACHE))
    command = [sys.executable, "-m", "pip", "download", *options, f"{project}=={version}"]
    try:
        fetched = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_FETCH_PATIENCE_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"fetching the source distribution of {project} {version} took over {_FETCH_PATIENCE_S} s")
    if fetched.returncode != 0:
        pytest.skip(f"no source distribution of {project} {version} to be had: {fetched.stderr.strip()[-300:]}")
    return _CACHE / f"{project}-{version}.tar.gz"


def run(project: str, selection: list[str], tmp_path: Path, *, wrap: str = "yes") -> Run:
    """Run the selected tests of ``project`` with our middleware around each application, or with ``wrap="no"``."""
    report = tmp_path / "report.json"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    # The folder of the plugin, and what the running tests have of ours (a checkout before an installed package).
    ours = [str(HERE), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    settings = {"DIRECTORY": tmp_path / "segments", "QUEUE_DIRECTORY": tmp_path / "queues"}
    environment.update({f"INFERENCE_LOGGING_{name}": str(value) for name, value in settings.items()})
    environment.update(PYTHONPATH=os.pathsep.join(ours), FOREIGN_WRAP=wrap, FOREIGN_REPORT=str(report))
    # Native tracebacks: the others parse the source, which CPython 3.11 can refuse deep in a stack (gh-106905).
    options = ("-q", "--no-header", "--tb=native", "-p", "every_app_logged", "-p", "no:cacheprovider", "-o", "addopts=")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--basetemp", str(tmp_path / "base"), *selection],
        cwd=unpacked(project),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_RUN_PATIENCE_S,
    )
    # 0: all passed, 1: some failed; anything else is a run that did not happen.
    assert ended.returncode in (0, 1), f"pytest ended with {ended.returncode}:\n{ended.stdout[-5000:]}"
    found: dict[str, Any] = json.loads(report.read_text())
    return Run(found["outcomes"], found["requests_entered"], found["request_ids"], ended.stdout)
