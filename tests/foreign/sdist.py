"""Other projects' own tests: fetched as source distribution of the installed version, run in a process of their own.

Nothing of them is copied into the tree: the archive lies in the checkout's build folder. Each selection runs twice at
the same time, with every application behind our middleware and without it, and the outcomes are compared by name.
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
_FETCH_PATIENCE_S = 120
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


def run_both(project: str, selection: list[str], tmp_path: Path) -> tuple[Run, Run]:
    """Run the selected tests of ``project`` with our middleware and without it; return both, in this order."""
    folder = unpacked(project)
    running = {wrap: _start(folder, selection, wrap, tmp_path) for wrap in ("yes", "no")}
    try:
        return _end(running["yes"], tmp_path / "yes.json"), _end(running["no"], tmp_path / "no.json")
    finally:
        for process in running.values():
            if process.poll() is None:
                process.kill()
            process.communicate()


def _start(folder: Path, selection: list[str], wrap: str, tmp_path: Path) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    # The folder of the plugin, and what the running tests have of ours (a checkout before an installed package).
    ours = [str(HERE), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    settings = {"DIRECTORY": tmp_path / wrap / "segments", "QUEUE_DIRECTORY": tmp_path / wrap / "queues"}
    environment.update({f"INFERENCE_LOGGING_{name}": str(value) for name, value in settings.items()})
    environment.update(
        PYTHONPATH=os.pathsep.join(ours), FOREIGN_WRAP=wrap, FOREIGN_REPORT=str(tmp_path / f"{wrap}.json")
    )
    # Native tracebacks: the others parse the source, which CPython 3.11 can refuse deep in a stack (gh-106905).
    options = ("-q", "--no-header", "--tb=native", "-p", "every_app_logged", "-p", "no:cacheprovider", "-o", "addopts=")
    base = ("--basetemp", str(tmp_path / wrap / "base"))
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *base, *selection],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _end(process: subprocess.Popen[str], report: Path) -> Run:
    output, _ = process.communicate(timeout=_RUN_PATIENCE_S)
    # 0: all passed, 1: some failed; anything else is a run that did not happen.
    assert process.returncode in (0, 1), f"pytest ended with {process.returncode}:\n{output[-5000:]}"
    found: dict[str, Any] = json.loads(report.read_text())
    return Run(found["outcomes"], found["requests_entered"], found["request_ids"], output)
