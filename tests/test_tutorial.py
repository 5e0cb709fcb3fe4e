"""The tutorial does what it says: its commands run as they stand, from an empty folder to balanced books."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import free_port
from tests.shown import assert_prints, blocks

ROOT = Path(__file__).parent.parent
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl (on Debian: apt-get install curl)"),
]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Follow the tutorial in an empty folder, all but the installation."""
    place = tmp_path_factory.mktemp("tutorial")
    (application,) = blocks(TUTORIAL, "python")
    (place / "app.py").write_text(application, encoding="utf-8")
    scripts = place / "bin"
    scripts.mkdir()
    for name, module in (("inference-logging", "inference_logging.cli.main"), ("uvicorn", "uvicorn")):
        (scripts / name).write_text(f'#!/bin/sh\nexec {sys.executable} -W ignore -m {module} "$@"\n')
        (scripts / name).chmod(0o755)
    lines = "".join(block for block in blocks(TUTORIAL, "sh") if "pip install" not in block)
    script = "set -eu\n" + lines.replace("8000", str(free_port()))
    own = {"PATH": f"{scripts}:{os.environ['PATH']}", "INFERENCE_LOGGING_QUEUE_DIRECTORY": str(place / "queues")}
    return subprocess.run(
        ["bash", "-c", script],
        cwd=place,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_every_command_of_it_succeeds(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


def test_the_first_request_and_the_record_inside_it_are_shown(done: subprocess.CompletedProcess[str]) -> None:
    assert "word 9" in done.stdout
    assert "asked for words" in done.stdout
    assert '"http.route":"/words/{count}"' in done.stdout.replace('": "', '":"')


def test_the_killed_request_is_on_record_and_nothing_is_missing(done: subprocess.CompletedProcess[str]) -> None:
    assert "process_died" in done.stdout
    assert "\nBALANCED: every record of 1 process is accounted for.\n" in done.stdout


def test_recover_and_verify_print_what_is_shown(done: subprocess.CompletedProcess[str]) -> None:
    of_a_terminal = ("19:",)  # `tail` has another form in a pipe
    lines = [line for block in blocks(TUTORIAL, "text") for line in block.splitlines()]
    lines = [line.replace("/dev/shm/inference_logging-0-inference-11cd8094032c", "…") for line in lines if line]
    assert_prints([line for line in lines if not line.startswith(of_a_terminal)], done.stdout)
